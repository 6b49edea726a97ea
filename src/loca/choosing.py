"""`choose`: models compete on validation functions within a time budget."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Samples, check_finite, data_digest
from loca.durable import Resumable, write_atomically, write_json
from loca.gaussian import GaussianOperator, Hyperparameters, is_auto, solve, transforms_to_try
from loca.local import Corrected, is_on_grid
from loca.models import (
    MODELS,
    Combination,
    Combined,
    Operator,
    Proportional,
    Regression,
    Sum,
    combine,
    mean_error,
    trained_models,
)
from loca.parameters import count
from loca.saving import MODEL_FILE, load, save
from loca.symmetries import Homogeneous, Symmetric, Symmetries
from loca.training import Progress, StoppedError, fit
from loca.typing import values_of

__all__ = ["ChoiceReport", "choose", "fit_ridge"]

HELD = 200
"""Validation functions, at most, if none are given; a fifth of the data if that is less."""

HISTORY_FILE = "history.jsonl"
"""The file with the losses of a training, in its directory."""

REPORT_FILE = "choice.json"
"""The file with the report, in the directory of a choice."""


@dataclasses.dataclass(frozen=True)
class ChoiceEntry:
    """One model of a choice."""

    model: str  # its name
    error: float | None = None  # the mean relative L2 error on the validation functions; None without a result
    seconds: float = 0.0  # that it took, including the choice of its settings
    parameters: int = 0  # values that were trained or solved for
    megabytes: float = 0.0  # of all its arrays
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # what was chosen for it
    reason: str = ""  # why it has no result, or no longer training

    @property
    def is_late(self) -> bool:
        """Whether it was not trained for lack of time."""
        return self.error is None and self.reason.startswith(LATE)

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.model:<11}  {self.reason}"
        return (
            f"{self.model:<11} {100.0 * self.error:>9.4g} % {self.seconds:>9.1f} {self.parameters:>12,} "
            f"{self.megabytes:>9.2f}  {self.reason}"
        ).rstrip()


HEADER = f"{'model':<11} {'error':>11} {'seconds':>9} {'parameters':>12} {'MB':>9}"


@dataclasses.dataclass(frozen=True)
class ChoiceReport:
    """The comparison of all models; prints as a table, the best model first.

    **Arguments:**

    - `entries`: the models in the order in which they competed.
    - `functions`, `validation`: the number of functions that the models were fitted to and compared on.
    """

    entries: tuple[ChoiceEntry, ...]
    functions: int
    validation: int

    @property
    def ranking(self) -> tuple[ChoiceEntry, ...]:
        """The models from the smallest error to the largest, and then those without a result."""
        return tuple(sorted(self.entries, key=lambda entry: math.inf if entry.error is None else entry.error))

    @property
    def winner(self) -> ChoiceEntry:
        """The model with the smallest error; of equal ones the first, which is the cheapest."""
        return self.ranking[0]

    @property
    def seconds(self) -> float:
        """The time of all models together."""
        return math.fsum(entry.seconds for entry in self.entries)

    def __str__(self) -> str:
        about = (
            f"mean relative L2 error on {self.validation} validation functions, from {self.functions} functions, "
            f"in {self.seconds:.0f} s"
        )
        return "\n".join([HEADER, *map(str, self.ranking), about])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON, atomically."""
        write_json(Path(path), dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChoiceReport:
        """Read a report that `save` wrote."""
        content = json.loads(Path(path).read_bytes())
        return cls(**content | {"entries": tuple(ChoiceEntry(**entry) for entry in content["entries"])})


def choose(
    train: Samples,
    *,
    minutes: float = 5.0,
    validation: Samples | None = None,
    symmetries: str | Sequence[str] | None = None,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> tuple[Operator, ChoiceReport]:
    """Compare models on validation functions, and return the best of them or their best combination.

    The mean field, s = c·u, ridge regression and the Gaussian operator come first, and take the time that they need, at
    most a few minutes; ridge regression and the Gaussian operator try transforms of variables. FNO, LOCA and DeepONet
    share what is left, but at least half of the budget, with the transforms that were best for the Gaussian operator.
    Each is trained briefly, alone and on what s = c·u or ridge regression leaves over; those that are far behind are
    stopped, and the others are trained anew for the rest of the time, in their better way.
    At last, all models compete with their weighted mean. Ridge regression and the mean field compete wherever they
    apply, so the result is never worse than they are on the validation functions.

    **Arguments:**

    - `train`: functions to fit models to.
    - `minutes`: the time budget. Compilation does not count.
    - `validation`: functions to compare models on. By default a fifth of `train` is held out for this, at most 200
      functions; models in closed form that are chosen, alone or in a combination, are then fitted again to all
      functions.
    - `symmetries`: names, or `"auto"` for those with which the Gaussian operator is better; see `loca.symmetries`. The
      models after it get them, too.
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
    known = None if symmetries is None else [symmetries] if isinstance(symmetries, str) else list(symmetries)
    with contextlib.ExitStack() as stack:
        work = None
        if directory is not None:
            request = {"data": data_digest(train), "minutes": minutes, "seed": seed}
            request |= {} if known is None else {"symmetries": known}
            request["validation"] = None if validation is None else data_digest(validation)
            work = stack.enter_context(Resumable(Path(directory), request))
        competition = Competition(Task("", fitted, held, {}, 0.0, seed, show, work, symmetries=known))
        competition.hold(60.0 * minutes, refits=validation is None)
        report = competition.report
        winner = report.winner
        if winner.error is None:
            raise RuntimeError("no model has a result:\n" + "\n".join(map(str, report.entries)))
        operator = competition.operator(winner.model)
        if validation is None:
            operator = _refit(operator, winner.settings, train, seed, show)
        if directory is not None:
            report.save(Path(directory) / REPORT_FILE)
    return operator, report


def hold_out(train: Samples, seed: int) -> tuple[Samples, Samples]:
    """Functions to fit models to, and functions to compare them on."""
    order = jax.random.permutation(jax.random.key(seed), len(train))
    held = min(HELD, max(1, len(train) // 5))
    return train.take(jnp.sort(order[held:])), train.take(jnp.sort(order[:held]))


class Competition:
    """All models on the same functions: who has competed, with which result, and their operators."""

    def __init__(self, task: Task):
        self.task = task
        self.entries: dict[str, ChoiceEntry] = {}
        self.operators: dict[str, Operator] = {}

    @property
    def report(self) -> ChoiceReport:
        """The entries so far."""
        return ChoiceReport(tuple(self.entries.values()), len(self.task.train), len(self.task.validation))

    def hold(self, seconds: float, *, refits: bool) -> None:
        """Let all models compete; if closed forms are fitted again at the end, time is left for it."""
        for name, compete in COMPETITORS.items():
            if not isinstance(compete, Trained):
                entry = self._add(name, *self._run(name, compete))
                transforms = entry.settings.get("hyperparameters", {}).get("transforms", self.task.transforms)
                symmetries = entry.settings.get("symmetries", self.task.symmetries)
                self.task = self.task._replace(transforms=dict(transforms), symmetries=symmetries)
        left = seconds - self.report.seconds
        if refits and self.entries:
            left -= self.report.winner.settings.get("refit_seconds", 0.0)
        networks = {name: compete for name, compete in COMPETITORS.items() if isinstance(compete, Trained)}
        self.train(networks, max(left, NETWORKS * seconds))
        self._combine()

    def operator(self, name: str) -> Operator:
        """That of a model with a result."""
        if name not in self.operators:
            self.operators[name] = load(competitor_directory(self._directory, name) / MODEL_FILE)
        return self.operators[name]

    def train(self, networks: Mapping[str, Trained], seconds: float) -> None:
        """Train all models briefly in each way, and those that may become the best for the rest of the time.

        A model is trained alone, and around the best of the simple maps.
        """
        known = {name: each.error for name, each in self.entries.items() if each.error is not None}
        maps = sorted((name for name in MAPS if name in known), key=lambda name: known[name])
        ways, short = ["", *maps[:1]], SHORT * seconds
        count = len(networks) * len(ways)
        short = 0.0 if count < 2 or short < SHORTEST * count else short / count
        briefly = {name: self._briefly(name, compete, ways, short) for name, compete in networks.items()}
        errors = {name: first.entry.error for name, first in briefly.items() if first.entry.error is not None}
        limit = min(BEHIND * min(errors.values(), default=math.inf),
                    HOPELESS * min([*errors.values(), *known.values()], default=math.inf))  # fmt: skip
        going = [name for name, first in briefly.items() if first.entry.is_late or errors.get(name, math.inf) <= limit]
        left = (seconds - short * len(ways) * len(errors)) / max(len(going), 1)
        for name, first in briefly.items():
            if name not in going:
                stopped = "stopped after a short training: far behind" if name in errors else first.entry.reason
                self._add(name, self._keep(first, stopped), first.operator)
                continue
            entry, operator = self._run(name, networks[name], left, around=first.way)
            entry = dataclasses.replace(entry, seconds=entry.seconds + first.entry.seconds)
            if name in errors and (entry.error is None or errors[name] < entry.error):
                entry, operator = self._keep(first, "a longer training was not better", entry.seconds), first.operator
            self._add(name, entry, operator)

    def _briefly(self, name: str, compete: Trained, ways: Sequence[str], seconds: float) -> Brief:
        """The best of short trainings, in one way each; a map around the model has to be much better than none."""
        if not seconds:
            return Brief("", ChoiceEntry(name, reason=LATE), None)
        tries = list[Brief]()
        for way in ways:
            tries.append(Brief(way, *self._run(name, compete, seconds, stage_of(way), way)))
            if tries[-1].entry.is_late:  # and so would the others be
                break
        best = min(tries, key=lambda each: math.inf if (e := each.entry.error) is None else e if each.way else MUCH * e)
        seconds = math.fsum(each.entry.seconds for each in tries)
        return best._replace(entry=dataclasses.replace(best.entry, seconds=seconds))

    def _combine(self) -> None:
        """Let the best combination of all models compete, with its error by cross-validation."""
        members = {name: entry for name, entry in self.entries.items() if entry.error is not None}
        if len(members) < 2 or len(self.task.validation) < FEWEST_COMBINED:
            return
        task = self.task._replace(model=COMBINATION)

        def compute() -> dict[str, Any]:
            begun = time.perf_counter()
            errors = {name: entry.error or 0.0 for name, entry in members.items()}
            found, reason = combination(errors, self.operator, task.validation)
            seconds = time.perf_counter() - begun
            if found is None:
                return dataclasses.asdict(ChoiceEntry(COMBINATION, seconds=seconds, reason=reason))
            self.operators[COMBINATION] = chosen = found.operator
            settings = settings_of(chosen) | {"members": {name: members[name].settings for name in chosen.names}}
            if task.directory is not None:
                metrics = {"relative_l2": found.error}
                save(chosen, task.directory / MODEL_FILE, data=task.train, metrics=metrics)
            sizes = num_solved(chosen), megabytes(chosen)
            return dataclasses.asdict(ChoiceEntry(COMBINATION, found.error, seconds, *sizes, settings))

        self._add(COMBINATION, ChoiceEntry(**task.once("result", compute)))

    @property
    def _directory(self) -> Path:
        return Path() if self.task.work is None else self.task.work.directory

    def _run(
        self, name: str, compete: Compete, seconds: float = 0.0, stage: str = "", around: str = ""
    ) -> tuple[ChoiceEntry, Operator | None]:
        """The result of a model, and its operator if it was not read from a file."""
        task, found = self.task._replace(model=name, seconds=seconds, stage=stage), list[Operator]()
        if around:
            operator, settings = self.operator(around), self.entries[around].settings
            task = task._replace(around=(around, lambda data: _refit(operator, settings, data, task.seed, False)))
        entry = ChoiceEntry(**task.once(f"result{stage}", lambda: dataclasses.asdict(run(compete, task, found))))
        return entry, found[0] if found else None

    def _add(self, name: str, entry: ChoiceEntry, operator: Operator | None = None) -> ChoiceEntry:
        if self.task.show:
            print(*([] if self.entries else [HEADER]), entry, sep="\n", file=sys.stderr)  # noqa: T201
        self.entries[name] = entry
        if operator is not None:
            self.operators[name] = operator
        return entry

    def _keep(self, first: Brief, reason: str, seconds: float | None = None) -> ChoiceEntry:
        """Take the result of a short training, and its files, for those of the model."""
        entry = dataclasses.replace(first.entry, reason=reason, seconds=seconds or first.entry.seconds)
        directory = competitor_directory(self._directory, entry.model)
        if self.task.work is not None and entry.error is not None:
            for name in (HISTORY_FILE, MODEL_FILE):
                content = (directory / stage_of(first.way) / name).read_bytes()
                write_atomically(directory / name, lambda file, content=content: file.write(content))
        return entry


class Brief(NamedTuple):
    """A short training: the map around which the model was trained, or none, and what came of it."""

    way: str
    entry: ChoiceEntry
    operator: Operator | None


def stage_of(way: str) -> str:
    """The directory of a short training, in that of a model."""
    return "short-around" if way else "short"


def settings_of(combination: Combination) -> dict[str, Any]:
    """The weights of a combination as JSON content: one number per member, or one for each channel."""
    rows = zip(combination.names, combination.weights, strict=True)
    return {"weights": {name: row[0] if len(row) == 1 else list(row) for name, row in rows}}


def combination(
    errors: Mapping[str, float], operator: Callable[[str], Operator], validation: Samples
) -> tuple[Combined | None, str]:
    """The combination of models with these errors, by name; None, and why, if none is adopted."""
    if len(errors) < 2 or len(validation) < FEWEST_COMBINED:
        return None, f"not adopted: it needs two models and {FEWEST_COMBINED} validation functions"
    try:
        found = combine({name: operator(name) for name in errors}, validation)
    except Exception as problem:  # noqa: BLE001  it must not lose the others
        return None, f"failed: {type(problem).__name__}: {problem}".partition("\n")[0]
    if found.error < WORTH * min(errors.values()):
        return found, ""
    error = f"{100.0 * found.error:.4g} % by cross-validation"
    return None, f"not adopted: {error}, not {1.0 - WORTH:.0%} below the best model"


def run(compete: Compete, task: Task, found: list[Operator]) -> ChoiceEntry:
    """Let a model compete; its operator is appended to `found` if it has one."""
    begun = time.perf_counter()
    try:
        operator, settings = compete(task)
        error = mean_error(operator, task.validation)
        if not math.isfinite(error):
            raise ArithmeticError("its error on the validation functions is not finite")
    except StoppedError:
        raise
    except Exception as problem:  # noqa: BLE001  one model must not lose the others
        match problem:
            case NoTimeError():
                reason = f"{LATE}: {problem}; give more minutes"
            case ValueError():  # with which models refuse data
                reason = f"does not apply: {problem}"
            case _:
                reason = f"failed: {type(problem).__name__}: {problem}".partition("\n")[0]
        return ChoiceEntry(task.model, seconds=time.perf_counter() - begun, reason=reason)
    found.append(operator)
    seconds = max(time.perf_counter() - begun, settings.pop("seconds", 0.0))
    if task.directory is not None:
        save(operator, task.directory / MODEL_FILE, data=task.train, metrics={"relative_l2": error})
    return ChoiceEntry(task.model, error, seconds, num_solved(operator), megabytes(operator), settings)


def megabytes(operator: Operator) -> float:
    """The size of all arrays."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(operator) if hasattr(leaf, "nbytes")) / 1e6


def num_solved(operator: Operator) -> int:
    """The number of values that were trained or solved for."""
    while isinstance(operator, Symmetric | Homogeneous):
        operator = operator.operator
    if isinstance(operator, Corrected):
        return num_solved(operator.operator) + operator.rule.weights.size
    match operator:
        case Regression():
            return operator.responses.size + operator.components.size
        case GaussianOperator():
            return operator.coefficients.size
        case Sum():
            return sum(map(num_solved, operator.operators))
    return count(operator)


def competitor_directory(directory: Path, name: str) -> Path:
    """Where a model keeps its files, in the directory of a choice."""
    return directory / "competitors" / "-".join(re.findall("[a-z0-9]+", name.lower()))


# ---- competitors -----------------------------------------------------------------------------------------------------

COMPONENTS, STRENGTHS = (10, 40, 150), (1e-6, 1e-4, 1e-2, 1.0)
"""The numbers of components and the penalties from which ridge regression is chosen."""

WARM_UP = 2.0
"""Seconds for which the steps of a model are timed after they are compiled, at most; a tenth of its time if that is
less."""

MARGIN = 0.9
"""The part of its time that a model is planned to train for: the speed of a machine varies."""

CORRECTED = 100
"""Functions, at least, with which a local correction is tried."""

FEWEST_STEPS = 50
"""A model with time for fewer steps is not trained: they teach it nothing."""

NETWORKS, SHORT = 0.5, 0.25
"""The least part of the time for models that are trained, and the part of that in which all are trained briefly."""

SHORTEST = 1.0
"""Seconds of a short training, at least; there is none if this is too long."""

BEHIND, HOPELESS = 1.5, 5.0
"""After a short training, a model is stopped if its error is more than this times that of the best of them, or of all
models: nine times as many steps seldom make an error five times smaller."""

MAPS, MUCH = (MODELS["proportional"].title, MODELS["ridge"].title), 0.9
"""The maps around which models are trained, and the part of the error without one that a short training must reach.

The Gaussian operator is none of them: on rough Darcy flow, networks made it worse, and short trainings did not tell."""

LATE = "not trained"
"""The reason of a model without enough time."""

COMBINATION, FEWEST_COMBINED = "combination", 10
"""The name of the combination, and the validation functions that it needs."""

WORTH = 0.98
"""A combination must have at most this fraction of the error of the best model, since it costs more to evaluate."""


class Task(NamedTuple):
    """What a model competes with: functions to fit it to, and others to choose its settings on."""

    model: str  # its name
    train: Samples
    validation: Samples
    transforms: dict[str, str]  # that are known to be good
    seconds: float  # the time of a model that is trained
    seed: int
    show: bool
    work: Resumable | None
    stage: str = ""  # of a model that is trained more than once
    symmetries: Sequence[str] | None = None  # that are known, or "auto" until the Gaussian operator has found them
    around: tuple[str, Callable[[Samples], Operator]] | None = None  # the name of a map, and how it is fitted

    @property
    def directory(self) -> Path | None:
        """Where the model keeps its files."""
        if self.work is None:
            return None
        directory = competitor_directory(self.work.directory, self.model) / self.stage
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def once(self, key: str, compute: Callable[[], Any]) -> Any:
        """A value, which JSON can hold; computed only once if the choice can resume."""
        return compute() if self.work is None else self.work.once(f"{self.model}-{key}", compute)


Compete = Callable[[Task], tuple[Operator, dict[str, Any]]]
"""From a task to an operator and its settings, as JSON content; raises `ValueError` if the model does not apply."""


class NoTimeError(Exception):
    """A model cannot be trained in its time."""


# ---- closed form -----------------------------------------------------------------------------------------------------


def fit_ridge(train: Samples, validation: Samples, *, transforms: bool = False) -> tuple[Regression, dict[str, Any]]:
    """The ridge regression with the smallest error on validation functions, and its settings.

    These are the number of components, the penalty and, if asked for, the transforms that `solve` tries, too.
    """
    most = min(len(train), sum(each[0].size for each in values_of(train.u)))
    possible = [k for k in COMPONENTS if k <= most] or [most]
    least, model, settings = math.inf, None, dict[str, Any]()
    for change in ({}, *(transforms_to_try(train) if transforms else ())):
        tried = {**settings.get("transforms", {}), **change}
        models = Regression.fits(train, possible, STRENGTHS, tried)
        try:
            errors = [e if math.isfinite(e := mean_error(each, validation)) else math.inf for each in models]
        except ValueError:  # a validation function that has no logarithm, for example
            if not change:
                raise
            continue
        best = int(np.argmin(errors))
        if errors[best] < least:
            components, strength = list(itertools.product(possible, STRENGTHS))[best]
            least, model = errors[best], models[best]
            settings = {"components": components, "strength": strength, "transforms": tried}
    if model is None:
        raise ValueError("no ridge regression has finite errors on the validation functions")
    return model, settings


def gaussian(task: Task) -> tuple[Operator, dict[str, Any]]:
    """The Gaussian operator, with a local correction on grids; validation functions choose its hyperparameters."""
    options = {"seed": task.seed, "directory": task.directory, "progress": task.show}
    correct = len(task.train) >= CORRECTED and is_on_grid(task.train)
    names = task.symmetries
    operator, report = solve(task.train, validation=task.validation, symmetries=names, correct=correct, **options)
    hyperparameters = json.loads(json.dumps(dataclasses.asdict(report.hyperparameters)))
    settings = {"hyperparameters": hyperparameters, "refit_seconds": report.solve_seconds}
    if report.symmetries is not None:
        settings |= {"symmetries": list(report.symmetries.adopted), "evidence": report.symmetries.as_json()}
    if report.correction is not None:
        settings |= {"correct": report.correction.adopted, "correction": report.correction._asdict()}
    return operator, settings


def _refit(operator: Operator, settings: dict[str, Any], train: Samples, seed: int, show: bool) -> Operator:
    """The same model with the same settings for all functions, if it has a closed form; a trained one unchanged."""
    match operator:
        case Combination():
            members = zip(operator.names, operator.operators, strict=True)
            refitted = {name: _refit(each, settings["members"][name], train, seed, show) for name, each in members}
            return operator.with_members(refitted, train)
        case Regression():
            return Regression.fit(train, **settings)
        case Proportional():
            return Proportional.fit(train)
        case _ if "hyperparameters" in settings:
            hyperparameters, names = Hyperparameters.of(settings["hyperparameters"]), settings.get("symmetries") or None
            known = {"hyperparameters": hyperparameters, "symmetries": names, "correct": settings.get("correct", False)}
            return solve(train, **known, seed=seed, progress=show)[0]
    return operator


# ---- trained ---------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """A model that is trained for its time."""

    create: Callable[..., Operator]

    def __call__(self, task: Task) -> tuple[Operator, dict[str, Any]]:
        begun = time.perf_counter()
        key = jax.random.fold_in(jax.random.key(task.seed), 2)
        names = () if task.symmetries is None or is_auto(task.symmetries) else task.symmetries  # or none were found
        images = Symmetries.of(names, task.train).augment(task.train)
        model = self.create(images, key=key, transforms=task.transforms or None)

        def plan() -> dict[str, float]:
            steps = steps_within(model, task._replace(train=images))
            return {"steps": steps, "seconds": time.perf_counter() - begun}

        planned = task.once(f"plan{task.stage}", plan)  # a resumed training takes as many steps
        options = {"steps": planned["steps"], "seed": task.seed, "directory": task.directory, "progress": task.show}
        settings: dict[str, Any] = {"steps": planned["steps"], "transforms": task.transforms}
        if names:
            options["symmetries"] = settings["symmetries"] = list(names)
        if task.around is not None:
            settings["around"], options["around"] = task.around
            options |= {"validate": task.validation, "every": planned["steps"]}
        operator, history = fit(model, task.train, **options)
        settings["seconds"] = planned["seconds"] + history.moments[-1].seconds  # also before the process was killed
        return operator, settings


class MeasuredError(Exception):
    """Ends a training whose speed has been measured."""


def steps_within(model: Operator, task: Task) -> int:
    """The number of steps that a model can take in its time, from a short training; compilation does not count."""
    if task.seconds <= 0.0:
        raise NoTimeError("no time is left")
    moments = list[tuple[float, int]]()

    def measure(progress: Progress) -> None:
        moments.append((time.perf_counter(), progress.step))
        (compiled, first), (now, last) = moments[0], moments[-1]
        if last > first and now - compiled >= min(WARM_UP, task.seconds / 10.0):
            raise MeasuredError

    with contextlib.suppress(MeasuredError):
        fit(model, task.train, steps=10**6, seed=task.seed, callbacks=[measure], progress=False)
    (compiled, first), (now, last) = moments[0], moments[-1]
    left = MARGIN * task.seconds - (now - compiled)
    steps = int(left * (last - first) / (now - compiled))
    if steps < FEWEST_STEPS:
        raise NoTimeError(f"its {task.seconds:.0f} s are enough for {max(steps, 0)} steps")
    return steps


COMPETITORS: dict[str, Compete] = {
    MODELS["mean-field"].title: lambda task: (Regression.fit(task.train, 0), {"components": 0, "strength": 0.0}),
    MODELS["proportional"].title: lambda task: (Proportional.fit(task.train), {}),
    MODELS["ridge"].title: lambda task: fit_ridge(task.train, task.validation, transforms=True),
    MODELS["gaussian"].title: gaussian,
    # where the first of those that are trained, FNO, does not apply, the others get its time
    **{name: Trained(create) for name, create in trained_models().items()},
}
"""All models by their names in tables, cheap ones first."""
