"""R1: with few labels the coupling of queries makes the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loca.claims.budgets import steps_of
from loca.claims.claim import Preset, Verdict
from loca.claims.comparison import Comparison, Condition, spread_text
from loca.claims.drawing import boxes
from loca.claims.results import Results
from loca.claims.sources import Drawn
from loca.problems import Darcy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTOR = 10.0
"""The paper's factor is 27."""


class Coupling(Comparison):
    """Coupling matters when labels are few."""

    name = "R1"
    paper = (
        "Darcy flow, 200 functions with 1.5 % of labels: mean error 0.017 (largest 0.041) with coupling, "
        "0.463 (3.023) without (table 1)."
    )
    rule = (
        f"Holds if the mean error without coupling is at least {FACTOR:g} times that with it, on both input measures; "
        "in part if it is larger for every seed on one of them."
    )
    models = ("LOCA", "LOCA without coupling", "DeepONet", "FNO")
    seeds: Mapping[Preset, int] = {"quick": 1, "paper": 5}

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        steps, test = steps_of(preset, "darcy"), 100 if preset == "quick" else 1000
        return [
            Condition(measure, Drawn(Darcy(resolution=32, preset=measure), 200, labels=16, test=test), "darcy", steps)
            for measure in ("easy", "literal")[: 1 if preset == "quick" else 2]
        ]

    def answer(self, results: Results) -> Verdict:
        told, factors, always = [], [], []
        for condition in results.kinds("condition"):
            coupled = results.means(condition=condition, model="LOCA")
            alone = results.means(condition=condition, model="LOCA without coupling")
            told.append(f"{spread_text(coupled)} with and {spread_text(alone)} without ({condition})")
            factors.append(alone.mean() / coupled.mean())
            always.append(bool((alone > coupled).all()))
        answer = "holds" if min(factors) >= FACTOR else "holds in part" if any(always) else "fails"
        return Verdict(answer, f"Error {' and '.join(told)}: {', '.join(f'{f:.2f}' for f in factors)} times as large.")

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return boxes(Results.from_json(numbers["rows"]))
