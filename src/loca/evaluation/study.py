"""Many evaluations side by side."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from loca.data import Samples
from loca.evaluation.evaluate import evaluate
from loca.evaluation.report import Report
from loca.evaluation.scenarios import Scenario
from loca.models import Operator
from loca.typing import Key

if TYPE_CHECKING:
    from rich.table import Table

Fit = Callable[[Samples, Key], Operator]
"""From training data and randomness to a trained operator."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One model in one scenario: what was varied, the seed of the model and of the scenario, and what came of it."""

    label: str
    value: float | None
    seed: int
    report: Report


@dataclasses.dataclass(frozen=True)
class Study:
    """All trials of some scenarios, in the order in which they were asked for."""

    trials: tuple[Trial, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """The scenarios."""
        return tuple(dict.fromkeys(trial.label for trial in self.trials))

    def reports(self, label: str) -> tuple[Report, ...]:
        """The reports of one scenario, one for each seed."""
        found = tuple(trial.report for trial in self.trials if trial.label == label)
        if not found:
            raise ValueError(f"there is no scenario {label!r}; there are {', '.join(self.labels)}")
        return found

    def points(self, metric: str = "relative_l2", channel: int | str = 0) -> list[dict[str, float]]:
        """One record per trial that varied a number: `value`, `seed`, and the mean of the metric under its own name.

        This is what `loca.figures.curves` draws with `x="value"` and `y=metric`.
        """
        return [
            {"value": trial.value, "seed": trial.seed, metric: trial.report.distribution(metric, channel).mean}
            for trial in self.trials
            if trial.value is not None
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all trials as JSON, without loss."""
        trials = [{**vars(trial), "report": trial.report.to_json()} for trial in self.trials]
        Path(path).write_text(json.dumps(trials, allow_nan=False, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Study:
        """Read a study that `save` wrote."""
        trials: list[Mapping[str, Any]] = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(tuple(Trial(**{**trial, "report": Report.from_json(trial["report"])}) for trial in trials))

    def __rich__(self) -> Table:
        """A table with one row per scenario and channel."""
        from loca.evaluation.tables import study_table

        return study_table(self)

    def __str__(self) -> str:
        from loca.evaluation.tables import plain

        return plain(self.__rich__())


def run(
    scenarios: Sequence[Scenario],
    build_and_fit: Fit,
    train: Samples,
    test: Samples,
    *,
    seeds: Sequence[int] = (0,),
    **options: Any,
) -> Study:
    """Train and evaluate a model in every scenario with every seed.

    A seed stands for the same initial model in all scenarios. Scenarios that leave the training data alone share one
    model per seed, which is trained once.

    **Arguments:**

    - `scenarios`: what to change about the data.
    - `build_and_fit`: makes and trains a model.
    - `train`, `test`: the data.
    - `seeds`: of models, and of what a scenario draws.
    - `options`: of `evaluate`.
    """
    trials: dict[tuple[int, int], Trial] = {}
    for seed in seeds:  # outermost, so that only one shared model is kept at a time
        train_key, test_key, model_key = jax.random.split(jax.random.key(seed), 3)
        shared: Operator | None = None
        for i, scenario in enumerate(scenarios):
            seen = scenario.train(train, train_key)
            if seen is train:
                model = shared = build_and_fit(train, model_key) if shared is None else shared
            else:
                model = build_and_fit(seen, model_key)
            report = evaluate(model, scenario.test(test, test_key), **options)
            trials[i, seed] = Trial(scenario.label, scenario.value, seed, report)
    return Study(tuple(trials[i, seed] for i in range(len(scenarios)) for seed in seeds))
