"""One model trained and tested: everything it depends on, and what came of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from loca.attention import Uncoupled
from loca.claims.sources import Functions, Source
from loca.data import Samples
from loca.durable import write_atomically
from loca.evaluation import Report, evaluate
from loca.models import SETTINGS, Operator, Proportional, Regression, Setting
from loca.parameters import count
from loca.saving import load, save
from loca.training import default_optimizer, fit
from loca.typing import Key

COMPONENTS, STRENGTHS = (10, 40, 150), (1e-6, 1e-4, 1e-2, 1.0)
"""What ridge regression is chosen from, on validation functions."""


def without_coupling(setting: Setting, data: Samples, *, key: Key) -> Operator:
    """φ = softmax(g(q(y))): the paper's table of that ablation defines it nowhere else."""
    return dataclasses.replace(setting.loca(data, key=key), attention=Uncoupled())


LEARNED: dict[str, Callable[..., Operator]] = {
    "LOCA": Setting.loca,
    "LOCA without coupling": without_coupling,
    "DeepONet": Setting.deeponet,
    "FNO": Setting.fno,
}
"""Models by the names that tables use, from a setting, data and a key."""


def mean_field(functions: Functions) -> Operator:
    """The same field for every input."""
    return Regression.fit(functions.train, components=0)


def ridge(functions: Functions) -> Operator:
    """Ridge regression with the number of components and the penalty that validation functions like best."""
    train = functions.train
    possible = [k for k in COMPONENTS if k <= min(len(train), train.u.shape[1] * train.input_size)]  # pyright: ignore[reportAttributeAccessIssue]
    choices = [Regression.fit(train, k, strength) for k in possible for strength in STRENGTHS]
    return min(choices, key=lambda model: mean_error(model, functions.validation))


def proportional(functions: Functions) -> Operator:
    """s = c·u."""
    return Proportional.fit(functions.train)


GIVEN: dict[str, Callable[[Functions], Operator]] = {
    "mean field": mean_field,
    "ridge": ridge,
    "s = c·u": proportional,
}
"""Answers that need no training."""


def mean_error(model: Operator, data: Samples) -> float:
    """The mean relative L2 error over functions and channels."""
    return float(evaluate(model, data, metrics=["relative_l2"]).errors["relative_l2"].mean())


@dataclasses.dataclass(frozen=True)
class Run:
    """A model, what it is trained on, and for how long; letters and sizes are those of a setting of the paper.

    A seed decides the functions and their labels, the first weights and the order of batches.
    """

    model: str
    source: Source
    setting: str
    seed: int
    steps: int = 0
    rate: float = 0.0
    batch_size: int = 0
    metrics: tuple[str, ...] = ("relative_l2",)

    @property
    def training(self) -> dict[str, Any]:
        """All that the model depends on: not what is then measured."""
        return {name: value for name, value in described(self).items() if name != "metrics"}

    @property
    def name(self) -> str:
        """Of its directory: readable, and another for everything that is another training."""
        digest = hashlib.sha256(json.dumps(self.training, sort_keys=True).encode()).hexdigest()[:10]
        words = [self.model, f"seed {self.seed}", digest]
        return "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a run.

    **Arguments:**

    - `parameters`: learned numbers, a complex one counted as two.
    - `validation`: mean relative L2 error on validation functions, by which rates are chosen.
    - `seconds`: of training, with validation and checkpoints.
    - `reports`: by the names of the tests.
    """

    parameters: int
    validation: float
    seconds: float
    reports: Mapping[str, Report]

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**vars(self), "reports": {name: report.to_json() for name, report in self.reports.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Outcome:
        """What `to_json` gave."""
        reports = {name: Report.from_json(report) for name, report in content["reports"].items()}
        return cls(**{**content, "reports": reports})


@dataclasses.dataclass(frozen=True)
class Runs:
    """A directory of runs: each model is trained once, and training goes on where it was if it was killed."""

    directory: Path

    def __call__(self, run: Run) -> Outcome:
        """What came of a run, which is done now unless it was before."""
        directory = self.directory / "runs" / run.name
        told = directory / f"outcome-{'-'.join(run.metrics)}.json"
        if not told.exists():
            directory.mkdir(parents=True, exist_ok=True)
            outcome = carry_out(run, directory, self.directory / "data")
            text = json.dumps(outcome.to_json(), allow_nan=False)
            write_atomically(told, lambda file: file.write(text.encode()))
        return Outcome.from_json(json.loads(told.read_text()))

    def model(self, run: Run) -> Operator:
        """What a run has trained."""
        return load(self.directory / "runs" / run.name / "model.safetensors")


def carry_out(run: Run, directory: Path, keep: Path) -> Outcome:
    """Train, unless there is nothing to train; save; and test."""
    functions = run.source.load(run.seed, keep)
    seconds = 0.0
    if run.model in GIVEN:
        model = GIVEN[run.model](functions)
    else:
        key = jax.random.fold_in(jax.random.key(run.seed), 1)
        model, history = fit(
            LEARNED[run.model](SETTINGS[run.setting], functions.train, key=key),
            functions.train,
            steps=run.steps,
            optimizer=default_optimizer(run.steps, run.rate),
            batch_size=min(run.batch_size, len(functions.train)),
            seed=run.seed,
            every=run.steps,
            directory=directory,
        )
        seconds = history.moments[-1].seconds
    save(model, directory / "model.safetensors", data=functions.train, provenance=run.training)
    reports = {
        name: evaluate(model, test, metrics=run.metrics, weights=functions.weights, reference=functions.reference)
        for name, test in functions.tests.items()
    }
    return Outcome(count(model), mean_error(model, functions.validation), seconds, reports)


def described(value: Any) -> Any:
    """A dataclass with all that it holds, as JSON can hold it."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: described(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [described(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
