"""The models that compete for the smallest error: each is fitted to some functions within some time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from loca.data import Samples
from loca.durable import write_atomically
from loca.models import LOCA, MODELS, GaussianOperator, Operator, Regression, mean_error, trained_models
from loca.parameters import count
from loca.solving.problem import Hyperparameters
from loca.solving.search import transforms_to_try
from loca.solving.solve import solve
from loca.training import Progress, fit
from loca.typing import values_of

COMPONENTS, STRENGTHS = (10, 40, 150), (1e-6, 1e-4, 1e-2, 1.0)
"""The numbers of components and the penalties from which ridge regression is chosen."""

WARM_UP = 2.0
"""Seconds for which the steps of a model are timed after they are compiled, at most; a tenth of its time if that is
less."""

MARGIN = 0.9
"""The part of its time that a model is planned to train for: the speed of a machine varies."""

FEWEST_STEPS = 50
"""A model with time for fewer steps is not trained: they teach it nothing."""

PLAN_FILE = "plan.json"
"""The file with the number of steps of a training; a resumed one takes as many."""


class Task(NamedTuple):
    """What a model competes with.

    **Arguments:**

    - `train`, `validation`: functions to fit the model to, and functions to choose its settings on.
    - `transforms`: of variables, that are known to be good.
    - `seconds`: the time of a model that is trained.
    - `seed`, `show`: as in `choose`.
    - `directory`: where the model keeps what it needs to resume, if anywhere.
    """

    train: Samples
    validation: Samples
    transforms: dict[str, str]
    seconds: float
    seed: int
    show: bool
    directory: Path | None


Compete = Callable[[Task], tuple[Operator, dict[str, Any]]]
"""From a task to an operator and its settings, as JSON content; raises `NoResultError` if there can be none."""


class NoResultError(Exception):
    """A model does not apply to the data, or has no time."""


@contextlib.contextmanager
def applicable() -> Iterator[None]:
    """Turn `ValueError`, with which models refuse data, into `NoResultError`."""
    try:
        yield
    except ValueError as problem:
        raise NoResultError(f"does not apply: {problem}") from problem


# ---- closed form -----------------------------------------------------------------------------------------------------


def mean_field(task: Task) -> tuple[Operator, dict[str, Any]]:
    """The mean of the training outputs, whatever the input."""
    with applicable():
        return Regression.fit(task.train, components=0), {"components": 0, "strength": 0.0}


def ridge(task: Task) -> tuple[Operator, dict[str, Any]]:
    """Ridge regression; validation functions choose transforms, the number of components and the penalty."""
    with applicable():
        return fit_ridge(task.train, task.validation, transforms=True)


def fit_ridge(train: Samples, validation: Samples, *, transforms: bool = False) -> tuple[Regression, dict[str, Any]]:
    """The ridge regression with the smallest error on validation functions, and its settings.

    **Arguments:**

    - `train`, `validation`: functions to fit to, and functions to choose the number of components and the penalty on.
    - `transforms`: whether to try the transforms that `solve` tries, too.
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
    with applicable():
        operator, report = solve(
            task.train, validation=task.validation, seed=task.seed, directory=task.directory, progress=task.show
        )
    hyperparameters = json.loads(json.dumps(dataclasses.asdict(report.hyperparameters)))
    return operator, {"hyperparameters": hyperparameters, "refit_seconds": report.solve_seconds}


def refit(operator: Operator, settings: dict[str, Any], train: Samples, seed: int, show: bool) -> Operator:
    """The same model with the same settings for all functions, if it has a closed form; a trained one unchanged."""
    match operator:
        case Regression():
            return Regression.fit(train, **settings)
        case GaussianOperator():
            hyperparameters = Hyperparameters.from_json(settings["hyperparameters"])
            return solve(train, hyperparameters=hyperparameters, seed=seed, progress=show)[0]
    return operator


# ---- trained ---------------------------------------------------------------------------------------------------------


def trained(create: Callable[..., Operator]) -> Compete:
    """A model that is trained for its time."""

    def compete(task: Task) -> tuple[Operator, dict[str, Any]]:
        begun = time.perf_counter()
        with applicable():
            key = jax.random.fold_in(jax.random.key(task.seed), 2)
            model = create(task.train, key=key, transforms=task.transforms or None)
        plan = None if task.directory is None else task.directory / PLAN_FILE
        if plan is not None and plan.exists():
            planned = json.loads(plan.read_bytes())
        else:
            steps = steps_within(model, task, begun)
            planned = {"steps": steps, "seconds": time.perf_counter() - begun}
            if plan is not None:
                text = json.dumps(planned)
                write_atomically(plan, lambda file: file.write(text.encode()))
        operator, history = fit(
            model, task.train, steps=planned["steps"], seed=task.seed, progress=task.show, directory=task.directory
        )
        seconds = planned["seconds"] + history.moments[-1].seconds  # also before the process was killed
        return operator, {"steps": planned["steps"], "transforms": task.transforms, "seconds": seconds}

    return compete


class MeasuredError(Exception):
    """Ends a training whose speed has been measured."""

    def __init__(self, compilation: float, steps_per_second: float):
        super().__init__()
        self.compilation, self.steps_per_second = compilation, steps_per_second


def steps_within(model: Operator, task: Task, begun: float) -> int:
    """The number of steps that a model can take in its time, which began at `begun`; from a short training."""
    if task.seconds <= 0.0:
        raise NoResultError("not trained: no time is left; give more minutes")
    start, moments = time.perf_counter(), []

    def measure(progress: Progress) -> None:
        moments.append((time.perf_counter(), progress.step))
        (compiled, first), (now, last) = moments[0], moments[-1]
        if last > first and now - compiled >= min(WARM_UP, task.seconds / 10.0):
            raise MeasuredError(compiled - start, (last - first) / (now - compiled))

    try:
        fit(model, task.train, steps=10**6, seed=task.seed, callbacks=[measure], progress=False)
    except MeasuredError as measured:
        left = MARGIN * task.seconds - (time.perf_counter() - begun) - measured.compilation
        steps = int(left * measured.steps_per_second)
        if steps >= FEWEST_STEPS:
            return steps
        raise NoResultError(
            f"not trained: its {task.seconds:.0f} s are enough for {max(steps, 0)} steps; give more minutes"
        ) from None
    raise AssertionError("a million steps took less time than the measurement")


COMPETITORS: dict[str, Compete] = {
    MODELS["mean-field"].title: mean_field,
    MODELS["ridge"].title: ridge,
    MODELS["gaussian"].title: gaussian,
    # where the first of those that are trained, FNO, does not apply, the others get its time
    **{name: trained(create) for name, create in trained_models().items()},
    MODELS["loca"].title: trained(functools.partial(LOCA.create, linear=True)),
}
"""All models by their names in tables, cheap ones first."""


# ---- measures --------------------------------------------------------------------------------------------------------


def num_solved(operator: Operator) -> int:
    """The number of values that were trained or solved for."""
    match operator:
        case Regression():
            return operator.responses.size + operator.components.size
        case GaussianOperator():
            return operator.coefficients.size
    return count(operator)
