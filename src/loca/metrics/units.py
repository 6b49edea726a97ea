"""Errors in the units of the data."""

from __future__ import annotations

from loca.metrics.squares import Errors, Values, Weights, mean_square


def rmse(prediction: Values, truth: Values, weights: Weights | None = None) -> Errors:
    """(Σ w (s* − s)² / Σ w)^½: the root of the mean squared error."""
    return mean_square(prediction - truth, weights) ** 0.5


def max_absolute(prediction: Values, truth: Values) -> Errors:
    """max |s* − s| over all queries."""
    return abs(prediction - truth).max(axis=1)
