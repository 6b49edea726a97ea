"""Errors of an operator on test data, and of its error bars, at all locations where the truth is known."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from loca.data import Indexed, Records, Samples, Shared
from loca.evaluation.measures import OF_ERROR_BARS, Measuring
from loca.evaluation.report import RELIABILITY_LEVELS, Report
from loca.metrics import crps
from loca.models import (
    LEVEL,
    Adaptation,
    Operator,
    Predictor,
    Uncertain,
    blocks,
    predict_error_bars,
    standardized_errors,
)


class ErrorBarMeasuring:
    """Metrics of the error bars of functions, by name, and the coverage of bands of many levels."""

    def __init__(self, model: Uncertain, level: float):
        self.model = model
        levels = (*RELIABILITY_LEVELS, level)
        self.radii = {"pointwise": [model.radius(each) for each in levels]}
        with contextlib.suppress(ValueError):  # only calibrated models know them
            self.radii["simultaneous"] = [model.radius(each, simultaneous=True) for each in levels]
        self.names = tuple(name for name in OF_ERROR_BARS if name != "contained" or "simultaneous" in self.radii)
        self.inside: dict[str, list[Float[np.ndarray, "L N d_s"]]] = {}

    def __call__(
        self, samples: Samples, truth: Float[np.ndarray, "N P d_s"], weights: Float[np.ndarray, " P"] | None
    ) -> Mapping[str, Float[np.ndarray, "N d_s"]]:
        """The metrics of some functions."""
        u, y = samples.u, samples.y
        found = predict_error_bars(self.model, u, y, self.radii["pointwise"][-1])
        mean, std, lower, upper = (np.asarray(each, np.float64) for each in found)
        scores = np.asarray(standardized_errors(self.model, u, y, samples.s))
        w = np.full(truth.shape[1], 1.0 / truth.shape[1]) if weights is None else weights / weights.sum()
        counted = {"pointwise": scores, "simultaneous": scores.max(axis=1, keepdims=True)}
        for name, radii in self.radii.items():
            shares = w if name == "pointwise" else np.ones(1)
            inside = [np.einsum("p,npc->nc", shares, counted[name] <= np.asarray(radius)) for radius in radii]
            self.inside.setdefault(name, []).append(np.stack(inside))
        own = {"coverage": self.inside["pointwise"][-1][-1]}
        if "simultaneous" in self.radii:
            own["contained"] = self.inside["simultaneous"][-1][-1]
        own["width"] = np.einsum("p,npc->nc", w, upper - lower)
        own["std"] = np.einsum("p,npc->nc", w, std)
        own["crps"] = np.asarray(crps(mean, std, truth, weights))
        return own

    def reliability(self) -> dict[str, Float[np.ndarray, "L d_s"]]:
        """The share of labels, and of functions, inside bands of the levels in `RELIABILITY_LEVELS`."""
        return {name: np.concatenate(parts, axis=1)[:-1].mean(axis=1) for name, parts in self.inside.items()}


BLOCK = 100
"""Functions in memory at once, unless given."""

Reference = Float[Array | np.ndarray, "P d_s"] | Float[Array | np.ndarray, "N P d_s"]
"""One field for all functions, such as a mean, or one for each, such as the climatology of its day."""


def evaluate(
    model: Operator,
    data: Samples | Records,
    *,
    metrics: Sequence[str] | None = None,
    weights: Float[Array | np.ndarray, " P"] | None = None,
    reference: Reference | None = None,
    batch_size: int = BLOCK,
    mesh: Mesh | None = None,
    regrid: bool = False,
    level: float = LEVEL,
) -> Report:
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
    """
    adaptation = Adaptation.of(model, data, regrid=regrid)
    if adaptation.is_unsolved:
        raise ValueError("this data has no outputs to compare predictions with; predict with `loca predict`")
    data = adaptation.apply(data)
    weights = adaptation.weights(weights)
    reference = None if reference is None else adaptation.outcome(reference)
    measuring: Measuring | None = None
    predict: Predictor | None = None
    found: list[dict[str, np.ndarray]] = []
    baseline: list[dict[str, np.ndarray]] = []
    done, size = 0, min(batch_size, len(data))
    bars = ErrorBarMeasuring(model, level) if isinstance(model, Uncertain) else None
    for samples in blocks(data, size):
        count = len(samples)
        truth = np.asarray(samples.s, np.float64)
        if measuring is None or predict is None:
            names = () if bars is None else bars.names
            measuring = Measuring.prepare(samples, metrics, weights, reference is not None, names)
            _check_reference(reference, len(data), truth.shape)
            predict = Predictor(model, samples.y, size, mesh)
        prediction = np.asarray(predict(samples.u, samples.y), np.float64)
        expected = None
        if reference is not None:
            field = reference if reference.ndim == 2 else reference[done : done + count]
            expected = np.broadcast_to(np.asarray(field, np.float64), truth.shape)
            baseline.append(measuring(expected, truth, None))
        found.append(measuring(prediction, truth, expected))
        if bars is not None and set(bars.names) & set(measuring.names):
            own = bars(samples, truth, measuring.weights)
            found[-1] |= {name: own[name] for name in bars.names if name in measuring.names}
        done += count
    return Report(
        outputs=data.outputs,
        errors=_join(found),
        baseline=_join(baseline) if baseline else None,
        is_weighted=weights is not None,
        source=data.source if isinstance(data, Records) else "",
        level=level if bars is not None and bars.inside else None,
        reliability=bars.reliability() if bars is not None and bars.inside else None,
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
        match samples.y:
            case Shared():
                total, count = total + s.sum(axis=0), count + np.full((s.shape[1], 1), float(len(s)))
            case Indexed(y, index):
                here, labels = np.zeros((len(y), s.shape[2])), np.zeros((len(y), 1))
                np.add.at(here, np.asarray(index), s)
                np.add.at(labels, np.asarray(index), 1.0)
                total, count = total + here, count + labels
            case _:
                raise ValueError(
                    "every function of this data has its own locations, so there is no mean field; "
                    "evaluate without a reference, or interpolate to common locations first"
                )
    if not np.all(count > 0):
        raise ValueError(
            f"{np.sum(count == 0)} of {len(count)} locations have no label in any function; "
            "compute the mean field from data with more labels"
        )
    return total / count


def _join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _check_reference(reference: Reference | None, functions: int, shape: tuple[int, ...]) -> None:
    fields = (shape[1:], (functions, *shape[1:]))
    if reference is not None and reference.shape not in fields:
        raise ValueError(
            f"the reference has shape {reference.shape}; pass one field {fields[0]} for all functions, "
            f"or one for each {fields[1]}"
        )
