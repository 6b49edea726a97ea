"""A claim small enough to be tested again and again, as a program that can be killed."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from loca.problems import Antiderivative
from loca_reproduction.claims import Comparison, Condition, Preset, Results, Verdict, reproduce
from loca_reproduction.claims.results import boxes
from loca_reproduction.runs import RunPool
from loca_reproduction.sources import Drawn


class Small(Comparison):
    """DeepONet is better than the mean field."""

    name = "R0"
    paper = "nothing of the kind."
    rule = "Holds if it is."
    models = ("DeepONet",)
    shows_fields = True
    seeds: Mapping[Preset, int] = {"quick": 2, "paper": 2}
    rates: Mapping[Preset, Sequence[float]] = {"quick": (1e-3, 8e-3), "paper": (1e-3, 8e-3)}

    def conditions(self, preset: Preset) -> Sequence[Condition]:
        problem = Antiderivative(length=0.3, sensors=100, queries=20)
        return [Condition("one", Drawn(problem, 60, labels=10, validation=20, test=20), "antiderivative", 100)]

    def answer(self, results: Results) -> Verdict:
        ours, other = (results.means(model=model).mean() for model in ("DeepONet", "mean field"))
        return Verdict("holds" if ours < other else "fails", f"{ours:.3f} against {other:.3f}.")

    def figure(self, numbers):
        return boxes(Results.from_json(numbers["rows"]))


def reproduce_small(directory: Path, workers: int = 1):
    return reproduce(Small(), "quick", RunPool(directory, workers), directory / "R0-quick")


if __name__ == "__main__":
    reproduce_small(Path(sys.argv[1]))
