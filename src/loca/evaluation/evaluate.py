"""Errors of an operator on test data, and of its error bars, at all locations where the truth is known."""

import contextlib
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from loca.data import Free, Queries, Records, Samples, Shared, Trajectories, grid_shape
from loca.evaluation.lead_times import LeadTimes, evaluate_rollouts
from loca.evaluation.report import BANDS, MEASURES, RELIABILITY_LEVELS, Report
from loca.metrics import (
    crps,
    max_absolute,
    relative_l2,
    relative_l2_squared,
    rmse,
    rmse_bands,
    skill,
    spectral,
    wavenumbers,
)
from loca.models import (
    LEVEL,
    Adaptation,
    Operator,
    Predictor,
    Stepper,
    Uncertain,
    blocks,
    predict_error_bars,
    standardized_errors,
    tabulated,
)

Values = Float[np.ndarray, "N P d_s"]

OF_ERROR_BARS = ("coverage", "contained", "width", "std", "crps")
"""Metrics of models that know their error; `contained` needs a calibrated one."""

NEEDS = {
    **dict.fromkeys(OF_ERROR_BARS, "a model that knows its error, such as one from `loca.calibrate`"),
    "skill": "a `reference` field",
    "spectral": "queries on an evenly spaced, flat grid of two dimensions",
    **{band: f"queries on an evenly spaced, flat grid fine enough for |k| ≥ {edge}" for band, edge in BANDS.items()},
}

BY_NAME_ONLY = {"relative_l2_squared", "spectral"}
"""Computed on request only: they serve to compare with the paper's formula and scripts."""


class Measuring:
    """Computes metrics by name, for blocks of functions, and counts the coverage of bands of many levels.

    Arguments are those of `evaluate`; `samples` are some functions, which show what the data admits.
    """

    def __init__(
        self,
        model: Operator,
        samples: Samples,
        metrics: Sequence[str] | None,
        weights: Float[Array | np.ndarray, " _"] | None,
        has_reference: bool,
        level: float,
    ):
        if weights is not None and not (isinstance(samples.y, Shared) and len(weights) == samples.y.count):
            raise ValueError(
                f"got {len(weights)} weights for {samples.y.count} queries "
                f"{'shared by all functions' if isinstance(samples.y, Shared) else 'that differ between functions'}; "
                "pass one weight for each of the shared queries, such as `loca.domains.area_weights(domain, y)`"
            )
        self.weights = None if weights is None else np.asarray(weights, np.float64)
        self.shape = even_grid(samples.y) if samples.domain.is_flat else None
        self.model, self.radii = model, dict[str, list[Array]]()
        if isinstance(model, Uncertain):
            levels = (*RELIABILITY_LEVELS, level)
            self.radii["pointwise"] = [model.radius(each) for each in levels]
            with contextlib.suppress(ValueError):  # only calibrated models know them
                self.radii["simultaneous"] = [model.radius(each, simultaneous=True) for each in levels]
        self.inside: dict[str, list[Float[np.ndarray, "L N d_s"]]] = {}
        possible = {
            "spectral": self.shape is not None and len(self.shape) == 2,
            "skill": has_reference,
            **dict.fromkeys(OF_ERROR_BARS, isinstance(model, Uncertain)),
            "contained": "simultaneous" in self.radii,
            **{band: self.shape is not None and wavenumbers(self.shape).max() >= edge for band, edge in BANDS.items()},
        }
        admitted = [name for name in MEASURES if possible.get(name, True) and name not in BY_NAME_ONLY]
        self.names = [name for name in MEASURES if name in (admitted if metrics is None else metrics)]
        for name in metrics or ():
            if name not in MEASURES:
                raise ValueError(f"there is no metric `{name}`; choose from {', '.join(MEASURES)}")
            if not possible.get(name, True):
                raise ValueError(f"the metric `{name}` needs {NEEDS[name]}; provide it, or leave the metric out")

    def __call__(self, prediction: Values, truth: Values, reference: Values | None) -> dict[str, np.ndarray]:
        """The metrics of some predictions by name; skill only with a reference."""
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
        found = {name: np.asarray(compute[name]()) for name in self.names if name in compute}
        if set(BANDS) & set(self.names):
            found |= {f"rmse_{name}": np.asarray(band) for name, band in rmse_bands(*pair, shape)._asdict().items()}
        return {name: found[name] for name in self.names if name in found}

    def error_bars(self, samples: Samples, truth: Values) -> dict[str, Float[np.ndarray, "N d_s"]]:
        """The metrics of the error bars of some functions by name."""
        if not isinstance(self.model, Uncertain) or not set(OF_ERROR_BARS) & set(self.names):
            return {}
        bars = predict_error_bars(self.model, samples.u, samples.y, self.radii["pointwise"][-1])
        mean, std, lower, upper = (np.asarray(each, np.float64) for each in bars)
        scores = np.asarray(standardized_errors(self.model, samples.u, samples.y, samples.s))
        w = np.ones(truth.shape[1]) if self.weights is None else self.weights
        w = w / w.sum()
        found = {"width": np.einsum("p,npc->nc", w, upper - lower), "std": np.einsum("p,npc->nc", w, std)}
        found["crps"] = np.asarray(crps(mean, std, truth, self.weights))
        counted = {"pointwise": (scores, w), "simultaneous": (scores.max(axis=1, keepdims=True), np.ones(1))}
        for (kind, radii), name in zip(self.radii.items(), OF_ERROR_BARS, strict=False):
            errors, shares = counted[kind]
            inside = [np.einsum("p,npc->nc", shares, errors <= np.asarray(radius)) for radius in radii]
            self.inside.setdefault(kind, []).append(np.stack(inside))
            found[name] = inside[-1]
        return {name: found[name] for name in OF_ERROR_BARS if name in self.names}

    def reliability(self) -> dict[str, Float[np.ndarray, "L d_s"]]:
        """The share of labels, and of functions, inside bands of the levels in `RELIABILITY_LEVELS`."""
        return {name: np.concatenate(parts, axis=1)[:-1].mean(axis=1) for name, parts in self.inside.items()}


def even_grid(queries: Queries) -> tuple[int, ...] | None:
    """The shape of the grid that shared queries form, if it is evenly spaced along every axis."""
    if not isinstance(queries, Shared):
        return None
    for column in np.asarray(queries.y, np.float64).T:
        steps = np.diff(np.unique(column))
        if len(steps) and np.ptp(steps) > 1e-3 * steps.mean():  # coordinates are rounded to single precision
            return None
    return grid_shape(queries.y)


BLOCK = 100  # functions in memory at once, unless given

Reference = Float[Array | np.ndarray, "P d_s"] | Float[Array | np.ndarray, "N P d_s"]
"""One field for all functions, such as a mean, or one for each, such as the climatology of its day."""


@overload
def evaluate(model: Stepper, data: Trajectories, **options: Any) -> LeadTimes: ...
@overload
def evaluate(model: Operator, data: Samples | Records, **options: Any) -> Report: ...
def evaluate(  # pyright: ignore[reportInconsistentOverload]  (options are the other parameters)
    model: Operator,
    data: Samples | Records | Trajectories,
    *,
    metrics: Sequence[str] | None = None,
    weights: Float[Array | np.ndarray, " P"] | None = None,
    reference: Reference | None = None,
    batch_size: int = BLOCK,
    mesh: Mesh | None = None,
    regrid: bool = False,
    level: float = LEVEL,
    **options: Any,
) -> Report | LeadTimes:
    """The errors of F(uᵢ) against sᵢ for every function and output channel, in the units of the data.

    Data whose sensors or channels are in another order than the model's is reordered; see `loca.models.adapt`.

    Functions are evaluated in blocks, so data in files is never in memory all at once. Predictions are made in single
    precision by one compiled program, which does all work on shared queries once; errors are computed in double
    precision.

    **Arguments:**

    - `model`: the operator.
    - `data`: test data, in memory or in files.
    - `metrics`: names from `MEASURES`; by default all that the data admits (bands need an evenly spaced grid, not on
        a sphere, and skill a reference) except the paper's `relative_l2_squared` and `spectral`.
    - `weights`: the share of Y that each query represents, such as `loca.domains.area_weights`. Maximum, spectral norm
        and bands do not use them.
    - `reference`: the field to beat, such as `mean_field(train)`. The report then contains skill and the reference's
        own errors.
    - `batch_size`: functions in memory at once.
    - `mesh`: devices that share the predictions, see `loca.models.shard`. With devices of several processes, each makes
        the same call and gets the complete report.
    - `regrid`: whether to interpolate inputs at other sensors to those of the model; otherwise they are refused.
    - `level`: of the bands of a model that knows its error. Their coverage, width and CRPS are metrics of the report.
    - `options`: of a stepper, which is evaluated on `Trajectories`; see `loca.evaluation.evaluate_rollouts`.
    """
    if isinstance(data, Trajectories):
        if not isinstance(model, Stepper):
            raise ValueError("trajectories are for steppers; make one with `loca.fit(operator, trajectories)`")
        return evaluate_rollouts(model, data, **options)
    if options:
        raise TypeError(f"{', '.join(options)} are options for trajectories; leave them out")
    adaptation = Adaptation.of(model, data, regrid=regrid)
    if adaptation.is_unsolved:
        raise ValueError("this data has no outputs to compare predictions with; predict with `loca predict`")
    data = adaptation.apply(data)
    weights = adaptation.weights(weights)
    reference = None if reference is None else adaptation.outcome(reference)
    size = min(batch_size, len(data))
    measuring, predict = None, None
    found, baseline = [], []
    for start, samples in zip(range(0, len(data), max(size, 1)), blocks(data, size), strict=True):
        truth = np.asarray(samples.s, np.float64)
        if measuring is None or predict is None:
            measuring = Measuring(model, samples, metrics, weights, reference is not None, level)
            fields = (truth.shape[1:], (len(data), *truth.shape[1:]))
            if reference is not None and reference.shape not in fields:
                raise ValueError(
                    f"the reference has shape {reference.shape}; pass one field {fields[0]} for all functions, "
                    f"or one for each {fields[1]}"
                )
            predict = Predictor(model, samples.y, size, mesh)
        prediction = np.asarray(predict(samples.u, samples.y), np.float64)
        expected = None
        if reference is not None:
            field = reference if reference.ndim == 2 else reference[start : start + len(samples)]
            expected = np.broadcast_to(np.asarray(field, np.float64), truth.shape)
            baseline.append(measuring(expected, truth, None))
        found.append(measuring(prediction, truth, expected) | measuring.error_bars(samples, truth))
    reliability = measuring.reliability() if measuring is not None else {}
    return Report(
        outputs=data.outputs,
        errors=_join(found),
        baseline=_join(baseline) if baseline else None,
        is_weighted=weights is not None,
        source=data.source if isinstance(data, Records) else "",
        level=level if reliability else None,
        reliability=reliability or None,
    )


def mean_field(data: Samples | Records, batch_size: int = BLOCK) -> Float[np.ndarray, "M d_s"]:
    """s̄(y) = mean of sᵢ(y) over the functions that are labeled at y: the best prediction that ignores u.

    **Arguments:**

    - `data`: training data whose functions share their locations; each may be labeled at all or some of them.
    - `batch_size`: functions in memory at once.
    """
    total, count = np.zeros((1, 1)), np.zeros((1, 1))
    for samples in blocks(data, min(batch_size, len(data))):
        s = np.asarray(samples.s, np.float64)
        if isinstance(samples.y, Free):
            raise ValueError(
                "every function of this data has its own locations, so there is no mean field; "
                "evaluate without a reference, or interpolate to common locations first"
            )
        table, labeled = tabulated(samples.y, s)
        total, count = total + table.sum(axis=0), count + labeled.sum(axis=0)[:, None]
    if not np.all(count > 0):
        raise ValueError(
            f"{np.sum(count == 0)} of {len(count)} locations have no label in any function; "
            "compute the mean field from data with more labels"
        )
    return total / count


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
