"""Errors relative to the size of the truth."""

from __future__ import annotations

from loca.metrics.squares import Errors, Values, Weights, mean_square, ratio


def relative_l2(prediction: Values, truth: Values, weights: Weights | None = None) -> Errors:
    """‖s* − s‖₂ / ‖s‖₂ over all queries: the Euclidean norm of the values as one vector, not squared.

    On a grid this is the Frobenius norm of the field, not the spectral norm of a matrix. With weights,
    (Σ w (s* − s)² / Σ w s²)^½.
    """
    return relative_l2_squared(prediction, truth, weights) ** 0.5


def relative_l2_squared(prediction: Values, truth: Values, weights: Weights | None = None) -> Errors:
    """‖s* − s‖₂² / ‖s‖₂², the formula printed in the paper; its tables hold the unsquared one."""
    return ratio(mean_square(prediction - truth, weights), mean_square(truth, weights))
