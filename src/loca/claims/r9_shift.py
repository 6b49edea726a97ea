"""R9 and R10: antiderivatives of functions that are smoother than in training, or of many scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loca.claims.claim import Preset, Verdict
from loca.claims.comparison import Comparison, Condition, percent, steps_of
from loca.claims.figures import boxes, over_values
from loca.claims.results import Results, Row
from loca.problems import Antiderivative
from loca.runs import Drawn, Test

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        tests = (("length 0.1", Test(Antiderivative(length=TEST_LENGTH))),)
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
