"""Distances between all pairs of two sets of points."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def squared_distances(z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
    """‖zᵢ − z′ⱼ‖² = ‖zᵢ‖² + ‖z′ⱼ‖² − 2 zᵢ·z′ⱼ, as one matrix product.

    Both sets are first centered at the mean of the second: this leaves distances unchanged but reduces cancellation.
    Distances that round-off still makes negative are set to zero.
    """
    center = jax.lax.stop_gradient(jnp.mean(z_, axis=0))
    z, z_ = z - center, z_ - center
    # in full precision, since cancellation would amplify rounded products
    products = jnp.matmul(z, z_.T, precision=jax.lax.Precision.HIGHEST)
    r2 = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(z_**2, axis=1)[None, :] - 2.0 * products
    return jnp.maximum(r2, 0.0)


def pairwise(
    distance: Callable[[Float[Array, " l"], Float[Array, " l"]], Float[Array, ""]],
    z: Float[Array, "P l"],
    z_: Float[Array, "Q l"],
) -> Float[Array, "P Q"]:
    """A distance evaluated for all pairs, each from the difference of two points.

    Slower than `squared_distances`, but without cancellation. For kernels with a kink where points coincide, where an
    error of ε in r² would become one of √ε in k.
    """
    return jax.vmap(lambda a: jax.vmap(lambda b: distance(a, b))(z_))(z)


def safe_root(r2: Float[Array, "*P"]) -> Float[Array, "*P"]:
    """√r², with derivative 0 instead of ∞ at r = 0."""
    positive = r2 > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, r2, 1.0)), 0.0)
