"""The mean square over queries, of which most errors are made."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Float

Values: TypeAlias = Float[Array, "N P d_s"] | Float[np.ndarray, "N P d_s"]
"""Output functions at their queries."""

Errors: TypeAlias = Float[Array, "N d_s"] | Float[np.ndarray, "N d_s"]
"""One number per function and output channel."""

Weights: TypeAlias = Float[Array, "*N P"] | Float[np.ndarray, "*N P"]
"""How much of Y each query stands for, in all functions or in each."""


def mean_square(values: Values, weights: Weights | None = None) -> Errors:
    """Σ w s² / Σ w over the queries; equal weights if none are given."""
    if weights is None:
        return (values**2).mean(axis=1)
    return (weights[..., None] * values**2).sum(axis=1) / weights.sum(axis=-1)[..., None]


def ratio(a: Errors, b: Errors) -> Errors:
    """a/b, which is infinite or not a number where b vanishes: there is nothing to be relative to."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b
