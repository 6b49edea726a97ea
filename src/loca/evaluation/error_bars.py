"""How well a model knows its own error: coverage and width of its bands, and its score as a distribution."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from loca.data import Samples
from loca.evaluation.measures import OF_ERROR_BARS
from loca.evaluation.report import RELIABILITY_LEVELS
from loca.metrics import crps
from loca.models import Uncertain, predict_error_bars, standardized_errors


class ErrorBarMeasuring:
    """Metrics of the error bars of functions, by name, and the coverage of bands of many levels.

    **Arguments:**

    - `model`: the operator.
    - `level`: of the bands.
    """

    def __init__(self, model: Uncertain, level: float):
        self.model, self.level = model, level
        self.radii = {"pointwise": [model.radius(each) for each in (*RELIABILITY_LEVELS, level)]}
        try:
            of_functions = [model.radius(each, simultaneous=True) for each in (*RELIABILITY_LEVELS, level)]
        except ValueError:  # only calibrated models know them
            of_functions = []
        if of_functions:
            self.radii["simultaneous"] = of_functions
        self.names = tuple(name for name in OF_ERROR_BARS if name != "contained" or of_functions)
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
