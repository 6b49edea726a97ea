"""The search for hyperparameters on held-out functions: a loop over trials."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from loca.data import Indexed, Samples, Shared, channels
from loca.durable import Resumable, json_digest
from loca.encoders import Encoder
from loca.gaussian.equation import Ranks, has_structure
from loca.gaussian.hyperparameters import Hyperparameters, moves, with_nugget
from loca.gaussian.progress import Lines
from loca.gaussian.relevance import with_relevances
from loca.gaussian.trials import Comparison, Fold, Path
from loca.metrics import relative_l2

NOT_FINITE = 1e9
"""The error of a trial whose predictions are not finite."""

GAIN = 0.995
"""A move must lower the error by half a percent."""

NUGGET_GAIN = 0.985
"""A nugget, with which an iteration can take several times as long, must lower the error by 1.5 percent."""

BRANCH_TRIALS = 12
"""Trials with a nugget, and with a length for each part of the inputs, at most."""

PARTS = 32
"""Parts of the inputs that have a length of their own, at most."""

STRUCTURE_GAIN, STRUCTURES = 0.98, (0.25, 0.5)
"""A structure tensor, which takes more memory, must lower the error by two percent; the weights that are tried."""

HOPELESS = 1.15
"""A move that raises the error by more than this factor is not tried again from other hyperparameters."""

FLAT = 1.005
"""A number that, larger or smaller, raises the error by less than this factor is not changed by smaller factors."""

LABELS = 5
"""The least number of labels at each location from which means and scales per location are tried."""


# ---- one trial -------------------------------------------------------------------------------------------------------


class Trial(NamedTuple):
    """The mean relative L2 error on held-out functions of one choice of hyperparameters."""

    stage: int
    hyperparameters: Hyperparameters
    error: float
    iterations: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The trial as JSON can hold it."""
        return self._asdict() | {"hyperparameters": dataclasses.asdict(self.hyperparameters)}


def trial(folds: Sequence[Comparison], hyper: Hyperparameters, ranks: Ranks, stage: int = 0, path: Path = ()) -> Trial:
    """Solve for the training functions of every fold, and compare predictions for those that are held out."""
    begun = time.perf_counter()
    errors, iterations = [], 0
    for fold in folds:
        try:
            error, count = fold.error(hyper, ranks, path)
        except FloatingPointError:
            error, count = math.inf, 0
        errors.append(error)
        iterations = max(iterations, count)
    error = float(np.mean(errors))
    return Trial(stage, hyper, error if math.isfinite(error) else NOT_FINITE, iterations, time.perf_counter() - begun)


def error_of_the_mean(fold: Fold) -> float:
    """The mean relative L2 error of the mean of all training labels, or of those at each location if that is less."""
    s, held = np.asarray(fold.train.s, float), np.asarray(fold.held.s, float)
    means = [s.mean(axis=(0, 1))]
    if isinstance(fold.train.y, Shared) and s.shape[1] == held.shape[1]:
        means.append(s.mean(axis=0))
    errors = (relative_l2(np.broadcast_to(mean, held.shape), held) for mean in means)
    return min(float(np.mean(each, where=(held != 0.0).any(axis=1))) for each in errors)


# ---- the loop --------------------------------------------------------------------------------------------------------


class Stage(NamedTuple):
    """One stage of the search.

    The numbers of trials and of their iterations limit the time, and unlike the time they are the same whenever the
    search is repeated. The last trial may exceed the iterations.
    """

    functions: int  # the number of training functions of a trial
    ranks: Ranks
    factors: tuple[float, ...]  # by which hyperparameters change, one after the other
    trials: int
    iterations: int
    nugget: bool = False  # whether a nugget is tried after the moves of the first factor; only the first stage does


def search(
    folds: Sequence[Fold], best: Hyperparameters, stages: Sequence[Stage], *, encoder: Encoder | None = None,
    work: Resumable | None = None, show: Lines | None = None, first: int = 0,
) -> tuple[Hyperparameters, list[Trial]]:  # fmt: skip
    """Change one hyperparameter at a time as long as the error on held-out functions falls; coarsely first.

    The search starts at `best`, and returns the best hyperparameters and all trials. `work` keeps the trials, so that
    it can resume. Without an encoder, inputs have principal components. Stages are counted from `first` on.
    """
    trials, show = list[Trial](), show or Lines(on=False)
    names = folds[0].own.names
    is_structured = encoder is None and any(has_structure(x) for _, x in folds[0].train.fields)

    def run(number: int, stage: Stage, hyper: Hyperparameters, path: Path) -> Trial:
        def compute() -> dict[str, Any]:
            compared = [fold.comparison(hyper.of_codes, encoder, stage.functions) for fold in folds]
            return trial(compared, hyper, stage.ranks, number, path).as_json()

        key = json_digest([number, names, dataclasses.asdict(hyper)])
        row = compute() if work is None else work.once(key, compute)
        trials.append(Trial(**{**row, "hyperparameters": hyper}))
        show(table_row(trials[-1]), now=show.is_terminal)
        return trials[-1]

    def with_lengths(hyper: Hyperparameters, path: Path) -> list[Hyperparameters]:
        def compute() -> list[list[float]]:
            return lengths_of_inputs(folds, hyper, stages[0], path) if encoder is None else []

        found = compute() if work is None else work.once(json_digest(["relevances", first, names]), compute)
        labels = folds[0].train.y.count
        return with_relevances(hyper, np.mean(found, axis=0), labels) if found else []

    show(HEADER, now=True)
    for number, stage in enumerate(stages, first):
        descent = Descent(functools.partial(run, number, stage), stage, is_first=number == first)
        if number == first:
            best = descent.try_transforms(best, transforms_to_try(folds[0].train))
        for factor in stage.factors:
            best = descent.walk(best, factor)
            if number == first and factor == stage.factors[0]:
                best = descent.branch(best, factor, with_lengths(best, descent.path), GAIN)
                weights = STRUCTURES if is_structured else ()
                structured = [dataclasses.replace(best, structure=weight) for weight in weights]
                best = descent.branch(best, None, structured, STRUCTURE_GAIN)
                best = descent.branch(best, factor, with_nugget(best) if stage.nugget else [], NUGGET_GAIN)
        show(table_row(trials[-1]), now=not show.is_terminal)
    return best, trials


def lengths_of_inputs(folds: Sequence[Fold], hyper: Hyperparameters, stage: Stage, path: Path) -> list[list[float]]:
    """What leaving functions out tells of a length for each part of the inputs, for each fold; nothing of one part."""
    grouped, found = dataclasses.replace(hyper, relevances=(1.0,)), []
    for fold in folds:
        values = fold.comparison(hyper.of_codes, None, stage.functions).completed(stage.ranks, path)
        train = fold.comparison(grouped.of_codes, None, stage.functions).train
        if values is None or train.groups is None or not 1 <= train.groups.max(initial=0) < PARTS:
            return []
        found.append(train.left_out(hyper.damping, values).minimized().tolist())
    return found


class Descent:
    """One stage of the search: moves from the best hyperparameters while trials and iterations are left."""

    def __init__(self, run: Callable[[Hyperparameters, Path], Trial], stage: Stage, *, is_first: bool):
        self.run, self.stage, self.is_first = run, stage, is_first
        self.trials_left, self.iterations_left = stage.trials, stage.iterations
        self.known: dict[Hyperparameters, float] = {}
        self.path: Path = ()
        self.flat: set[int] = set()

    def error(self, hyper: Hyperparameters) -> float:
        """The error on held-out functions; infinite if no trial is left."""
        if hyper not in self.known:
            if self.trials_left <= 0 or self.iterations_left <= 0:
                return math.inf
            found = self.run(hyper, self.path)
            self.known[hyper] = found.error
            self.trials_left, self.iterations_left = self.trials_left - 1, self.iterations_left - found.iterations
        return self.known[hyper]

    def walk(self, best: Hyperparameters, factor: float) -> Hyperparameters:
        """Make moves of one size as long as one of them lowers the error."""
        few, moved, hopeless = not self.is_first, self.error(best) < math.inf, set[tuple[int, int]]()
        self.path = self.path if best in self.path[-1:] else (best,)
        while moved:
            moved = False
            for choice in (each for each in range(len(moves(best, factor, few))) if each not in self.flat):
                before = best
                for direction in (each for each in range(2) if (choice, each) not in hopeless):
                    hyper = moves(best, factor, few)[choice][direction]
                    while self.error(hyper) < GAIN * self.error(best):
                        best, self.path = hyper, (*self.path, hyper)
                        hyper = moves(best, factor, few)[choice][direction]
                    if self.error(hyper) > HOPELESS * self.error(best):
                        hopeless.add((choice, direction))
                    if best is not before:
                        moved = True
                        break
                tried = best is before and hopeless.isdisjoint({(choice, 0), (choice, 1)})
                if tried and max(map(self.error, moves(best, factor, few)[choice])) < FLAT * self.error(best):
                    self.flat.add(choice)
        return best

    def try_transforms(self, best: Hyperparameters, changes: Sequence[Mapping[str, str]]) -> Hyperparameters:
        """Keep the transforms that lower the error."""
        for change in changes:
            transforms = tuple(sorted({**dict(best.transforms), **change}.items()))
            best = min(best, dataclasses.replace(best, transforms=transforms), key=self.error)
        return best

    def branch(
        self, best: Hyperparameters, factor: float | None, others: Sequence[Hyperparameters], gain: float
    ) -> Hyperparameters:
        """Keep others, and move from there if there is a factor, if they lower the error by enough.

        Their trials are not among those of the stage.
        """
        budget = self.trials_left, self.iterations_left
        self.trials_left, self.iterations_left = BRANCH_TRIALS, self.stage.iterations // 4
        other = min(others, key=self.error, default=best)
        if self.error(other) < gain * self.error(best):
            best = other if factor is None else self.walk(other, factor)
        self.trials_left, self.iterations_left = budget
        return best


COLUMNS = ("length", "damping", "linear", "noise", "nugget", "error", "seconds")
HEADER = "stage" + "".join(f"{name:>9}" for name in COLUMNS) + "  lengths in y"


def table_row(trial: Trial) -> str:
    """One line of the table of trials."""
    h = trial.hyperparameters
    lengths = " ".join(f"{each:.3g}" for each in h.location_lengths)
    return (
        f"{trial.stage:>5}{h.length:>9.3g}{h.damping:>9.2g}{h.linear:>9.3g}{h.noise:>9.2g}{h.nugget:>9.2g}"
        f"{trial.error:>9.5f}{trial.seconds:>9.1f}  {lengths}"
    )


# ---- transforms ------------------------------------------------------------------------------------------------------


def transforms_to_try(data: Samples) -> list[Mapping[str, str]]:
    """Logarithms of positive inputs, and means and scales per location of outputs."""
    found: list[Mapping[str, str]] = []
    inputs = ((column.variable.name, column.flat()) for column in channels(data) if column.side == "input")
    positive = [name for name, values in inputs if np.ptp(values) > 0.0 and values.min() > 0.0]
    if positive:
        found.append(dict.fromkeys(positive, "log"))
    labels = len(data) if isinstance(data.y, Shared) else 0  # the least number at a location
    if isinstance(data.y, Indexed):
        labels = np.bincount(np.asarray(data.y.index).ravel(), minlength=len(data.y.points)).min()
    if labels >= LABELS:
        found.append({variable.name: "per-location" for variable in data.outputs})
    return found
