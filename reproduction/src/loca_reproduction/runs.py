"""Many training runs, each carried out once, by one process or several."""

from __future__ import annotations

import dataclasses
import functools
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import jax
import numpy as np

import loca
from loca.attention import Uncoupled
from loca.evaluation import Report
from loca.models import Operator, Proportional, Regression
from loca.parameters import count
from loca.typing import Key
from loca_reproduction.machine import write
from loca_reproduction.settings import SETTINGS, Setting
from loca_reproduction.sources import DataSource, RunData, digest

MODEL_FILE = "model.safetensors"
"""The model of a run directory."""

COMPONENTS, STRENGTHS = (10, 40, 150), (1e-6, 1e-4, 1e-2, 1.0)
"""The numbers of components and the penalties from which ridge regression is chosen."""


def without_coupling(setting: Setting, data: loca.Samples, *, key: Key) -> Operator:
    """LOCA with φ = softmax(g(q(y))): the paper defines this ablation only in the table that reports it."""
    return dataclasses.replace(setting.loca(data, key=key), attention=Uncoupled())


LEARNED: dict[str, Callable[..., Operator]] = {
    "LOCA": Setting.loca,
    "LOCA without coupling": without_coupling,
    "DeepONet": Setting.deeponet,
    "FNO": Setting.fno,
}
"""Trained models by their names in tables; each is created from a setting, data and a key."""


def ridge(data: RunData) -> Operator:
    """Ridge regression; validation functions choose the number of components and the penalty."""
    most = min(len(data.train), np.size(np.asarray(data.train.u)) // len(data.train))
    possible = [k for k in COMPONENTS if k <= most] or [most]
    models = Regression.fits(data.train, possible, STRENGTHS)
    return min(models, key=lambda model: mean_error(model, data.validation))


BASELINES: dict[str, Callable[[RunData], Operator]] = {
    "mean field": lambda data: Regression.fit(data.train, components=0),
    "ridge": ridge,
    "s = c·u": lambda data: Proportional.fit(data.train),
}
"""Models that need no training, by their names in tables: the first is the mean of the training outputs."""


def mean_error(model: Operator, data: loca.Samples) -> float:
    """The mean relative L2 error over functions and channels."""
    return float(loca.evaluate(model, data, metrics=["relative_l2"]).errors["relative_l2"].mean())


@dataclasses.dataclass(frozen=True, eq=False)
class RunResult:
    """What a run measured.

    **Arguments:**

    - `parameters`: the number of learned parameters; a complex one counts as two.
    - `validation`: the mean relative L2 error on validation functions, by which learning rates are chosen.
    - `seconds`: the duration of training, with checkpoints.
    - `reports`: the errors on each set of test functions, by name.
    """

    parameters: int
    validation: float
    seconds: float
    reports: Mapping[str, Report]

    def to_json(self) -> dict[str, Any]:
        """The result as JSON content."""
        return {**vars(self), "reports": {name: report.to_json() for name, report in self.reports.items()}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunResult:
        """The result that `to_json` described."""
        reports = {name: Report.from_json(report) for name, report in content["reports"].items()}
        return cls(**{**content, "reports": reports})


@dataclasses.dataclass(frozen=True)
class Run:
    """A model, its data and its training, at the sizes of one of the paper's settings.

    The seed determines the functions and their labels, the initial weights and the order of batches.

    **Arguments:**

    - `model`: a name in `LEARNED` or `BASELINES`.
    - `source`: the functions.
    - `setting`: the name of the setting in `SETTINGS`.
    - `seed`: what all random choices depend on.
    - `steps`, `rate`, `batch_size`: the training settings; 0 for a baseline.
    - `metrics`: the errors to measure on test functions.
    """

    model: str
    source: DataSource
    setting: str
    seed: int
    steps: int = 0
    rate: float = 0.0
    batch_size: int = 0
    metrics: tuple[str, ...] = ("relative_l2",)

    @property
    def key(self) -> dict[str, Any]:
        """Everything the trained model depends on, as JSON content."""
        return {
            "model": self.model,
            "data": self.source.key,
            "setting": self.setting,
            "seed": self.seed,
            "steps": self.steps,
            "rate": self.rate,
            "batch size": self.batch_size,
        }

    @property
    def name(self) -> str:
        """The name of the run directory: readable, and different for runs that train differently."""
        words = [self.model, f"seed {self.seed}", digest(self.key)]
        return "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words)

    def execute(self, directory: Path, cache: Path) -> RunResult:
        """Train, evaluate and save the model in a run directory; `cache` is a directory for expensive data.

        Killed at any moment, the same call resumes training and ends in the same model.
        """
        data, seconds = self.source.load(self.seed, cache), 0.0
        if self.model in BASELINES:
            model = BASELINES[self.model](data)
        else:
            key = jax.random.fold_in(jax.random.key(self.seed), 1)
            model, history = loca.fit(
                LEARNED[self.model](SETTINGS[self.setting], data.train, key=key),
                data.train,
                steps=self.steps,
                optimizer=loca.training.default_optimizer(self.steps, rate=self.rate),
                loss=loca.losses.mean_squared,
                batch_size=min(self.batch_size, len(data.train)),
                seed=self.seed,
                every=self.steps,
                recover=False,  # as the models that the claims were judged on
                progress=False,
                directory=directory,
            )
            seconds = history.moments[-1].seconds
        reports = {
            name: loca.evaluate(model, test, metrics=self.metrics, weights=data.weights, reference=data.reference)
            for name, test in data.tests.items()
        }
        loca.save(model, directory / MODEL_FILE, data=data.train, provenance=self.key)
        return RunResult(count(model), mean_error(model, data.validation), seconds, reports)


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
        different = list(dict.fromkeys(runs))
        if self.workers == 1:
            done = ((run, result_of(self.directory, run)) for run in different)
        else:
            done = in_processes(functools.partial(result_of, self.directory), different, self.workers)
        for number, (run, result) in enumerate(done, 1):
            report = f"{number}/{len(different)} {run.model}, seed {run.seed}, rate {run.rate:g}"
            self.report(f"{report}: {result.validation:.4f}")
        return {run: result_of(self.directory, run) for run in runs}

    def model(self, run: Run) -> Operator:
        """The trained model of a finished run."""
        return loca.load(self.directory / "runs" / run.name / MODEL_FILE)


def result_of(pool: Path, run: Run) -> RunResult:
    """The result of a run in the directory of a pool, which is carried out first if necessary."""
    directory = pool / "runs" / run.name
    file = directory / f"outcome-{'-'.join(run.metrics)}.json"
    if not file.exists():
        directory.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(run.execute(directory, pool / "data").to_json(), allow_nan=False))
    return RunResult.from_json(json.loads(file.read_text()))


# ---- several processes -----------------------------------------------------------------------------------------------

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NPROC": "1"}
"""Environment variables that limit each process to one thread; NPROC is the number of threads of XLA."""


def in_processes(
    work: Callable[[Run], RunResult], runs: Sequence[Run], workers: int
) -> Iterator[tuple[Run, RunResult]]:
    """Carry out all runs in new processes, and yield each with its result when it is complete."""
    # JAX has threads, and a forked process would inherit the locks they hold: spawn instead
    context = multiprocessing.get_context("spawn")
    missing = {name: value for name, value in ONE_THREAD.items() if name not in os.environ}
    os.environ.update(missing)  # libraries read it when they are loaded
    try:
        with ProcessPoolExecutor(workers, context, initializer=follow_parent) as pool:
            futures = {pool.submit(work, run): run for run in runs}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BrokenProcessPool as error:
                raise RuntimeError(
                    "a worker process was killed or out of memory; finished runs are kept: continue with --resume, "
                    "perhaps with fewer --workers"
                ) from error
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        for name in missing:
            del os.environ[name]


def follow_parent() -> None:
    """End this process when its parent has ended for any reason; leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
