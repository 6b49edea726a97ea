"""`choose`: models compete on validation functions within a time budget."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from loca.data import Samples, check_finite
from loca.durable import is_started, lock, write_atomically, write_request
from loca.models import Operator, mean_error
from loca.saving import load, save
from loca.solving.competitors import COMPETITORS, Compete, NoResultError, Task, num_solved, refit
from loca.training import StoppedError, data_digest

HELD = 200
"""Validation functions, at most, if none are given; a fifth of the data if that is less."""

REPORT_FILE = "choice.json"
"""The file with the report, in the directory of a choice."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One model of a choice.

    **Arguments:**

    - `model`: its name.
    - `error`: the mean relative L2 error on the validation functions; None without a result.
    - `seconds`: that it took, including the choice of its settings.
    - `parameters`: the number of values that were trained or solved for.
    - `megabytes`: the size of all its arrays.
    - `settings`: what was chosen for it.
    - `reason`: why it has no result.
    """

    model: str
    error: float | None = None
    seconds: float = 0.0
    parameters: int = 0
    megabytes: float = 0.0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    reason: str = ""

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.model:<10}  {self.reason}"
        return (
            f"{self.model:<10} {100.0 * self.error:>10.4g} % {self.seconds:>9.1f} {self.parameters:>12,} "
            f"{self.megabytes:>9.2f}"
        )


HEADER = f"{'model':<10} {'error':>12} {'seconds':>9} {'parameters':>12} {'MB':>9}"


@dataclasses.dataclass(frozen=True)
class ChoiceReport:
    """The comparison of all models; prints as a table, the best model first.

    **Arguments:**

    - `entries`: the models in the order in which they competed.
    - `functions`, `validation`: the number of functions that the models were fitted to and compared on.
    """

    entries: tuple[Entry, ...]
    functions: int
    validation: int

    @property
    def ranking(self) -> tuple[Entry, ...]:
        """The models from the smallest error to the largest, and then those without a result."""
        return tuple(sorted(self.entries, key=lambda entry: math.inf if entry.error is None else entry.error))

    @property
    def winner(self) -> Entry:
        """The model with the smallest error; of equal ones the first, which is the cheapest."""
        return self.ranking[0]

    @property
    def seconds(self) -> float:
        """The time of all models together."""
        return sum(entry.seconds for entry in self.entries)

    def __str__(self) -> str:
        about = (
            f"mean relative L2 error on {self.validation} validation functions, from {self.functions} functions, "
            f"in {self.seconds:.0f} s"
        )
        return "\n".join([HEADER, *map(str, self.ranking), about])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON, atomically."""
        text = json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)
        write_atomically(Path(path), lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChoiceReport:
        """Read a report that `save` wrote."""
        content = json.loads(Path(path).read_bytes())
        return cls(**content | {"entries": tuple(Entry(**entry) for entry in content["entries"])})


def choose(
    train: Samples,
    *,
    minutes: float = 5.0,
    validation: Samples | None = None,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> tuple[Operator, ChoiceReport]:
    """Compare models on validation functions, and return the best.

    The mean field, ridge regression, the Gaussian operator, FNO, LOCA and DeepONet compete in this order. The first
    three take the time that they need, at most a few minutes; ridge regression and the Gaussian operator try transforms
    of variables. What is left is shared equally by those that are trained, with the transforms that were best for the
    Gaussian operator. Ridge regression and the mean field compete wherever they apply, so the result is never worse
    than they are on the validation functions.

    **Arguments:**

    - `train`: functions to fit models to.
    - `minutes`: the time budget.
    - `validation`: functions to compare models on. By default a fifth of `train` is held out for this, at most 200
      functions; if the best model is not a trained one, it is then fitted again to all functions.
    - `seed`: determines which functions are held out, and all initial weights and batches.
    - `directory`: keeps finished models and the report, `choice.json`. If the process is killed, the same call resumes.
      A directory that was made for other data is refused.
    - `progress`: print a line for every model, and its progress; by default in a terminal.

    **Returns:**

    The best operator and a report.
    """
    if not isinstance(train, Samples):
        raise TypeError(f"expected Samples, got {type(train).__name__}; load functions into memory: records.load()")
    if not minutes > 0.0 or len(train) < 2:
        raise ValueError(
            f"expected minutes > 0 and at least 2 functions, got minutes={minutes} and {len(train)} functions"
        )
    for samples, what in ((train, "the data"), (validation, "the validation data")):
        if samples is not None:
            check_finite(samples, what)
    fitted, held = (train, validation) if validation is not None else hold_out(train, seed)
    show = sys.stderr.isatty() if progress is None else progress
    with contextlib.ExitStack() as stack:
        place = None if directory is None else Path(directory)
        if place is not None:
            stack.enter_context(lock(place))
            request = {"data": data_digest(train), "minutes": minutes, "seed": seed}
            request["validation"] = None if validation is None else data_digest(validation)
            if not is_started(place, {"provenance": {}, **request}):
                write_request(place, {"provenance": {}, **request})
        contest = Contest(fitted, held, seed, place, show)
        budget = 60.0 * minutes
        for number, (name, compete) in enumerate(COMPETITORS.items()):
            left = budget - sum(entry.seconds for entry in contest.entries) - contest.refit_seconds(validation is None)
            contest.enter(name, compete, left / (len(COMPETITORS) - number))
        report = ChoiceReport(tuple(contest.entries), len(fitted), len(held))
        if report.winner.error is None:
            raise RuntimeError("no model has a result:\n" + "\n".join(map(str, report.entries)))
        operator = contest.operator(report.winner)
        if validation is None:
            operator = refit(operator, report.winner.settings, train, seed, show)
        if place is not None:
            report.save(place / REPORT_FILE)
    return operator, report


def hold_out(train: Samples, seed: int) -> tuple[Samples, Samples]:
    """Functions to fit models to, and functions to compare them on."""
    order = jax.random.permutation(jax.random.key(seed), len(train))
    held = min(HELD, max(1, len(train) // 5))
    return train.take(jnp.sort(order[held:])), train.take(jnp.sort(order[:held]))


class Contest:
    """The models so far. Of their operators only the best stays in memory; the others are in files, if at all."""

    def __init__(self, train: Samples, validation: Samples, seed: int, directory: Path | None, show: bool):
        self.train, self.validation, self.seed, self.directory, self.show = train, validation, seed, directory, show
        self.entries: list[Entry] = []
        self._best: tuple[Entry, Operator] | None = None

    @property
    def leader(self) -> Entry | None:
        """The best so far."""
        return min((e for e in self.entries if e.error is not None), key=lambda e: e.error or 0.0, default=None)

    def refit_seconds(self, is_held_out: bool) -> float:
        """The time to fit the best so far to all functions, which must be left in the end."""
        return self.leader.settings.get("refit_seconds", 0.0) if is_held_out and self.leader is not None else 0.0

    def enter(self, name: str, compete: Compete, seconds: float) -> None:
        """Let a model compete, unless it has done so before the process was killed."""
        place = None if self.directory is None else competitor_directory(self.directory, name)
        if place is not None and (place / "entry.json").exists():
            entry = Entry(**json.loads((place / "entry.json").read_bytes()))
        else:
            if place is not None:
                place.mkdir(parents=True, exist_ok=True)
            known = next((e.settings for e in self.entries if "hyperparameters" in e.settings), None)
            transforms = {} if known is None else dict(known["hyperparameters"]["transforms"])
            task = Task(self.train, self.validation, transforms, seconds, self.seed, self.show, place)
            entry = self._run(name, compete, task)
            if place is not None:
                text = json.dumps(dataclasses.asdict(entry), allow_nan=False)
                write_atomically(place / "entry.json", lambda file: file.write(text.encode()))
        if self.show:
            print(*([] if self.entries else [HEADER]), entry, sep="\n", file=sys.stderr)  # noqa: T201
        self.entries.append(entry)

    def _run(self, name: str, compete: Compete, task: Task) -> Entry:
        begun = time.perf_counter()
        try:
            operator, settings = compete(task)
            error = mean_error(operator, task.validation)
            if not math.isfinite(error):
                raise ArithmeticError("its error on the validation functions is not finite")
        except StoppedError:
            raise
        except NoResultError as problem:
            return Entry(name, seconds=time.perf_counter() - begun, reason=str(problem))
        except Exception as problem:  # noqa: BLE001  one model must not lose the others
            reason = f"failed: {type(problem).__name__}: {problem}".partition("\n")[0]
            return Entry(name, seconds=time.perf_counter() - begun, reason=reason)
        seconds = max(time.perf_counter() - begun, settings.pop("seconds", 0.0))
        megabytes = sum(leaf.nbytes for leaf in jax.tree.leaves(operator) if hasattr(leaf, "nbytes")) / 1e6
        entry = Entry(name, error, seconds, num_solved(operator), megabytes, settings)
        if task.directory is not None:
            save(operator, task.directory / "model.safetensors", data=task.train, metrics={"relative_l2": error})
        if self.leader is None or error < (self.leader.error or 0.0):
            self._best = entry, operator
        return entry

    def operator(self, entry: Entry) -> Operator:
        """The operator of the winner."""
        if self._best is not None and self._best[0] == entry:
            return self._best[1]
        assert self.directory is not None
        return load(competitor_directory(self.directory, entry.model) / "model.safetensors")


def competitor_directory(directory: Path, name: str) -> Path:
    """Where a model keeps its files, in the directory of a choice."""
    return directory / "competitors" / name.lower().replace(" ", "-")
