"""How much better than a reference, such as the mean field or climatology."""

from __future__ import annotations

import numpy as np
from jaxtyping import Array, Float

from loca.metrics.squares import Errors, Values, Weights, mean_square, ratio


def skill(prediction: Values, truth: Values, reference: Values, weights: Weights | None = None) -> Errors:
    """1 − Σ w (s* − s)² / Σ w (s̄ − s)² for every function: 1 is perfect, 0 no better than the reference s̄."""
    return 1.0 - ratio(mean_square(prediction - truth, weights), mean_square(reference - truth, weights))


def overall_skill(
    prediction: Values, truth: Values, reference: Values, weights: Weights | None = None
) -> Float[Array, " d_s"] | Float[np.ndarray, " d_s"]:
    """The same with both sums over all functions: one number per channel, in which hard functions count for more."""
    departures = (prediction - truth, reference - truth)
    error, spread = (mean_square(each, weights).mean(axis=0, keepdims=True) for each in departures)
    return 1.0 - ratio(error, spread)[0]
