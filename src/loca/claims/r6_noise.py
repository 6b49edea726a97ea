"""R6 and R7: noise on the inputs, and initial weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loca.claims.claim import Preset, Verdict
from loca.claims.comparison import Comparison, Condition, percent, steps_of
from loca.claims.figures import boxes
from loca.claims.results import Results, Row
from loca.problems import MechanicalMNIST
from loca.runs import Drawn, Test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISE = 0.15
"""Standard deviation of the noise; the displacements of the inputs reach ±3."""


class PlatesWithNoise(Comparison):
    """What both claims share: Mechanical MNIST, with and without noise on the inputs."""

    baselines: Sequence[str] = ("ridge", "s = c·u", "mean field")

    def source(self, preset: Preset, train_noise: float) -> Drawn:
        """Functions of training digits, tested on functions of test digits."""
        functions, validation, test = (16, 8, 8) if preset == "quick" else (10_000, 500, 1000)
        unseen = MechanicalMNIST(split="test")
        tests = (("clean", Test(unseen)), ("noisy", Test(unseen, NOISE)))
        return Drawn(MechanicalMNIST(), functions, 56, train_noise, tests, validation=validation, test=test, same=True)

    def clean(self, preset: Preset) -> Condition:
        """Training without noise, where learning rates are chosen."""
        steps = steps_of(preset, "mechanical-mnist")
        return Condition("clean training", self.source(preset, 0.0), "mechanical-mnist", steps)

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return boxes(Results.from_json(numbers["rows"]))


class Noise(PlatesWithNoise):
    """LOCA's error grows least when inputs are noisy."""

    name = "R6"
    paper = (
        "Mechanical MNIST, 7 % of labels, noise of standard deviation 0.15. Mean errors of the two displacements, "
        "clean → noisy test → noisy training and test: FNO 0.004, 0.003 → 0.088, 0.087 → 0.016, 0.016; DeepONet "
        "0.028, 0.029 → 0.061, 0.057 → 0.065, 0.064; LOCA 0.026, 0.026 → 0.047, 0.049 → 0.032, 0.033 (table 2)."
    )
    rule = (
        "Holds if LOCA's error grows by the smallest factor of the three models both from clean to noisy tests and "
        "from clean to noisy training and tests; in part if in one of them."
    )
    shows_fields = True

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        clean = self.clean(preset)
        source = self.source(preset, NOISE)
        noisy = dataclasses.replace(clean, name="noisy training", source=source, chooses=False, rates_of=clean.name)
        return [clean, noisy]

    def answer(self, results: Results) -> Verdict:
        growth: dict[str, tuple[float, float]] = {}
        parts = []
        for model in self.models:
            clean, noisy = (results.means(condition="clean training", model=model, test=t) for t in ("clean", "noisy"))
            both = results.means(condition="noisy training", model=model, test="noisy")
            growth[model] = float(noisy.mean() / clean.mean()), float(both.mean() / clean.mean())
            parts.append(f"{model} {percent(clean)} → {percent(noisy)} → {percent(both)}")
        points = sum(all(growth["LOCA"][i] < growth[m][i] for m in self.models if m != "LOCA") for i in (0, 1))
        factors = ", ".join(f"{m} {a:.1f} and {b:.1f}" for m, (a, b) in growth.items())
        return Verdict(("fails", "holds in part", "holds")[points], f"{'; '.join(parts)}. Factors: {factors}.")


class FirstWeights(PlatesWithNoise):
    """LOCA depends least on its first weights."""

    name = "R7"
    paper = "Mechanical MNIST, clean training and noisy tests, 10 seeds: box plot of the largest error; no figures."
    rule = (
        "Holds if, over the seeds, LOCA's largest error has the lowest median and the smallest range of the three "
        "models; in part if one of them."
    )

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        return [self.clean(preset)]

    def answer(self, results: Results) -> Verdict:
        largest = {
            m: np.array([row.report.errors["relative_l2"].max() for row in results.select(model=m, test="noisy")])
            for m in self.models
        }
        others = [values for m, values in largest.items() if m != "LOCA"]
        ours = largest["LOCA"]
        points = all(np.median(ours) < np.median(v) for v in others) + all(np.ptp(ours) < np.ptp(v) for v in others)
        text = "; ".join(
            f"{m} {100 * np.median(v):.1f} % ({100 * v.min():.1f} to {100 * v.max():.1f} %)" for m, v in largest.items()
        )
        answer = ("fails", "holds in part", "holds")[points]
        return Verdict(answer, f"Largest error on noisy tests, median and range over {len(ours)} seeds: {text}.")

    def columns(self, results: Results) -> list[str]:
        return ["error, clean", "error, noisy", "largest error, noisy"]

    def cells(self, rows: Sequence[Row]) -> list[str]:
        noisy = [row for row in rows if row.test == "noisy"]
        largest = [float(row.report.errors["relative_l2"].max()) for row in noisy]
        return [*super().cells(rows), percent(largest)]
