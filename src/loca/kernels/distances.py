"""Distances between all pairs of two sets of points."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def squared_distances(z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
    """‖zᵢ − z′ⱼ‖² = ‖zᵢ‖² + ‖z′ⱼ‖² − 2 zᵢ·z′ⱼ, as one matrix product.

    Both sets are first moved to the center of the second: distances do not change, but the cancellation does, and
    what remains of it may not turn a distance negative.
    """
    center = jax.lax.stop_gradient(jnp.mean(z_, axis=0))
    z, z_ = z - center, z_ - center
    products = jnp.matmul(z, z_.T, precision=jax.lax.Precision.HIGHEST)  # what cancels must not be rounded before
    r2 = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(z_**2, axis=1)[None, :] - 2.0 * products
    return jnp.maximum(r2, 0.0)


def pairwise(
    distance: Callable[[Float[Array, " l"], Float[Array, " l"]], Float[Array, ""]],
    z: Float[Array, "P l"],
    z_: Float[Array, "Q l"],
) -> Float[Array, "P Q"]:
    """A distance of two points, for all pairs, from their difference.

    Slower than `squared_distances`, but without cancellation: for kernels with a kink where points coincide, where an
    error of ε in r² would be one of √ε in k.
    """
    return jax.vmap(lambda a: jax.vmap(lambda b: distance(a, b))(z_))(z)


def safe_root(r2: Float[Array, "*P"]) -> Float[Array, "*P"]:
    """√r², with derivative 0 instead of ∞ where r = 0."""
    positive = r2 > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, r2, 1.0)), 0.0)
