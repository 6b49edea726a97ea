"""R6, R7, R9 and R10: noise on the inputs, initial weights, and functions unlike those of the training data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loca.problems import Antiderivative
from loca_reproduction.claims.claim import Preset, Verdict
from loca_reproduction.claims.comparison import Comparison, Condition, percent, steps_of
from loca_reproduction.claims.results import Results, Row, boxes, over_values
from loca_reproduction.problems import MechanicalMNIST
from loca_reproduction.sources import Drawn, Unseen

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
        tests = (("clean", Unseen(unseen)), ("noisy", Unseen(unseen, NOISE)))
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


TEST_LENGTH = 0.1
LENGTHS: Mapping[Preset, Sequence[float]] = {
    "quick": (0.1, 0.5),
    "paper": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
}
CHOOSING = 0.5
"""The length at which learning rates are chosen, for all lengths."""
STEPS: Mapping[Preset, Mapping[str, int]] = {
    "quick": steps_of("quick", "antiderivative"),
    "paper": {"LOCA": 2000, "DeepONet": 1800, "FNO": 400},
}
"""About a minute on one core for each run; nine lengths, three models and three seeds make 81 runs."""


class Shift(Comparison):
    """Trained on smooth functions, LOCA errs least on rough ones."""

    name = "R9"
    paper = (
        "Antiderivative, correlation length 0.1 to 0.9 in training, 0.1 in tests: box plots, LOCA best for all nine."
    )
    rule = "Holds if LOCA has the lowest mean error of the three models at all lengths, in part if at more than half."
    varied = "length"

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        functions, test = (200, 100) if preset == "quick" else (1000, 1000)
        tests = (("length 0.1", Unseen(Antiderivative(length=TEST_LENGTH))),)
        return [
            Condition(
                "shift", Drawn(Antiderivative(length=length), functions, tests=tests, test=test), "antiderivative",
                STEPS[preset], length, length == CHOOSING,
            )
            for length in LENGTHS[preset]
        ]  # fmt: skip

    def answer(self, results: Results) -> Verdict:
        lengths = sorted({row.value for row in results.rows if row.value is not None})
        errors = {m: [results.means(model=m, value=length).mean() for length in lengths] for m in self.models}
        best = [
            length for i, length in enumerate(lengths) if all(errors["LOCA"][i] <= errors[m][i] for m in self.models)
        ]
        answer = "holds" if len(best) == len(lengths) else "holds in part" if 2 * len(best) > len(lengths) else "fails"
        ends = "; ".join(f"{m} {100 * e[0]:.2f} to {100 * e[-1]:.1f} %" for m, e in errors.items())
        return Verdict(
            answer, f"LOCA is best at {len(best)} of {len(lengths)} lengths. Errors from first to last: {ends}."
        )

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return over_values(Results.from_json(numbers["rows"]), "correlation length in training", logarithmic=False)


class ManyScales(Comparison):
    """Functions of many scales: LOCA is the most accurate, FNO has outliers."""

    name = "R10"
    paper = "Antiderivative, lengths over two decades and variances over four, 1000 functions: box plots; no figures."
    rule = (
        "Two points: LOCA has the lowest mean error of the three models; FNO's largest error is above LOCA's. Holds "
        "with both, in part with one."
    )
    shows_fields = True
    seeds: Mapping[Preset, int] = {"quick": 1, "paper": 5}

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        functions, test = (200, 100) if preset == "quick" else (1000, 1000)
        source = Drawn(Antiderivative.multi_scale(), functions, test=test)
        return [Condition("many scales", source, "antiderivative", steps_of(preset, "antiderivative"))]

    def answer(self, results: Results) -> Verdict:
        means = {m: results.means(model=m) for m in self.models}
        largest = {m: float(results.pooled(model=m).errors["relative_l2"].max()) for m in self.models}
        points = all(means["LOCA"].mean() <= v.mean() for v in means.values()) + (largest["FNO"] > largest["LOCA"])
        text = "; ".join(f"{m} {percent(v)}, at most {100 * largest[m]:.0f} %" for m, v in means.items())
        return Verdict(("fails", "holds in part", "holds")[points], f"Errors: {text}.")

    def columns(self, results: Results) -> list[str]:
        return ["error", "largest error"]

    def cells(self, rows: Sequence[Row]) -> list[str]:
        return [*super().cells(rows), percent([float(row.report.errors["relative_l2"].max()) for row in rows])]

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return boxes(Results.from_json(numbers["rows"]))
