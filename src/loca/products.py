"""Matrix products in the precision that JAX was asked for, on processors too.

Within `jax.default_matmul_precision("bfloat16")` factors are rounded to bfloat16 and sums taken in single precision, in
derivatives as well. JAX itself does so on accelerators only. Processors with matrix units for bfloat16 (Intel's AMX)
are several times faster at it, but the compiler finds them only if every product is written as A B or A Bᵀ of matrices
that lie in memory row by row: so each derivative is written here in one of these forms.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

__all__ = ["matmul", "matmul_transposed"]


def matmul(a: Float[Array, "*N q"], b: Float[Array, "q r"]) -> Float[Array, "*N r"]:
    """A B."""
    return rounded(a, b) if is_rounded(a) else a @ b


def matmul_transposed(a: Float[Array, "*N q"], b: Float[Array, "r q"]) -> Float[Array, "*N r"]:
    """A Bᵀ."""
    return rounded_transposed(a, b) if is_rounded(a) else a @ b.T


def is_rounded(a: Array) -> bool:
    """Whether products are asked for in bfloat16."""
    asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    return asked == "bfloat16" and a.dtype == jnp.float32


def half(a: Array, b: Array, axis: int) -> Array:
    """Sums over the last axis of one factor and one axis of the other, in single precision, of factors in bfloat16."""
    factors = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return jax.lax.dot_general(*factors, (((a.ndim - 1,), (axis,)), ((), ())), preferred_element_type=jnp.float32)


def tall(a: Float[Array, "*N q"]) -> Float[Array, "rows q"]:
    """All rows, one below the other."""
    return a.reshape(-1, a.shape[-1])


def written_out(a: Float[Array, "q rows"]) -> Float[Array, "q rows"]:
    """A transposed matrix in bfloat16, row by row in memory."""
    return with_layout_constraint(a.astype(jnp.bfloat16), Layout((0, 1)))


@jax.custom_vjp
def rounded(a: Float[Array, "*N q"], b: Float[Array, "q r"]) -> Float[Array, "*N r"]:
    """A B from rounded factors: dA = G Bᵀ, dB = Aᵀ G."""
    return half(a, b, axis=0)


def forward(a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    """The product, and what its derivative needs."""
    return rounded(a, b), (a.astype(jnp.bfloat16), b.astype(jnp.bfloat16))


def backward(factors: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    """The derivative with respect to both."""
    a, b = factors
    return half(g, b, axis=1), half(written_out(tall(a).T), tall(g), axis=0)


rounded.defvjp(forward, backward)


@jax.custom_vjp
def rounded_transposed(a: Float[Array, "*N q"], b: Float[Array, "r q"]) -> Float[Array, "*N r"]:
    """A Bᵀ from rounded factors: dA = G B, dB = Gᵀ A."""
    return half(a, b, axis=1)


def forward_transposed(a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    """The product, and what its derivative needs."""
    return rounded_transposed(a, b), (a.astype(jnp.bfloat16), b.astype(jnp.bfloat16))


def backward_transposed(factors: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    """The derivative with respect to both."""
    a, b = factors
    return half(g, b, axis=0), half(written_out(tall(g).T), tall(a), axis=0)


rounded_transposed.defvjp(forward_transposed, backward_transposed)
