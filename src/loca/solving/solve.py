"""`solve`: from data to a Gaussian operator, without training."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Samples
from loca.encoders import Encoder
from loca.models import GaussianOperator
from loca.solving.hyperparameters import Hyperparameters
from loca.solving.problem import Accuracy, Problem, Ranks
from loca.solving.search import Fold, Stage, Trial, Trials, search

RANKS = Ranks(2048, 1024)
"""The largest number of features that `solve` takes without being asked."""

ACCURACY = Accuracy(tolerance=1e-4, limit=300)
"""Of the last solve."""

HELD = 200
"""Functions held out for the search, at most; a fifth of the data if that is less."""

FEW = 100
"""Data with fewer functions than this is split into three folds, each held out once."""


@dataclasses.dataclass(frozen=True)
class SolveReport:
    """How an operator was found.

    **Arguments:**

    - `trials`: of the search.
    - `hyperparameters`: the best of them.
    - `iterations`, `residual`: of the last solve.
    - `seconds`: in total, and of the last solve alone.
    """

    trials: tuple[Trial, ...]
    hyperparameters: Hyperparameters
    iterations: int
    residual: float
    seconds: float
    solve_seconds: float

    def __str__(self) -> str:
        rows = [row(trial) for trial in self.trials]
        last = f"solved in {self.solve_seconds:.1f} s, {self.iterations} iterations, residual {self.residual:.1e}"
        return "\n".join([HEADER, *rows, f"{last}; {self.seconds:.1f} s in total"])


HEADER = f"{'stage':>5} {'length':>8} {'damping':>8} {'linear':>8} {'noise':>9} {'error':>9} {'seconds':>8}  lengths in y"


def row(trial: Trial) -> str:
    """One line of the table."""
    h = trial.hyperparameters
    lengths = " ".join(f"{each:.3g}" for each in h.location_lengths)
    names = "".join(f", {transform} of {name}" for name, transform in h.transforms)
    return (
        f"{trial.stage:>5} {h.length:>8.3g} {h.damping:>8.2g} {h.linear:>8.3g} {h.noise:>9.2g} "
        f"{trial.error:>9.5f} {trial.seconds:>8.1f}  {lengths}{names}"
    )


def solve(
    data: Samples,
    *,
    validation: Samples | None = None,
    hyperparameters: Hyperparameters | None = None,
    ranks: tuple[int, int] = RANKS,
    encoder: Encoder | None = None,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> tuple[GaussianOperator, SolveReport]:
    """Find the Gaussian operator that predicts held-out functions best.

    **Arguments:**

    - `data`: training functions.
    - `validation`: functions to choose hyperparameters on; by default a part of the data, which the last solve uses too.
    - `hyperparameters`: skip the search.
    - `ranks`: the number of features of inputs and of locations, at most.
    - `encoder`: of the inputs; by default their principal components.
    - `seed`: determines which functions are held out, and which are landmarks.
    - `directory`: keeps the trials of the search. If the process is killed, the same call resumes the search.
    - `progress`: print the trials as a table; by default in a terminal.

    **Returns:**

    The operator and a report.
    """
    start = time.perf_counter()
    show = sys.stderr.isatty() if progress is None else progress
    data = data.take(jnp.asarray(np.random.default_rng(seed).permutation(len(data))))
    trials = Trials(None if directory is None else Path(directory), print_row if show else None)
    axes = 1 if data.domain.is_geographic else data.domain.dimension
    best = hyperparameters
    if best is None:
        best = Hyperparameters(location_lengths=(0.5,) * axes)
        if show:
            print(HEADER, file=sys.stderr)
        if len(data) >= 5 or validation is not None:
            best = search(folds_of(data, validation), best, stages_of(data, Ranks(*ranks)), trials, encoder)
    begun = time.perf_counter()
    operator, found = Problem.fit(data, best.transforms, encoder).solve(best, Ranks(*ranks), ACCURACY, show_iteration if show else None)
    seconds = time.perf_counter()
    report = SolveReport(tuple(trials.rows), best, found.iterations, found.residual, seconds - start, seconds - begun)
    return operator, report


def folds_of(data: Samples, validation: Samples | None) -> list[Fold]:
    """What the search compares predictions with."""
    if validation is not None:
        return [Fold(data, validation.take(jnp.arange(min(HELD, len(validation)))))]
    count = len(data)
    rows = np.arange(count)
    held = [rows[i::3] for i in range(3)] if count < FEW else [rows[-min(HELD, count // 5) :]]
    return [Fold(data.take(jnp.asarray(np.setdiff1d(rows, each))), data.take(jnp.asarray(each))) for each in held]


def stages_of(data: Samples, ranks: Ranks) -> list[Stage]:
    small = Ranks(min(400, ranks.inputs), min(256, ranks.locations))
    medium = Ranks(min(1024, ranks.inputs), min(768, ranks.locations))
    return [Stage(400, small, (4.0, 2.0), 60), Stage(1000, medium, (2.0,), 14)]


def print_row(trial: Trial) -> None:
    print(row(trial), file=sys.stderr)


def show_iteration(count: int, residual: float) -> None:
    print(f"\riteration {count}, residual {residual:.1e}", end="", file=sys.stderr)
