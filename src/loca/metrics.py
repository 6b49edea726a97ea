"""How far predictions are from the truth, per function and output channel, in the units of the data."""

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["relative_l2", "relative_l2_squared"]


def relative_l2(prediction: Float[Array, "N P d_s"], truth: Float[Array, "N P d_s"]) -> Float[Array, "N d_s"]:
    """‖s* − s‖₂ / ‖s‖₂ over all queries: the Euclidean norm of the values as one vector, not squared.

    On a grid this is the Frobenius norm of the field, not the spectral norm of a matrix.
    """
    return jnp.linalg.norm(prediction - truth, axis=1) / jnp.linalg.norm(truth, axis=1)


def relative_l2_squared(prediction: Float[Array, "N P d_s"], truth: Float[Array, "N P d_s"]) -> Float[Array, "N d_s"]:
    """‖s* − s‖₂² / ‖s‖₂², the formula printed in the paper; its tables hold the unsquared one."""
    return relative_l2(prediction, truth) ** 2
