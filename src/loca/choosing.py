"""`choose`: models compete on validation functions within a time budget."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Samples, check_finite, data_digest
from loca.durable import Resumable, write_atomically
from loca.gaussian import GaussianOperator, Hyperparameters, solve, transforms_to_try
from loca.losses import mean_squared, relative_l2
from loca.models import FNO, LOCA, MODELS, Grid, Operator, Regression, mean_error, trained_models
from loca.parameters import count
from loca.saving import MODEL_FILE, load, save
from loca.training import Loss, Progress, StoppedError, fit
from loca.typing import values_of

__all__ = ["ChoiceReport", "choose", "fit_ridge"]

HELD = 200
"""Validation functions, at most, if none are given; a fifth of the data if that is less."""

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
    reason: str = ""  # why it has no result

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
        text = json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False)
        write_atomically(Path(path), lambda file: file.write(text.encode()))

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
    report, best = ChoiceReport((), len(fitted), len(held)), None
    transforms: dict[str, str] = {}  # those that were best for the Gaussian operator
    with contextlib.ExitStack() as stack:
        work = None
        if directory is not None:
            request = {"data": data_digest(train), "minutes": minutes, "seed": seed}
            request["validation"] = None if validation is None else data_digest(validation)
            work = stack.enter_context(Resumable(Path(directory), request))
        for number, (name, compete) in enumerate(COMPETITORS.items()):
            refit = report.winner.settings.get("refit_seconds", 0.0) if report.entries and validation is None else 0.0
            seconds = (60.0 * minutes - report.seconds - refit) / (len(COMPETITORS) - number)
            task = Task(name, fitted, held, transforms, seconds, seed, show, work)
            found: list[Operator] = []
            entry = ChoiceEntry(**task.once("result", lambda: dataclasses.asdict(run(compete, task, found))))  # noqa: B023
            if show:
                print(*([] if report.entries else [HEADER]), entry, sep="\n", file=sys.stderr)  # noqa: T201
            report = dataclasses.replace(report, entries=(*report.entries, entry))
            if report.winner is entry:
                best = found[0] if found else None  # of the operators only the best stays in memory
            transforms = dict(entry.settings.get("hyperparameters", {}).get("transforms", transforms))
        winner = report.winner
        if winner.error is None:
            raise RuntimeError("no model has a result:\n" + "\n".join(map(str, report.entries)))
        file = competitor_directory(Path(directory or ""), winner.model) / MODEL_FILE
        operator = best if best is not None else load(file)
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
                reason = f"not trained: {problem}; give more minutes"
            case ValueError():  # with which models refuse data
                reason = f"does not apply: {problem}"
            case _:
                reason = f"failed: {type(problem).__name__}: {problem}".partition("\n")[0]
        return ChoiceEntry(task.model, seconds=time.perf_counter() - begun, reason=reason)
    found.append(operator)
    seconds = max(time.perf_counter() - begun, settings.pop("seconds", 0.0))
    megabytes = sum(leaf.nbytes for leaf in jax.tree.leaves(operator) if hasattr(leaf, "nbytes")) / 1e6
    if task.directory is not None:
        save(operator, task.directory / MODEL_FILE, data=task.train, metrics={"relative_l2": error})
    return ChoiceEntry(task.model, error, seconds, _num_solved(operator), megabytes, settings)


def _num_solved(operator: Operator) -> int:
    """The number of values that were trained or solved for."""
    match operator:
        case Regression():
            return operator.responses.size + operator.components.size
        case GaussianOperator():
            return operator.coefficients.size
    return count(operator)


def competitor_directory(directory: Path, name: str) -> Path:
    """Where a model keeps its files, in the directory of a choice."""
    return directory / "competitors" / name.lower().replace(" ", "-")


# ---- competitors -----------------------------------------------------------------------------------------------------

COMPONENTS, STRENGTHS = (10, 40, 150), (1e-6, 1e-4, 1e-2, 1.0)
"""The numbers of components and the penalties from which ridge regression is chosen."""

WARM_UP = 2.0
"""Seconds for which the steps of a model are timed after they are compiled, at most; a tenth of its time if that is
less."""

MARGIN = 0.9
"""The part of its time that a model is planned to train for: the speed of a machine varies."""

FEWEST_STEPS = 50
"""A model with time for fewer steps is not trained: they teach it nothing."""


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

    @property
    def directory(self) -> Path | None:
        """Where the model keeps its files."""
        if self.work is None:
            return None
        directory = competitor_directory(self.work.directory, self.model)
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


def mean_field(task: Task) -> tuple[Operator, dict[str, Any]]:
    """The mean of the training outputs, whatever the input."""
    return Regression.fit(task.train, components=0), {"components": 0, "strength": 0.0}


def ridge(task: Task) -> tuple[Operator, dict[str, Any]]:
    """Ridge regression; validation functions choose transforms, the number of components and the penalty."""
    return fit_ridge(task.train, task.validation, transforms=True)


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
    """The Gaussian operator; validation functions choose its hyperparameters."""
    operator, report = solve(
        task.train, validation=task.validation, seed=task.seed, directory=task.directory, progress=task.show
    )
    hyperparameters = json.loads(json.dumps(dataclasses.asdict(report.hyperparameters)))
    return operator, {"hyperparameters": hyperparameters, "refit_seconds": report.solve_seconds}


def _refit(operator: Operator, settings: dict[str, Any], train: Samples, seed: int, show: bool) -> Operator:
    """The same model with the same settings for all functions, if it has a closed form; a trained one unchanged."""
    match operator:
        case Regression():
            return Regression.fit(train, **settings)
        case GaussianOperator():
            hyperparameters = Hyperparameters.of(settings["hyperparameters"])
            return solve(train, hyperparameters=hyperparameters, seed=seed, progress=show)[0]
    return operator


# ---- trained ---------------------------------------------------------------------------------------------------------


def padded_fno(data: Samples, **options: Any) -> FNO:
    """An FNO with a quarter more points along each axis that is not periodic."""
    grid = Grid.of(data)
    padding = [0 if period else n // 4 for n, period in zip(grid.shape, grid.periods, strict=True)]
    return FNO.create(data, padding=padding, **options)


def trained(create: Callable[..., Operator], batch_size: int = 100, loss: Loss = mean_squared) -> Compete:
    """A model that is trained for its time."""

    def compete(task: Task) -> tuple[Operator, dict[str, Any]]:
        recipe = {"batch_size": min(batch_size, len(task.train)), "loss": loss}
        begun = time.perf_counter()
        key = jax.random.fold_in(jax.random.key(task.seed), 2)
        model = create(task.train, key=key, transforms=task.transforms or None)

        def plan() -> dict[str, float]:
            steps = steps_within(model, task, begun, recipe)
            return {"steps": steps, "seconds": time.perf_counter() - begun}

        planned = task.once("plan", plan)  # a resumed training takes as many steps
        once = {"steps": planned["steps"], "seed": task.seed, "directory": task.directory}
        operator, history = fit(model, task.train, progress=task.show, **once, **recipe)
        seconds = planned["seconds"] + history.moments[-1].seconds  # also before the process was killed
        return operator, {"steps": planned["steps"], "transforms": task.transforms, "seconds": seconds}

    return compete


class MeasuredError(Exception):
    """Ends a training whose speed has been measured."""


def steps_within(model: Operator, task: Task, begun: float, recipe: dict[str, Any]) -> int:
    """The number of steps that a model can take in its time, which began at `begun`; from a short training."""
    if task.seconds <= 0.0:
        raise NoTimeError("no time is left")
    start, moments = time.perf_counter(), list[tuple[float, int]]()

    def measure(progress: Progress) -> None:
        moments.append((time.perf_counter(), progress.step))
        (compiled, first), (now, last) = moments[0], moments[-1]
        if last > first and now - compiled >= min(WARM_UP, task.seconds / 10.0):
            raise MeasuredError

    with contextlib.suppress(MeasuredError):
        fit(model, task.train, steps=10**6, seed=task.seed, callbacks=[measure], progress=False, **recipe)
    (compiled, first), (now, last) = moments[0], moments[-1]
    left = MARGIN * task.seconds - (time.perf_counter() - begun) - (compiled - start)
    steps = int(left * (last - first) / (now - compiled))
    if steps < FEWEST_STEPS:
        raise NoTimeError(f"its {task.seconds:.0f} s are enough for {max(steps, 0)} steps")
    return steps


COMPETITORS: dict[str, Compete] = {
    MODELS["mean-field"].title: mean_field,
    MODELS["ridge"].title: ridge,
    MODELS["gaussian"].title: gaussian,
    # where the first of those that are trained, FNO, does not apply, the others get its time
    **{name: trained(create) for name, create in trained_models().items()},
    # on rough Darcy flow, 1.9 % instead of 4.3 % with the defaults of `fit` after the same time
    MODELS["fno"].title: trained(padded_fno, batch_size=20, loss=relative_l2),
    MODELS["loca"].title: trained(functools.partial(LOCA.create, linear=True)),
}
"""All models by their names in tables, cheap ones first."""

TRAINED = (*trained_models(), MODELS["loca"].title)
"""Those that take as much time as they are given."""
