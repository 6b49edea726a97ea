"""Errors of functions, and how they are distributed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from loca.data import Queries, Samples, Shared, grid_shape
from loca.metrics import (
    BAND_EDGES,
    max_absolute,
    relative_l2,
    relative_l2_squared,
    rmse,
    rmse_bands,
    skill,
    spectral,
    wavenumbers,
)

Values = Float[np.ndarray, "N P d_s"]


class Measure(NamedTuple):
    """A metric: its title, whether it has the unit of its channel, and whether larger values are better."""

    title: str
    in_units: bool = False
    larger_is_better: bool = False


MEASURES = {
    "relative_l2": Measure("relative L2"),
    "relative_l2_squared": Measure("relative L2, squared"),
    "spectral": Measure("relative spectral norm"),
    "rmse": Measure("RMSE", in_units=True),
    "rmse_low": Measure("RMSE, |k| < 5", in_units=True),
    "rmse_mid": Measure("RMSE, 5 ≤ |k| < 13", in_units=True),
    "rmse_high": Measure("RMSE, 13 ≤ |k|", in_units=True),
    "max_absolute": Measure("largest error", in_units=True),
    "skill": Measure("skill", larger_is_better=True),
    "coverage": Measure("coverage", larger_is_better=True),
    "contained": Measure("contained", larger_is_better=True),
    "width": Measure("band width", in_units=True),
    "std": Measure("σ", in_units=True),
    "crps": Measure("CRPS", in_units=True),
}
"""All metrics, in the order of a report."""

OF_ERROR_BARS = ("coverage", "contained", "width", "std", "crps")
"""Metrics of models that know their error; `contained` needs a calibrated one."""

BANDS = {"rmse_low": 0, "rmse_mid": BAND_EDGES[0], "rmse_high": BAND_EDGES[1]}
"""The lowest wavenumber |k| of each band."""

NEEDS = {
    **dict.fromkeys(OF_ERROR_BARS, "a model that knows its error, such as one from `loca.calibrate`"),
    "skill": "a `reference` field",
    "spectral": "queries on an evenly spaced, flat grid of two dimensions",
    **{band: f"queries on an evenly spaced, flat grid fine enough for |k| ≥ {edge}" for band, edge in BANDS.items()},
}

BY_NAME_ONLY = {"relative_l2_squared", "spectral"}
"""Computed on request only: they serve to compare with the paper's formula and scripts."""


@dataclasses.dataclass(frozen=True)
class Measuring:
    """Computes metrics by name, for functions on a grid of the given shape if they have one."""

    names: tuple[str, ...]
    shape: tuple[int, ...] | None
    weights: Float[np.ndarray, " P"] | None

    @classmethod
    def prepare(
        cls,
        samples: Samples,
        metrics: Sequence[str] | None,
        weights: Float[Array | np.ndarray, " _"] | None,
        has_reference: bool,
        of_error_bars: Sequence[str] = (),
    ) -> Measuring:
        """Choose the requested metrics, or all that the data admits; raise if it does not admit a requested one."""
        if weights is not None and not (isinstance(samples.y, Shared) and len(weights) == samples.y.count):
            raise ValueError(
                f"got {len(weights)} weights for {samples.y.count} queries "
                f"{'shared by all functions' if isinstance(samples.y, Shared) else 'that differ between functions'}; "
                "pass one weight for each of the shared queries, such as `loca.domains.area_weights(domain, y)`"
            )
        shape = even_grid(samples.y) if samples.domain.is_flat else None
        possible = {
            "spectral": shape is not None and len(shape) == 2,
            "skill": has_reference,
            **{name: name in of_error_bars for name in OF_ERROR_BARS},
            **{band: shape is not None and wavenumbers(shape).max() >= edge for band, edge in BANDS.items()},
        }
        admitted = [name for name in MEASURES if possible.get(name, True) and name not in BY_NAME_ONLY]
        names = tuple(name for name in MEASURES if name in (admitted if metrics is None else metrics))
        for name in metrics or ():
            if name not in MEASURES:
                raise ValueError(f"there is no metric `{name}`; choose from {', '.join(MEASURES)}")
            if not possible.get(name, True):
                raise ValueError(f"the metric `{name}` needs {NEEDS[name]}; provide it, or leave the metric out")
        return cls(names, shape, None if weights is None else np.asarray(weights, np.float64))

    def __call__(self, prediction: Values, truth: Values, reference: Values | None) -> dict[str, np.ndarray]:
        """The metrics of some functions by name; skill only with a reference."""
        pair, weights, shape = (prediction, truth), self.weights, self.shape or ()
        compute = {
            "relative_l2": lambda: relative_l2(*pair, weights),
            "relative_l2_squared": lambda: relative_l2_squared(*pair, weights),
            "spectral": lambda: spectral(*pair, shape),
            "rmse": lambda: rmse(*pair, weights),
            "max_absolute": lambda: max_absolute(*pair),
        }
        if reference is not None:
            compute["skill"] = lambda: skill(*pair, reference, weights)
        found = {name: np.asarray(metric()) for name, metric in compute.items() if name in self.names}
        if BANDS.keys() & set(self.names):
            bands = rmse_bands(*pair, shape)
            found |= {f"rmse_{name}": np.asarray(band) for name, band in bands._asdict().items()}
        return {name: found[name] for name in self.names if name in found}


def even_grid(queries: Queries) -> tuple[int, ...] | None:
    """The shape of the grid that shared queries form, if it is evenly spaced along every axis."""
    if not isinstance(queries, Shared):
        return None
    for column in np.asarray(queries.y, np.float64).T:
        steps = np.diff(np.unique(column))
        if len(steps) and np.ptp(steps) > 1e-3 * steps.mean():  # coordinates are rounded to single precision
            return None
    return grid_shape(queries.y)


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
        known, missing = values[finite], tuple(np.flatnonzero(~finite).tolist())
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
