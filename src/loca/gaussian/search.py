"""The search for hyperparameters on held-out functions."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Indexed, Queries, Samples, Shared, columns
from loca.encoders import Encoder
from loca.gaussian.operator import GaussianOperator
from loca.gaussian.problem import Accuracy, Hyperparameters, Problem, Ranks
from loca.metrics import relative_l2
from loca.models import standardized_errors
from loca.typing import Input

ACCURACY = Accuracy(tolerance=3e-4, limit=100)
"""Of the solve in a trial: hyperparameters that need more iterations are not worth them."""

GAIN = 0.995
"""A move must lower the error by half a percent."""

NUGGET_GAIN = 0.985
"""A nugget, with which an iteration can take several times as long, must lower the error by 1.5 percent."""

NUGGET_TRIALS = 12
"""Trials with a nugget, at most."""

HOPELESS = 1.15
"""A move that raises the error by more than this factor is not tried again from other hyperparameters."""

HELD, HELD_LABELS = 100, 256
"""Held-out functions and labels of each that determine the size of error bars, at most."""

NORMAL_QUANTILE = 1.6449
"""Of the absolute value of a standard normal variable: 90 % are below."""

LABELS = 5
"""The least number of labels at each location from which means and scales per location are tried."""


class Stage(NamedTuple):
    """One stage of the search.

    **Arguments:**

    - `functions`: the number of training functions of a trial.
    - `ranks`: of the features.
    - `factors`: by which hyperparameters change, one after the other.
    - `trials`, `iterations`: of all trials together, at most; the last trial may exceed the iterations. They limit the
      time, and unlike the time they are the same whenever the search is repeated.
    - `nugget`: whether a nugget is tried after the moves of the first factor; only the first stage does.
    """

    functions: int
    ranks: Ranks
    factors: tuple[float, ...]
    trials: int
    iterations: int
    nugget: bool = False


class Trial(NamedTuple):
    """One row of the search: the mean relative L2 error on held-out functions of one choice of hyperparameters."""

    stage: int
    hyperparameters: Hyperparameters
    error: float
    iterations: int
    seconds: float


COLUMNS = ("length", "damping", "linear", "noise", "nugget", "error", "seconds")
HEADER = "stage" + "".join(f"{name:>9}" for name in COLUMNS) + "  lengths in y"


def table_row(trial: Trial) -> str:
    """One line of the table of trials."""
    h = trial.hyperparameters
    lengths = " ".join(f"{each:.3g}" for each in h.location_lengths)
    names = "".join(f", {transform} of {name}" for name, transform in h.transforms)
    return (
        f"{trial.stage:>5}{h.length:>9.3g}{h.damping:>9.2g}{h.linear:>9.3g}{h.noise:>9.2g}{h.nugget:>9.2g}"
        f"{trial.error:>9.5f}{trial.seconds:>9.1f}  {lengths}{names}"
    )


class Fold(NamedTuple):
    """Functions to solve with, and others to compare predictions with."""

    train: Samples
    held: Samples


class Trials:
    """The trials of a search; kept in a file of JSON lines if a directory is given, so that a search can resume."""

    def __init__(self, directory: Path | None, *, show: bool):
        self.path = None if directory is None else directory / "trials.jsonl"
        self.show = show
        self.rows: list[Trial] = []
        self._known: dict[tuple[int, Hyperparameters], Trial] = {}
        if self.path is not None and self.path.exists():
            for line in self.path.read_text().splitlines():
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:  # the process was killed while it wrote the last line
                    break
                trial = Trial(**row | {"hyperparameters": Hyperparameters.from_json(row["hyperparameters"])})
                self._known[trial.stage, trial.hyperparameters] = trial

    def get(self, stage: int, hyper: Hyperparameters, run: Callable[[], Trial]) -> Trial:
        """A trial from the file, or else from `run`."""
        known = self._known.get((stage, hyper))
        trial = run() if known is None else known
        if known is None and self.path is not None:
            self._write(trial)
        if self.show:
            print(*([] if self.rows else [HEADER]), table_row(trial), sep="\n", file=sys.stderr)  # noqa: T201
        self.rows.append(trial)
        return trial

    def _write(self, trial: Trial) -> None:
        assert self.path is not None
        row = trial._asdict() | {"hyperparameters": dataclasses.asdict(trial.hyperparameters)}
        whole = self.path.read_bytes() if self.path.exists() else b""
        with self.path.open("wb" if not whole.endswith(b"\n") else "ab") as file:
            if whole and not whole.endswith(b"\n"):  # remove a half-written line
                file.write(whole[: whole.rfind(b"\n") + 1])
            file.write(json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def search(
    folds: Sequence[Fold], start: Hyperparameters, stages: Sequence[Stage], trials: Trials,
    encoder: Encoder | None = None,
) -> Hyperparameters:  # fmt: skip
    """Change one hyperparameter at a time as long as the error on held-out functions falls; coarsely first."""

    @functools.cache
    def whole(fold: int, transforms: tuple[tuple[str, str], ...]) -> Problem:
        return Problem.fit(folds[fold].train, transforms, encoder)

    @functools.cache
    def problem(fold: int, transforms: tuple[tuple[str, str], ...], functions: int) -> Problem:
        return whole(fold, transforms).first(functions)

    best = start
    for number, stage in enumerate(stages):
        best = descend(folds, best, number, stage, trials, problem)
    return best


def descend(
    folds: Sequence[Fold], best: Hyperparameters, number: int, stage: Stage, trials: Trials,
    problem: Callable[[int, tuple[tuple[str, str], ...], int], Problem],
) -> Hyperparameters:  # fmt: skip
    """One stage of the search."""
    known: dict[Hyperparameters, Trial] = {}

    def run(hyper: Hyperparameters) -> Trial:
        begun = time.perf_counter()
        errors, iterations = [], 0
        for i, (_, held) in enumerate(folds):
            operator, found = problem(i, hyper.transforms, stage.functions).solve(hyper, stage.ranks, ACCURACY)
            errors.append(float(mean_error(operator, held.u, held.y, held.s)))
            iterations = max(iterations, found.iterations)
        error = float(np.mean(errors))
        return Trial(number, hyper, error if np.isfinite(error) else 1e9, iterations, time.perf_counter() - begun)

    trials_left, iterations_left = stage.trials, stage.iterations

    def error(hyper: Hyperparameters) -> float:
        nonlocal trials_left, iterations_left
        if hyper not in known:
            if trials_left <= 0 or iterations_left <= 0:
                return math.inf
            known[hyper] = trials.get(number, hyper, lambda: run(hyper))
            trials_left, iterations_left = trials_left - 1, iterations_left - known[hyper].iterations
        return known[hyper].error

    def walk(best: Hyperparameters, factor: float) -> Hyperparameters:
        """Make moves of one size as long as one of them lowers the error."""
        few = number > 0
        moved, hopeless = error(best) < math.inf, set[tuple[int, int]]()
        while moved:
            moved = False
            for choice in range(len(list(best.moves(factor, few=few)))):
                for direction in (each for each in range(2) if (choice, each) not in hopeless):
                    before = best
                    while error(hyper := moved_by(best, factor, few, choice, direction)) < GAIN * error(best):
                        best = hyper
                    if error(hyper) > HOPELESS * error(best):
                        hopeless.add((choice, direction))
                    if best is not before:
                        moved = True
                        break
        return best

    if number == 0:
        for change in transforms_to_try(folds[0].train):
            transforms = tuple(sorted({**dict(best.transforms), **change}.items()))
            best = min(best, dataclasses.replace(best, transforms=transforms), key=error)
    for factor in stage.factors:
        best = walk(best, factor)
        if number == 0 and stage.nugget and factor == stage.factors[0]:
            budget = trials_left, iterations_left
            trials_left, iterations_left = NUGGET_TRIALS, stage.iterations // 4
            nugget = min(best.with_nugget(), key=error)
            if error(nugget) < NUGGET_GAIN * error(best):
                best = walk(nugget, factor)
            trials_left, iterations_left = budget
    return best


def moved_by(best: Hyperparameters, factor: float, few: bool, choice: int, direction: int) -> Hyperparameters:
    """The hyperparameters after one move."""
    return dataclasses.replace(best, **list(best.moves(factor, few=few))[choice][direction])


@eqx.filter_jit
def mean_error(operator: GaussianOperator, u: Input, queries: Queries, s: Float[Array, "N P d_s"]) -> Float[Array, ""]:
    """The mean relative L2 error."""
    return jnp.mean(relative_l2(operator.predict(u, queries), s))


def amplitudes(operator: GaussianOperator, held: Samples) -> tuple[float, ...]:
    """Factors of σ² with which 90 % of the labels of held-out functions are within the interval for 90 %."""
    held = held.take(jnp.arange(min(HELD, len(held))))
    held = held.observe(jax.random.key(0), min(HELD_LABELS, held.y.count))
    scores = standardized_errors(operator, held.u, held.y, held.s)
    return tuple(((jnp.quantile(scores, 0.9, axis=(0, 1)) / NORMAL_QUANTILE) ** 2).tolist())


def transforms_to_try(data: Samples) -> list[Mapping[str, str]]:
    """Logarithms of positive inputs, and means and scales per location of outputs."""
    found: list[Mapping[str, str]] = []
    of_inputs = (column for column in columns(data) if column.side == "input")
    positive = [column.variable.name for column in of_inputs if is_positive(column.flat())]
    if positive:
        found.append(dict.fromkeys(positive, "log"))
    if labels_per_location(data.y, len(data)) >= LABELS:
        found.append({variable.name: "per-location" for variable in data.outputs})
    return found


def is_positive(values: Float[np.ndarray, " n"]) -> bool:
    """Whether a variable is positive and not constant."""
    return bool(np.ptp(values) > 0.0) and bool(values.min() > 0.0)


def labels_per_location(queries: Queries, functions: int) -> int:
    """The least number of labels at a location; 0 if functions do not share locations."""
    match queries:
        case Shared():
            return functions
        case Indexed(y, index):
            return int(np.bincount(np.asarray(index).ravel(), minlength=len(y)).min())
    return 0
