"""Models trained side by side, in some conditions, with several seeds."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loca.claims.budgets import batch_of
from loca.claims.claim import Claim, Finding, Preset, Verdict
from loca.claims.example import Example
from loca.claims.results import Results, Row
from loca.claims.runs import GIVEN, Run, Runs
from loca.claims.sources import Source
from loca.claims.workshop import Workshop

RATES = (1e-3, 4e-3, 1.6e-2)
"""Learning rates from which every model's is chosen on validation functions."""


@dataclasses.dataclass(frozen=True)
class Condition:
    """One circumstance in which all models are compared.

    **Arguments:**

    - `name`: in tables; conditions of one name differ in a `value`.
    - `source`: the functions.
    - `setting`: the experiment whose sizes the models have.
    - `steps`: of every model, or by its name.
    - `value`: the number that is varied, if one is.
    - `chooses`: whether its validation functions choose the rates, for all conditions of its name.
    - `rates_of`: the name of the conditions whose rates it has, if that is another.
    """

    name: str
    source: Source
    setting: str
    steps: int | Mapping[str, int]
    value: float | None = None
    chooses: bool = True
    rates_of: str = ""

    def run(self, model: str, seed: int, rate: float, metrics: tuple[str, ...]) -> Run:
        """One model in this condition."""
        if model in GIVEN:
            return Run(model, self.source, self.setting, seed, metrics=metrics)
        steps = self.steps if isinstance(self.steps, int) else self.steps[model]
        batch_size = batch_of(model, self.setting)
        return Run(model, self.source, self.setting, seed, steps, rate, batch_size, metrics)


class Comparison(Claim):
    """A claim about errors of models that are trained side by side.

    Every learned model has its rate chosen from the same few by its error on validation functions, with the first
    seed; errors on test functions decide nothing.
    """

    models: Sequence[str] = ("LOCA", "DeepONet", "FNO")
    given: Sequence[str] = ("ridge", "mean field")
    metrics: tuple[str, ...] = ("relative_l2",)
    shows_fields: bool = False
    """Whether what the models answer to one test function is kept."""
    varied: str = ""
    """What the value of a condition is, for tables and figures."""
    seeds: Mapping[Preset, int] = {"quick": 1, "paper": 3}
    rates: Mapping[Preset, Sequence[float]] = {"quick": (4e-3,), "paper": RATES}

    @abc.abstractmethod
    def conditions(self, preset: Preset) -> Sequence[Condition]:
        """In what circumstances."""

    @abc.abstractmethod
    def answer(self, results: Results) -> Verdict:
        """The rule, applied to errors."""

    def measure(self, preset: Preset, seeds: int | None, workshop: Workshop) -> Finding:
        conditions, rates = self.conditions(preset), self.rates[preset]
        numbers = range(seeds if seeds is not None else self.seeds[preset])

        def ask(condition: Condition, model: str, seed: int, rate: float) -> Run:
            return condition.run(model, seed, rate, self.metrics)

        choosing = [condition for condition in conditions if condition.chooses]
        tried = workshop([ask(c, m, 0, rate) for c in choosing for m in self.models for rate in rates])
        best = {
            (condition.name, model): min(rates, key=lambda r: tried[ask(condition, model, 0, r)].validation)
            for condition in choosing
            for model in self.models
        }
        chosen = [
            (condition, ask(condition, model, seed, best.get((condition.rates_of or condition.name, model), 0.0)))
            for condition in conditions
            for model in (*self.models, *self.given)
            for seed in numbers
        ]
        outcomes = workshop([run for _, run in chosen])
        rows = [row for c, run in chosen for row in Row.of(c.name, c.value, run, outcomes[run])]
        seconds = {named(c.name, c.value, run.model, run.seed): outcomes[run].seconds for c, run in chosen if run.steps}
        example = self.example(conditions[0], chosen, workshop)
        return Finding({"rows": Results(tuple(rows)).to_json(), **example}, seconds)

    def example(
        self, condition: Condition, chosen: Sequence[tuple[Condition, Run]], workshop: Workshop
    ) -> dict[str, Any]:
        """If fields are shown: the models' answers to a function of the last test, of median error for the first."""
        if not self.shows_fields:
            return {}
        runs = {run.model: run for c, run in chosen if c is condition and run.seed == 0 and run.model in self.models}
        done = Runs(workshop.directory)
        name, test = list(condition.source.load(0, workshop.directory / "data").tests.items())[-1]
        errors = done(runs[self.models[0]]).reports[name].errors["relative_l2"].mean(axis=1)
        typical = int(np.argsort(errors)[len(errors) // 2])
        return {"example": Example.of({m: done.model(run) for m, run in runs.items()}, test, typical).to_json()}

    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        return self.answer(Results.from_json(numbers["rows"]))

    def table(self, finding: Finding) -> list[list[str]]:
        results = Results.from_json(finding.numbers["rows"])
        groups: dict[tuple[str, float | None, str], list[Row]] = {}
        for row in results.rows:
            groups.setdefault((row.condition, row.value, row.model), []).append(row)
        table = [
            [
                "condition",
                self.varied,
                "model",
                "parameters",
                "steps × batch",
                "rate",
                "minutes",
                *self.columns(results),
            ]
        ]
        for (condition, value, model), rows in groups.items():
            first, learned = rows[0], [""] * 4
            if first.steps:
                seconds = [finding.seconds[named(condition, value, model, row.seed)] for row in rows]
                minutes = np.median(seconds) / 60.0  # a run that was stopped for a while has counted that, too
                steps = f"{first.steps:,} × {first.batch_size}"
                learned = [f"{first.parameters:,}", steps, f"{first.rate:g}", f"{minutes:.1f}"]
            table.append([condition, "" if value is None else f"{value:g}", model, *learned, *self.cells(rows)])
        kept = [i for i, heading in enumerate(table[0]) if heading]
        return [[row[i] for i in kept] for row in table]

    def columns(self, results: Results) -> list[str]:
        """What is told of every model in every condition: the error on each test."""
        return [f"error, {test}" if len(results.kinds("test")) > 1 else "error" for test in results.kinds("test")]

    def cells(self, rows: Sequence[Row]) -> list[str]:
        """The errors of one model in one condition."""
        tests = dict.fromkeys(row.test for row in rows)
        return [spread_text([row.mean() for row in rows if row.test == test]) for test in tests]


def named(condition: str, value: float | None, model: str, seed: int) -> str:
    """One run among the seconds of a study."""
    return f"{condition}{'' if value is None else f' {value:g}'}, {model}, seed {seed}"


def spread_text(values: Sequence[float] | np.ndarray) -> str:
    """Mean ± standard deviation over seeds, in per cent."""
    mean, deviation = 100.0 * float(np.mean(values)), 100.0 * float(np.std(values, ddof=1)) if len(values) > 1 else None
    digits = max(0, 2 - int(np.floor(np.log10(abs(mean) or 1.0))))
    return f"{mean:.{digits}f} %" if deviation is None else f"{mean:.{digits}f} ± {deviation:.{digits}f} %"
