"""What the scattering transforms of time series and images share: the modulus, and batches in chunks."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.export import is_symbolic_dim
from jaxtyping import Array, Float

Batch = Float[Array, "B ..."]

CHUNK = 2**19
"""Numbers of the first order to process at a time: 2 MB, which fits in a processor's cache."""


def modulus(re: Float[Array, "*grid"], im: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
    """|re + i·im|, with gradient zero at zero.

    The square root has infinite slope at 0, which the chain rule would turn into 0·∞ = NaN. Zero is the center of the
    subdifferential, and the value that symmetry requires.
    """
    square = re * re + im * im
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def batched(f: Callable[[Any, Batch], Batch]) -> Callable[[Any, Batch], Batch]:
    """f(parts, u) on batches u, such that `jax.vmap` over functions calls f once with all of them.

    By default `vmap` would put the functions on the outermost axis of every array inside f, where the matrix products
    of a transform need a copy each; f itself places the batch axis better. Derivatives go through f as it is written,
    in forward and reverse mode; `parts` are constants without derivatives.
    """
    f = jax.jit(f)  # a transform consists of many small operations; compiled, it is fast for a single function too

    @custom_vmap
    def many(parts: Any, u: Batch) -> Batch:
        return f(parts, u)

    @many.def_vmap
    def rule(axis_size: int, is_mapped: list[Any], parts: Any, u: Any) -> tuple[Batch, bool]:
        parts_mapped, u_mapped = is_mapped
        if any(jax.tree.leaves(parts_mapped)):  # an ensemble of encoders is no longer one batch
            axes = jax.tree.map(lambda mapped: 0 if mapped else None, parts_mapped)
            return jax.vmap(f, in_axes=(axes, 0 if u_mapped else None))(parts, u), True
        s = many(parts, u.reshape(-1, *u.shape[2:]))
        return s.reshape(axis_size, -1, *s.shape[1:]), True

    @jax.custom_jvp
    def call(parts: Any, u: Batch) -> Batch:
        return many(parts, u)

    @call.defjvp
    def derivative(primals: tuple[Any, Batch], tangents: tuple[Any, Batch]) -> tuple[Batch, Batch]:
        (parts, u), (_, du) = primals, tangents
        return jax.jvp(lambda u: f(parts, u), (u,), (du,))

    return lambda parts, u: call(jax.lax.stop_gradient(parts), u)


def in_chunks(f: Callable[[Batch], Batch], u: Batch, size: int) -> Batch:
    """f(u), `size` functions at a time: memory stays bounded and a chunk stays in the cache.

    All at once if their number is free, as in `loca.export`.
    """
    count = u.shape[0]
    if is_symbolic_dim(count) or count <= size:
        return f(u)
    whole = count // size * size
    s = jax.lax.map(f, u[:whole].reshape(-1, size, *u.shape[1:]))
    s = s.reshape(whole, *s.shape[2:])
    return s if whole == count else jnp.concatenate([s, f(u[whole:])])
