"""Errors of rollouts at each lead time, beside persistence and climatology."""

import dataclasses
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from loca.data import Trajectories, Variable
from loca.durable import write_json
from loca.models import DivergedWarning, Stepper
from loca.typing import Key

FORECAST, PERSISTENCE, CLIMATOLOGY = "forecast", "persistence", "climatology"

MEASURES = {
    "relative_l2": "‖e‖ / ‖s‖",
    "vrmse": "RMSE / standard deviation of the frame",
    "rmse": "RMSE",
    "mae": "mean absolute error, the CRPS of a forecast without spread",
    "correlation": "correlation of anomalies from the climatology",
    "crps": "continuous ranked probability score of the draws",
    "spread": "standard deviation of the draws",
}
"""Metrics of every lead time: sums over locations, weighted by the area that each represents."""

NUMBERS = 2**25
"""Values of forecasts in memory, at most."""


@dataclasses.dataclass(frozen=True)
class LeadTimes:
    """The errors of rollouts from S starts at L lead times, and those of persistence and of climatology.

    **Arguments:**

    - `outputs`: names and units of the fields.
    - `step`, `unit`: between two lead times.
    - `errors`: (S, L, d) of each metric, by the name of what predicts: "forecast", "persistence" and "climatology".
    - `spectra`: (L, K, d), the mean power of forecasts and of the truth at each wavenumber |k|, "forecast" and "truth",
      on even grids of flat domains; empty elsewhere.
    - `source`: the origin of the data.
    """

    outputs: tuple[Variable, ...]
    step: float
    unit: str
    errors: Mapping[str, Mapping[str, Float[np.ndarray, "S L d"]]]
    spectra: Mapping[str, Float[np.ndarray, "L K d"]]
    source: str = ""

    @property
    def times(self) -> Float[np.ndarray, " L"]:
        """The lead times."""
        return self.step * np.arange(1, 1 + self.errors[FORECAST]["rmse"].shape[1])

    def of(self, metric: str = "relative_l2", what: str = FORECAST) -> Float[np.ndarray, "L d"]:
        """A metric at each lead time, over all starts: the mean, of RMSE and spread that of their squares."""
        if metric not in self.errors[what]:
            raise ValueError(f"there is no `{metric}` of {what}; choose from {', '.join(self.errors[what])}")
        found = self.errors[what][metric]
        return np.sqrt((found**2).mean(axis=0)) if metric in ("rmse", "spread") else found.mean(axis=0)

    def window(self, first: int, last: int, metric: str = "vrmse", what: str = FORECAST) -> Float[np.ndarray, " d"]:
        """The mean of a metric over steps `first` to `last`, both included, such as 6 and 12."""
        return self.of(metric, what)[first - 1 : last].mean(axis=0)

    def geometric_mean(self, steps: int | None = None, what: str = FORECAST) -> float:
        """The geometric mean over steps of the relative L2 error of all fields, mean over starts."""
        return float(np.exp(np.log(self.of("relative_l2", what)[:steps].mean(axis=-1)).mean()))

    @property
    def spread_skill(self) -> Float[np.ndarray, "L d"]:
        """The spread of the draws divided by the RMSE of their mean: 1 if a forecast knows how wrong it is."""
        return ratio(self.of("spread"), self.of("rmse"))

    def __str__(self) -> str:
        L, lines = len(self.times), [f"{len(self.errors[FORECAST]['rmse'])} rollouts of {len(self.times)} steps"]
        shown = sorted({1, 2, 3, 5, 10, 20, 50, 100, 200, 500, L} & set(range(1, L + 1)))
        for c, variable in enumerate(self.outputs):
            rows = [("lead time" + (f" ({self.unit})" if self.unit else ""), self.times)]
            for metric in self.errors[FORECAST]:
                rows.append((metric, self.of(metric)[:, c]))
                beside = [PERSISTENCE, CLIMATOLOGY] if metric in ("vrmse", "rmse", "mae", "correlation") else []
                rows += [(f"  {what}", self.of(metric, what)[:, c]) for what in beside]
            if "spread" in self.errors[FORECAST]:
                rows.append(("spread / RMSE", self.spread_skill[:, c]))
            lines += ["", str(variable)]
            lines += [f"{name:<20}" + "".join(f"{values[i - 1]:>10.3g}" for i in shown) for name, values in rows]
        return "\n".join([*lines, "", f"geometric mean of the relative L2 error: {self.geometric_mean():.3g}"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all errors as JSON."""
        nested = {what: {name: _listed(each) for name, each in found.items()} for what, found in self.errors.items()}
        spectra = {what: _listed(each) for what, each in self.spectra.items()}
        known = {"outputs": [v._asdict() for v in self.outputs], "step": self.step, "unit": self.unit}
        write_json(Path(path), {"source": self.source, **known, "errors": nested, "spectra": spectra})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LeadTimes":
        """Read what `save` wrote."""
        content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))

        def arrays(found: Mapping[str, Any]) -> dict[str, np.ndarray]:
            return {name: np.asarray(values, np.float64) for name, values in found.items()}

        return cls(
            tuple(Variable(**each) for each in content["outputs"]), content["step"], content["unit"],
            {what: arrays(found) for what, found in content["errors"].items()}, arrays(content["spectra"]),
            content["source"],
        )  # fmt: skip


def evaluate_rollouts(
    stepper: Stepper,
    data: Trajectories,
    *,
    steps: int | None = None,
    every: int | None = None,
    draws: int | None = None,
    key: Key | None = None,
) -> LeadTimes:
    """The errors of rollouts at each lead time; `loca.evaluate(stepper, trajectories)` calls this function.

    Draws of a forecast are compared as a whole (CRPS, spread); the other metrics are those of their mean.

    **Arguments:**

    - `stepper`, `data`: the stepper, and trajectories that it has not seen.
    - `steps`: of each rollout; by default as many as a trajectory has after the frames that the stepper sees.
    - `every`: the number of frames between two starts in one trajectory; as many as `steps` unless given.
    - `draws`, `key`: as for `Stepper.rollout`.
    """
    steps = steps or data.frames - stepper.history
    if not 1 <= steps <= data.frames - stepper.history:
        raise ValueError(
            f"trajectories of {data.frames} frames have no {steps} steps after the {stepper.history} first"
        )
    first = np.arange(0, data.frames - stepper.history - steps + 1, every or steps)
    rows, first = (each.ravel() for each in np.meshgrid(np.arange(len(data)), first, indexing="ij"))
    size = max(1, NUMBERS // (steps * len(data.y) * data.d * (draws or 1)))
    found: list[dict[str, dict[str, np.ndarray]]] = []
    spectra: dict[str, Any] = {}
    for part in np.array_split(np.arange(len(rows)), -(-len(rows) // size)):
        start, truth = stepper.starts(data, rows[part], first[part], steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergedWarning)  # the errors say so
            parts = [frames for _, frames, _ in stepper.roll(start, steps, draws=draws, key=key)]
        forecast = np.concatenate(parts, axis=2).astype(np.float64)
        times = start.times[:, None] + stepper.about.step * np.arange(1, steps + 1)
        climatology = stepper.about.climatology(times)
        last = np.broadcast_to(start.window[:, -1:], truth.shape)
        block = {FORECAST: forecast, PERSISTENCE: last[:, None], CLIMATOLOGY: climatology[:, None]}
        found.append({what: _errors(each, truth, climatology, stepper) for what, each in block.items()})
        if data.domain.is_flat and data.shape is not None and data.mask is None:
            for what, frames in (("truth", truth), (FORECAST, forecast[:, 0])):
                power = spectrum(frames, data.shape).sum(axis=0) / len(rows)
                spectra[what] = spectra.get(what, 0.0) + power
    errors = {
        what: {name: np.concatenate([each[what][name] for each in found]) for name in found[0][what]}
        for what in found[0]
    }
    return LeadTimes(tuple(data.fields), data.step, data.unit, errors, spectra, repr(data))


def _errors(
    draws: Float[np.ndarray, "S D L m d"],
    truth: Float[np.ndarray, "S L m d"],
    climatology: Float[np.ndarray, "S L m d"],
    stepper: Stepper,
) -> dict[str, Float[np.ndarray, "S L d"]]:
    """All metrics of the mean of draws, and of the draws if there are several."""
    weights = np.asarray(stepper.about.weights, np.float64)
    inside = weights > 0.0
    weights = weights[inside] / weights.sum()

    def mean(values: np.ndarray) -> np.ndarray:
        return np.einsum("...md,m->...d", values, weights)

    draws, truth, expected = (each[..., inside, :].astype(np.float64) for each in (draws, truth, climatology))
    error = draws.mean(axis=1) - truth
    squares, absolute = mean(error**2), mean(np.abs(error))
    variance = mean((truth - mean(truth)[..., None, :]) ** 2)
    a, b = (each - expected - mean(each - expected)[..., None, :] for each in (draws.mean(axis=1), truth))
    found = {
        "relative_l2": np.sqrt(ratio(squares, mean(truth**2))),
        "vrmse": np.sqrt(ratio(squares, variance)),
        "rmse": np.sqrt(squares),
        "mae": absolute,
        "correlation": ratio(mean(a * b), np.sqrt(np.maximum(mean(a**2) * mean(b**2), np.finfo(float).tiny))),
    }
    if (D := draws.shape[1]) > 1:
        # Σᵢⱼ|xᵢ − xⱼ| over pairs is a weighted sum of sorted draws; the estimate for infinitely many draws
        order = (2 * np.arange(1, D + 1) - D - 1)[:, None, None, None]
        pairs = (order * np.sort(draws, axis=1)).sum(axis=1) / (D * (D - 1))
        found["crps"] = mean(np.abs(draws - truth[:, None]).mean(axis=1) - pairs)
        found["spread"] = np.sqrt(mean(draws.var(axis=1, ddof=1) * (D + 1) / D))
    return found


def spectrum(frames: Float[np.ndarray, "*B m d"], shape: tuple[int, ...]) -> Float[np.ndarray, "*B K d"]:
    """The power Σ |ŝ(k)|² of all waves with |k| between K − ½ and K + ½ periods across the grid."""
    values = frames.reshape(*frames.shape[:-2], *shape, frames.shape[-1])
    axes = tuple(range(values.ndim - 1 - len(shape), values.ndim - 1))
    power = np.abs(np.fft.fftn(values, axes=axes) / np.prod(shape)) ** 2
    waves = np.meshgrid(*(np.fft.fftfreq(n, 1.0 / n) for n in shape), indexing="ij")
    rings: Int[np.ndarray, " m"] = np.rint(np.linalg.norm([each.ravel() for each in waves], axis=0)).astype(int)
    flat = power.reshape(*frames.shape)
    return np.stack([flat[..., rings == k, :].sum(axis=-2) for k in range(min(shape) // 2 + 1)], axis=-2)


def ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a/b; infinite or NaN where b is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def _listed(values: np.ndarray) -> Any:
    """Nested lists; null for what is not finite."""
    return json.loads(json.dumps(values.tolist()), parse_constant=lambda word: None)
