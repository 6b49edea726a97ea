"""Many runs, each carried out once, by one process or several."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from loca.configuration import TrainingConfiguration
from loca.durable import write_atomically
from loca.models import SETTINGS, Operator
from loca.runs.execution import BASELINES, LEARNED, MODEL_FILE, RunResult, train_and_evaluate
from loca.runs.sources import DataSource
from loca.saving import load
from loca.workers import run_tasks


@dataclasses.dataclass(frozen=True)
class Run:
    """A model, its data and its training, at the sizes of one of the paper's settings.

    The seed determines the functions and their labels, the initial weights and the order of batches.

    **Arguments:**

    - `model`: a name in `LEARNED` or `BASELINES`.
    - `source`: the functions.
    - `setting`: the name of the setting in `loca.models.SETTINGS`.
    - `seed`: what all random choices depend on.
    - `steps`, `rate`, `batch_size`: the training settings; 0 for a baseline.
    - `metrics`: the errors to measure on test functions.
    """

    # The names of the class and of its fields are part of the names of run directories.
    model: str
    source: DataSource
    setting: str
    seed: int
    steps: int = 0
    rate: float = 0.0
    batch_size: int = 0
    metrics: tuple[str, ...] = ("relative_l2",)

    @property
    def description(self) -> dict[str, Any]:
        """Everything the trained model depends on, as JSON content: all fields except `metrics`."""
        return {name: value for name, value in describe(self).items() if name != "metrics"}

    @property
    def name(self) -> str:
        """The name of the run directory: readable, and different for runs that train differently."""
        digest = hashlib.sha256(json.dumps(self.description, sort_keys=True).encode()).hexdigest()[:10]
        words = [self.model, f"seed {self.seed}", digest]
        return "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)

    def execute(self, directory: Path, cache: Path) -> RunResult:
        """Carry out the run in a run directory; `cache` is a directory for expensive data."""
        data = self.source.load(self.seed, cache)
        if self.model in BASELINES:
            model, training = BASELINES[self.model](data), None
        else:
            key = jax.random.fold_in(jax.random.key(self.seed), 1)
            model = LEARNED[self.model](SETTINGS[self.setting], data.example, key=key)
            training = TrainingConfiguration(
                steps=self.steps, rate=self.rate, batch_size=self.batch_size, seed=self.seed, every=self.steps
            )
        return train_and_evaluate(
            model,
            data,
            directory,
            training=training,
            provenance=self.description,
            metrics=self.metrics,
            track_validation=False,
            recover=False,  # as the models that the claims were judged on
        )


@dataclasses.dataclass(frozen=True)
class RunPool:
    """A directory of runs, and the processes that carry them out.

    Each run is carried out once, whoever needs it, and resumes if it was killed.

    **Arguments:**

    - `directory`: where all runs and their data are kept.
    - `workers`: the number of processes that train at the same time.
    - `report`: called with a line of text whenever a run is finished.
    """

    directory: Path
    workers: int = 1
    report: Callable[[str], object] = lambda line: None

    def run_all(self, runs: Sequence[Run]) -> dict[Run, RunResult]:
        """Carry out all runs that are not finished yet, and return the results of all."""
        for source in dict.fromkeys(run.source for run in runs):
            source.prepare(self.directory / "data")
        different = list(dict.fromkeys(runs))
        work = functools.partial(result_of, self.directory)
        for done, run in enumerate(run_tasks(work, different, workers=self.workers), 1):
            error = self.result(run).validation
            self.report(f"{done}/{len(different)} {run.model}, seed {run.seed}, rate {run.rate:g}: {error:.4f}")
        return {run: self.result(run) for run in runs}

    def result(self, run: Run) -> RunResult:
        """The result of a run, which is carried out first if necessary."""
        return result_of(self.directory, run)

    def model(self, run: Run) -> Operator:
        """The trained model of a finished run."""
        return load(self.directory / "runs" / run.name / MODEL_FILE)


def result_of(pool: Path, run: Run) -> RunResult:
    """The result of a run in the directory of a pool, which is carried out first if necessary."""
    directory = pool / "runs" / run.name
    file = directory / f"outcome-{'-'.join(run.metrics)}.json"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(run.execute(directory, pool / "data").to_json(), allow_nan=False)
        write_atomically(file, lambda out: out.write(text.encode()))
    return RunResult.from_json(json.loads(file.read_text()))


def describe(value: Any) -> Any:
    """A dataclass with everything it holds, as JSON content."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [describe(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def commit() -> str:
    """The commit of the source code, marked if files have changed since; "unknown" without version control."""
    line = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=, with changes"]
    found = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return found.stdout.strip() or "unknown"


def hardware() -> str:
    """The number of cores, and the name of the processor where the system provides it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {name}"
