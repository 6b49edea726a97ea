"""R2 and R3: LOCA with few labels against others with all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loca.claims.budgets import steps_of
from loca.claims.claim import Preset, Verdict
from loca.claims.comparison import Comparison, Condition, spread_text
from loca.claims.drawing import over_values
from loca.claims.results import Results
from loca.claims.sources import Drawn
from loca.problems import Darcy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOCATIONS = 1024
CHOOSING = 64
"""The number of labels with which rates are chosen, for all."""


class LabelSweep(Comparison):
    """What both claims share: Darcy flow with more and more labels."""

    varied = "labels"
    labels: Mapping[Preset, Sequence[int]]

    def measures(self, preset: Preset) -> tuple[str, ...]:
        """Input measures: `easy`, on which LOCA has the paper's errors, and that of the paper's formula."""
        return ("easy",) if preset == "quick" else ("easy", "literal")

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        functions, test = (200, 100) if preset == "quick" else (1000, 1000)
        steps = steps_of(preset, "darcy")
        found = []
        for measure in self.measures(preset):
            problem = Darcy(resolution=32, preset=measure)
            for labels in self.labels[preset]:
                source = Drawn(problem, functions, None if labels == LOCATIONS else labels, test=test)
                found.append(Condition(measure, source, "darcy", steps, float(labels), labels == CHOOSING))
        return found

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return over_values(Results.from_json(numbers["rows"]), "labels of 1024", logarithmic=True)


class FewLabelsBeatMany(LabelSweep):
    """LOCA with 6 % of labels beats DeepONet and FNO with any number of them."""

    name = "R2"
    paper = "Darcy flow, 1000 functions: box plot of errors with 1.5 to 100 % of labels; no figures."
    rule = (
        "Holds if LOCA's mean error with 6 % of labels is below those of DeepONet and FNO with every share of labels, "
        "on both input measures; in part if on one it is below both at 6 %, or below one of them at every share."
    )
    labels: Mapping[Preset, Sequence[int]] = {"quick": (16, 64), "paper": (16, 64, 256, 1024)}

    def answer(self, results: Results) -> Verdict:
        told, everywhere, somewhere = [], True, False
        for measure in results.kinds("condition"):

            def error(model: str, labels: float, measure: str = measure) -> float:
                return results.means(condition=measure, value=labels, model=model).mean()

            ours = error("LOCA", float(CHOOSING))
            shares = sorted({row.value for row in results.rows if row.value is not None})
            best = {model: min(error(model, labels) for labels in shares) for model in ("DeepONet", "FNO")}
            here = {model: error(model, float(CHOOSING)) for model in best}
            everywhere &= ours < min(best.values())
            somewhere |= ours < min(here.values()) or any(ours < least for least in best.values())
            others = ", ".join(f"{model} at best {100 * least:.2f} %" for model, least in best.items())
            told.append(f"LOCA with 6 % of labels {100 * ours:.2f} %, {others} ({measure})")
        answer = "holds" if everywhere else "holds in part" if somewhere else "fails"
        return Verdict(answer, f"Mean errors: {'; '.join(told)}.")


class VeryFewLabels(LabelSweep):
    """Low errors with 1.5 % of labels."""

    name = "R3"
    paper = (
        "Darcy flow, 1000 functions, 16 labels each: a box plot of errors of about 1 %, the lowest of the three models."
    )
    rule = (
        "Holds if LOCA's mean error with 16 labels is at most 2 % and the lowest of the three models; in part if it is "
        "one of the two, on the measure on which it has the paper's errors."
    )
    labels: Mapping[Preset, Sequence[int]] = {"quick": (16, 64), "paper": (16, 64)}

    def answer(self, results: Results) -> Verdict:
        errors = {m: results.means(condition="easy", value=16.0, model=m) for m in self.models}
        ours = errors["LOCA"].mean()
        points = int(ours <= 0.02) + all(ours <= other.mean() for other in errors.values())
        told = ", ".join(f"{model} {spread_text(values)}" for model, values in errors.items())
        return Verdict(("fails", "holds in part", "holds")[points], f"Errors with 16 labels: {told}.")
