"""The distribution of the errors of many functions: the numbers of a box plot."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float

REACH = 1.5
"""Whiskers end at the last value within this many interquartile ranges of the box (Tukey 1977), as in the paper."""


@dataclasses.dataclass(frozen=True)
class Distribution:
    """Mean, quartiles, whiskers and outliers of one number per function.

    **Arguments:**

    - `lower_whisker`, `upper_whisker`: the outermost values within 1.5 interquartile ranges of the quartiles.
    - `outliers`: numbers of the functions beyond the whiskers.
    - `missing`: numbers of the functions whose value is infinite or NaN; everything else is computed without them.
    """

    mean: float
    minimum: float
    lower_whisker: float
    lower_quartile: float
    median: float
    upper_quartile: float
    upper_whisker: float
    maximum: float
    outliers: tuple[int, ...]
    missing: tuple[int, ...]

    @classmethod
    def of(cls, values: Float[np.ndarray, " N"]) -> Distribution:
        """The distribution of the values; quartiles by linear interpolation."""
        finite = np.isfinite(values)
        known = values[finite]
        missing = tuple(np.flatnonzero(~finite).tolist())
        if not known.size:
            return cls(*[math.nan] * 8, outliers=(), missing=missing)
        minimum, lower, median, upper, maximum = np.quantile(known, [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
        reach = REACH * (upper - lower)
        inside = finite & (values >= lower - reach) & (values <= upper + reach)
        return cls(
            mean=float(known.mean()),
            minimum=minimum,
            # interpolated quartiles may lie beyond all values inside; a whisker never ends within the box
            lower_whisker=min(float(values[inside].min()), lower),
            lower_quartile=lower,
            median=median,
            upper_quartile=upper,
            upper_whisker=max(float(values[inside].max()), upper),
            maximum=maximum,
            outliers=tuple(np.flatnonzero(finite & ~inside).tolist()),
            missing=missing,
        )
