"""What training makes small: a number from predicted and true values of a batch, in standardized units."""

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["mean_squared", "relative_l2"]


def mean_squared(prediction: Float[Array, "N P d_s"], truth: Float[Array, "N P d_s"]) -> Float[Array, ""]:
    """The mean of (s* − s)² over functions, queries and channels."""
    return jnp.mean((prediction - truth) ** 2)


def relative_l2(prediction: Float[Array, "N P d_s"], truth: Float[Array, "N P d_s"]) -> Float[Array, ""]:
    """The mean over functions of ‖s* − s‖/‖s‖, each norm over all queries and channels of the function."""
    error = jnp.sum((prediction - truth) ** 2, axis=(1, 2))
    scale = jnp.sum(truth**2, axis=(1, 2))
    return jnp.mean(jnp.sqrt(error / scale))
