"""Models trained side by side, in several conditions and with several seeds, and how long each of them trains.

The numbers of steps and the batch sizes were fixed by what a step takes on two cores, before any test error was known.
FNO is slower than anything else. In the paper, too, it has a quarter of LOCA's steps on Darcy flow, a tenth on
antiderivatives and climate, and a twentieth on shallow water. Here it has smaller batches instead, which are faster per
function, and about half of the steps or more. That gives it as much time as LOCA or several times more. Where there was
no time for that, the file of the claim says so.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loca_reproduction.claims.claim import Claim, Finding, Preset, Verdict
from loca_reproduction.claims.results import Example, Results, Row
from loca_reproduction.runs import BASELINES, Run, RunPool, result_of
from loca_reproduction.sources import DataSource

QUICK_STEPS: Mapping[str, Mapping[str, int]] = {
    "antiderivative": {"LOCA": 40, "DeepONet": 40, "FNO": 4},
    "darcy": {"LOCA": 40, "LOCA without coupling": 40, "DeepONet": 40, "FNO": 4},
    "mechanical-mnist": {"LOCA": 40, "DeepONet": 40, "FNO": 4},
    "shallow-water": {"LOCA": 4, "DeepONet": 8, "FNO": 2},
    "climate": {"LOCA": 20, "DeepONet": 20, "FNO": 4},
}
"""Steps by setting and model of the preset `quick`."""

PAPER_STEPS: Mapping[str, Mapping[str, int]] = {
    "antiderivative": {"LOCA": 5000, "DeepONet": 5000, "FNO": 3000},
    "darcy": {"LOCA": 5000, "LOCA without coupling": 5000, "DeepONet": 5000, "FNO": 3000},
    "mechanical-mnist": {"LOCA": 1700, "DeepONet": 4000, "FNO": 1200},
    "shallow-water": {"LOCA": 1750, "DeepONet": 3200, "FNO": 850},
    "climate": {"LOCA": 3000, "DeepONet": 5000, "FNO": 3000},
}
"""Steps by setting and model of the preset `paper`: half a minute to ten minutes for each model.

On shallow water and Mechanical MNIST all models have about the same time on one core: ten and five minutes.
"""

BATCH_SIZE = 100
FNO_BATCH_SIZES = {"antiderivative": 10, "darcy": 25, "mechanical-mnist": 25, "shallow-water": 10, "climate": 10}
"""Functions in a batch, of FNO by setting."""

RATES = (1e-3, 4e-3, 1.6e-2)
"""Learning rates from which that of every model is chosen on validation functions."""


def steps_of(preset: Preset, setting: str) -> Mapping[str, int]:
    """The number of training steps by model."""
    return (QUICK_STEPS if preset == "quick" else PAPER_STEPS)[setting]


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition in which all models are compared.

    **Arguments:**

    - `name`: the name in tables; conditions with the same name differ in `value`.
    - `source`: the functions.
    - `setting`: the experiment of the paper whose sizes the models have.
    - `steps`: the number of training steps of every model, or by model.
    - `value`: the number that is varied, if any.
    - `chooses`: whether its validation functions choose the learning rates of all conditions with its name.
    - `rates_of`: the name of the conditions from which learning rates are taken, if it is another name.
    """

    name: str
    source: DataSource
    setting: str
    steps: int | Mapping[str, int]
    value: float | None = None
    chooses: bool = True
    rates_of: str = ""

    def run(self, model: str, seed: int, rate: float, metrics: tuple[str, ...]) -> Run:
        """The run of one model in this condition."""
        if model in BASELINES:
            return Run(model, self.source, self.setting, seed, metrics=metrics)
        steps = self.steps if isinstance(self.steps, int) else self.steps[model]
        batch_size = FNO_BATCH_SIZES[self.setting] if model == "FNO" else BATCH_SIZE
        return Run(model, self.source, self.setting, seed, steps, rate, batch_size, metrics)


class Comparison(Claim):
    """A claim about the errors of models that are trained side by side.

    The learning rate of every trained model is chosen from the same few by its error on validation functions, with the
    first seed. Errors on test functions choose nothing.
    """

    models: Sequence[str] = ("LOCA", "DeepONet", "FNO")
    baselines: Sequence[str] = ("ridge", "mean field")
    metrics: tuple[str, ...] = ("relative_l2",)
    shows_fields: bool = False
    """Whether to keep the predictions of all models for one test function."""
    varied: str = ""
    """What the `value` of a condition is, for tables and figures."""
    seeds: Mapping[Preset, int] = {"quick": 1, "paper": 3}
    rates: Mapping[Preset, Sequence[float]] = {"quick": (4e-3,), "paper": RATES}

    @abc.abstractmethod
    def conditions(self, preset: Preset) -> Sequence[Condition]:
        """The conditions in which models are compared."""

    @abc.abstractmethod
    def answer(self, results: Results) -> Verdict:
        """Apply the rule to the errors."""

    def measure(self, preset: Preset, seeds: int | None, pool: RunPool) -> Finding:
        conditions, rates = self.conditions(preset), self.rates[preset]
        numbers = range(seeds if seeds is not None else self.seeds[preset])

        def run_of(condition: Condition, model: str, seed: int, rate: float) -> Run:
            return condition.run(model, seed, rate, self.metrics)

        choosing = [condition for condition in conditions if condition.chooses]
        tried = pool.run_all([run_of(c, m, 0, rate) for c in choosing for m in self.models for rate in rates])
        best = {
            (condition.name, model): min(rates, key=lambda r: tried[run_of(condition, model, 0, r)].validation)
            for condition in choosing
            for model in self.models
        }
        chosen = [
            (condition, run_of(condition, model, seed, best.get((condition.rates_of or condition.name, model), 0.0)))
            for condition in conditions
            for model in (*self.models, *self.baselines)
            for seed in numbers
        ]
        results = pool.run_all([run for _, run in chosen])
        rows = [row for c, run in chosen for row in Row.of(c.name, c.value, run, results[run])]
        seconds = {
            run_name(c.name, c.value, run.model, run.seed): results[run].seconds for c, run in chosen if run.steps
        }
        example = self.example(conditions[0], chosen, pool)
        return Finding({"rows": Results(tuple(rows)).to_json(), **example}, seconds)

    def example(self, condition: Condition, chosen: Sequence[tuple[Condition, Run]], pool: RunPool) -> dict[str, Any]:
        """If fields are shown: predictions for a function of the last test set.

        It is the function on which the first model has its median error.
        """
        if not self.shows_fields:
            return {}
        runs = {run.model: run for c, run in chosen if c is condition and run.seed == 0 and run.model in self.models}
        name, test = list(condition.source.load(0, pool.directory / "data").tests.items())[-1]
        errors = result_of(pool.directory, runs[self.models[0]]).reports[name].errors["relative_l2"].mean(axis=1)
        typical = int(np.argsort(errors)[len(errors) // 2])
        models = {model: pool.model(run) for model, run in runs.items()}
        return {"example": Example.of(models, test, typical).to_json()}

    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        return self.answer(Results.from_json(numbers["rows"]))

    def table(self, finding: Finding) -> list[list[str]]:
        results = Results.from_json(finding.numbers["rows"])
        groups: dict[tuple[str, float | None, str], list[Row]] = {}
        for row in results.rows:
            groups.setdefault((row.condition, row.value, row.model), []).append(row)
        training = ["parameters", "steps × batch", "rate", "minutes"]
        table = [["condition", self.varied, "model", *self.columns(results), *training]]
        for (condition, value, model), rows in groups.items():
            first, trained = rows[0], [""] * len(training)
            if first.steps:
                seconds = [finding.seconds[run_name(condition, value, model, row.seed)] for row in rows]
                minutes = np.median(seconds) / 60.0  # a run that was suspended has counted that time, too
                steps = f"{first.steps:,} × {first.batch_size}"
                trained = [f"{first.parameters:,}", steps, f"{first.rate:g}", f"{minutes:.1f}"]
            table.append([condition, "" if value is None else f"{value:g}", model, *self.cells(rows), *trained])
        kept = [i for i, header in enumerate(table[0]) if header]
        return [[row[i] for i in kept] for row in table]

    def columns(self, results: Results) -> list[str]:
        """Headers of the last columns: the error on each set of test functions."""
        return [f"error, {test}" if len(results.kinds("test")) > 1 else "error" for test in results.kinds("test")]

    def cells(self, rows: Sequence[Row]) -> list[str]:
        """The last columns for one model in one condition; `rows` has one entry for each seed and test."""
        tests = dict.fromkeys(row.test for row in rows)
        return [percent([row.mean() for row in rows if row.test == test]) for test in tests]


def run_name(condition: str, value: float | None, model: str, seed: int) -> str:
    """The name of a run among the seconds of a finding."""
    return f"{condition}{'' if value is None else f' {value:g}'}, {model}, seed {seed}"


def percent(values: Sequence[float] | np.ndarray) -> str:
    """Mean ± standard deviation over seeds, in percent."""
    mean, deviation = 100.0 * float(np.mean(values)), 100.0 * float(np.std(values, ddof=1)) if len(values) > 1 else None
    digits = max(0, 2 - int(np.floor(np.log10(abs(mean) or 1.0))))
    return f"{mean:.{digits}f} %" if deviation is None else f"{mean:.{digits}f} ± {deviation:.{digits}f} %"
