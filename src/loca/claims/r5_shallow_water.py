"""R5: shallow water."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loca.claims.claim import Preset, Verdict
from loca.claims.comparison import Comparison, Condition, percent, steps_of
from loca.claims.figures import boxes
from loca.claims.results import Results, Row
from loca.problems import ShallowWater
from loca.runs import Drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIE = 1.1


class Waves(Comparison):
    """Shallow water: LOCA is best on height, level with FNO on velocities, and spreads less."""

    name = "R5"
    paper = "1000 functions, 2.5 % of labels: box plots of the errors of height and two velocities; no figures."
    rule = (
        "Three points: LOCA has the lowest mean error on the height; on both velocities at most "
        f"{TIE} times that of FNO; the smallest interquartile range on all three. Holds with three, in part with "
        "one or two."
    )
    shows_fields = True
    rates: Mapping[Preset, Sequence[float]] = {"quick": (4e-3,), "paper": (4e-3,)}

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        if preset == "quick":
            source = Drawn(ShallowWater(), 20, labels=128, validation=10, test=10)
        else:
            source = Drawn(ShallowWater(), 1000, labels=128, validation=100, test=200)
        return [Condition("waves", source, "shallow-water", steps_of(preset, "shallow-water"))]

    def answer(self, results: Results) -> Verdict:
        means = {m: [results.means(model=m, channel=c).mean() for c in range(3)] for m in self.models}
        ranges = {m: quartile_ranges(results, m) for m in self.models}
        others = [m for m in self.models if m != "LOCA"]
        points = (
            all(means["LOCA"][0] < means[m][0] for m in others)
            + all(means["LOCA"][c] <= TIE * means["FNO"][c] for c in (1, 2))
            + all((ranges["LOCA"] < ranges[m]).all() for m in others)
        )
        text = "; ".join(f"{m} {', '.join(f'{100 * v:.2f}' for v in values)} %" for m, values in means.items())
        answer = "fails" if points == 0 else "holds" if points == 3 else "holds in part"
        return Verdict(answer, f"{points} of 3 points. Mean errors of height and velocities: {text}.")

    def columns(self, results: Results) -> list[str]:
        return [variable.name for variable in results.rows[0].report.outputs]

    def cells(self, rows: Sequence[Row]) -> list[str]:
        return [percent([row.mean(channel=c) for row in rows]) for c in range(len(rows[0].report.outputs))]

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return boxes(Results.from_json(numbers["rows"]), models=self.models)


def quartile_ranges(results: Results, model: str) -> np.ndarray:
    """The interquartile range of the errors of each channel."""
    low, high = np.quantile(results.pooled(model=model).errors["relative_l2"], (0.25, 0.75), axis=0)
    return high - low
