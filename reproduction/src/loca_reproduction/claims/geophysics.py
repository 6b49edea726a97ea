"""R5 and R8: shallow water waves, and surface pressure from surface temperature."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loca.problems import ShallowWater
from loca_reproduction.claims.claim import Preset, Verdict
from loca_reproduction.claims.comparison import Comparison, Condition, percent, steps_of
from loca_reproduction.claims.results import Results, Row, boxes
from loca_reproduction.problems import Climate
from loca_reproduction.sources import Drawn, Recorded

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


def record(kind: str, name: str) -> Climate:
    """Open a record in the directory that LOCA_DATA names."""
    if "LOCA_DATA" not in os.environ:
        raise FileNotFoundError(
            f"set LOCA_DATA to the directory with {name}; reproduction/studies/speedy_daily.py generates the simulated "
            "record, and docs/problems.md describes where to get the measured one"
        )
    return Climate(kind, f"{os.environ['LOCA_DATA']}/{name}")


class Pressure(Comparison):
    """Climate: LOCA has the lowest median error and the smallest spread."""

    name = "R8"
    paper = "NCEP daily surface temperature to pressure, 2000–2005 to 2005–2010, 144 labels: box plot; no figures."
    rule = (
        "Holds if LOCA has the lowest median and the smallest interquartile range of relative errors of the three "
        "models on both records; in part if on one, or one of the two on both."
    )
    metrics = ("relative_l2", "rmse")
    shows_fields = True

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        steps = steps_of(preset, "climate")
        europe = Condition(
            "Western Europe (ERA-Interim)",
            Recorded(record("era_interim", "erainterim_daily_weurope.npz")),
            "climate",
            steps,
        )
        if preset == "quick":
            return [europe]
        globe = Condition("globe (simulated)", Recorded(record("speedy", "speedy_daily.npz"), 144), "climate", steps)
        return [globe, europe]

    def answer(self, results: Results) -> Verdict:
        parts, points, whole = [], [], []
        for condition in results.kinds("condition"):
            quartiles = {
                m: np.quantile(
                    results.pooled(condition=condition, model=m).errors["relative_l2"][:, 0], (0.25, 0.5, 0.75)
                )
                for m in self.models
            }
            ours = quartiles.pop("LOCA")
            lowest = all(ours[1] < q[1] for q in quartiles.values())
            tightest = all(ours[2] - ours[0] < q[2] - q[0] for q in quartiles.values())
            points.append(lowest + tightest)
            whole.append(lowest and tightest)
            skills = ", ".join(
                f"{m} {np.mean([r.report.overall_skill() for r in results.select(condition=condition, model=m)]):.2f}"
                for m in self.models
            )
            parts.append(f"{condition}: {points[-1]} of 2 points, skill against climatology {skills}")
        answer = "holds" if all(whole) else "holds in part" if any(whole) or min(points) >= 1 else "fails"
        return Verdict(answer, f"{'; '.join(parts)}.")

    def columns(self, results: Results) -> list[str]:
        return ["error", "climatology's", "skill against it"]

    def cells(self, rows: Sequence[Row]) -> list[str]:
        baseline = rows[0].report.baseline
        assert baseline is not None
        skills = [row.report.overall_skill() for row in rows]
        spread = f" ± {np.std(skills, ddof=1):.3f}" if len(skills) > 1 else ""
        return [
            percent([row.mean() for row in rows]),
            percent([float(baseline["relative_l2"].mean())]),
            f"{np.mean(skills):.3f}{spread}",
        ]

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return boxes(Results.from_json(numbers["rows"]))
