"""Loss functions: one number from the predicted and true values of a batch, in standardized units.

Weights, if given, state how much each query counts (`loca.domains.area_weights`), the same for all functions or one row
for each; a common factor does not matter.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

__all__ = ["mean_squared", "relative_l2"]

Values = Float[Array, "N P d_s"]
Weights = Float[Array, " P"] | Float[Array, "N P"]


def mean_squared(prediction: Values, truth: Values, weights: Weights | None = None) -> Float[Array, ""]:
    """The mean of (s* − s)² over functions, queries and channels; with weights Σ w (s* − s)² / Σ w."""
    squares = (prediction - truth) ** 2
    if weights is None:
        return jnp.mean(squares)
    w = jnp.broadcast_to(weights[..., None], squares.shape)
    return jnp.sum(w * squares) / jnp.sum(w)


def relative_l2(prediction: Values, truth: Values, weights: Weights | None = None) -> Float[Array, ""]:
    """The mean over functions of ‖s* − s‖/‖s‖, each norm over all queries and channels of the function.

    With weights ‖s‖² is Σ w s². A function that is zero counts by its absolute error.
    """
    w = 1.0 if weights is None else weights[..., None]
    error = jnp.sum(w * (prediction - truth) ** 2, axis=(1, 2))
    scale = jnp.sum(w * truth**2, axis=(1, 2))
    return jnp.mean(jnp.sqrt(error / jnp.where(scale > 0.0, scale, 1.0)))
