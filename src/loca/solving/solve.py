"""`solve`: from data to a Gaussian operator, without training."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from loca.data import Records, Samples
from loca.durable import is_started, write_request
from loca.encoders import Encoder
from loca.models import GaussianOperator
from loca.solving.hyperparameters import Hyperparameters
from loca.solving.problem import Accuracy, Problem, Ranks
from loca.solving.search import HEADER, Fold, Stage, Trial, Trials, search, table_row
from loca.training import data_digest

RANKS = Ranks(2048, 1024)
"""The number of features of inputs and of locations, at most, unless given."""

ACCURACY = Accuracy(tolerance=1e-4, limit=300)
"""Of the last solve."""

HELD = 200
"""Functions held out for the search, at most; a fifth of the data if that is less."""

FEW = 100
"""Data with fewer functions than this is split into three folds, each of which is held out once."""

EXAMPLES = 4096
"""Functions of a stream for the search, the normalization, the encoder and the landmarks."""


@dataclasses.dataclass(frozen=True)
class SolveReport:
    """How an operator was found; prints as a table.

    **Arguments:**

    - `trials`: of the search.
    - `hyperparameters`: the best of them.
    - `iterations`, `residual`: of the last solve.
    - `seconds`, `solve_seconds`: in total, and of the last solve alone.
    """

    trials: tuple[Trial, ...]
    hyperparameters: Hyperparameters
    iterations: int
    residual: float
    seconds: float
    solve_seconds: float

    def __str__(self) -> str:
        last = f"solved in {self.solve_seconds:.1f} s, {self.iterations} iterations, residual {self.residual:.1e}"
        return "\n".join([HEADER, *map(table_row, self.trials), f"{last}; {self.seconds:.1f} s in total"])


def solve(
    data: Samples | Records,
    *,
    validation: Samples | None = None,
    hyperparameters: Hyperparameters | None = None,
    ranks: tuple[int, int] = RANKS,
    encoder: Encoder | None = None,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    progress: bool | None = None,
) -> tuple[GaussianOperator, SolveReport]:
    """Find the Gaussian operator that predicts held-out functions best.

    Hyperparameters are searched for on few functions with few features first. The last solve uses all functions.

    **Arguments:**

    - `data`: training functions in memory or in a file. Those in a file are read block by block, so that memory does
      not grow with their number.
    - `validation`: functions to choose hyperparameters on; by default a part of the data, which the last solve uses too.
    - `hyperparameters`: skip the search.
    - `ranks`: the number of features of inputs and of locations, at most. More are more accurate and slower.
    - `encoder`: of the inputs; by default their principal components.
    - `seed`: determines which functions are held out, and which are landmarks.
    - `directory`: where the trials of the search are stored. If the process is killed, the same call resumes.
    - `mesh`: devices that share the functions of the last solve.
    - `progress`: show the search as a table, and the residual of the last solve; by default in a terminal.

    **Returns:**

    The operator and a report.
    """
    start = time.perf_counter()
    show = sys.stderr.isatty() if progress is None else progress
    order = np.random.default_rng(seed).permutation(len(data))
    example = data.take(jnp.asarray(order)) if isinstance(data, Samples) else data.load(np.sort(order[:EXAMPLES]))
    trials = Trials(None if directory is None else prepared(Path(directory), data, validation, seed, ranks), show=show)
    best = hyperparameters
    if best is None:
        axes = 1 if example.domain.is_geographic else example.domain.dimension
        best = Hyperparameters(location_lengths=(0.5,) * axes)
        if len(example) >= 5 or validation is not None:
            best = search(folds(example, validation), best, stages(Ranks(*ranks)), trials, encoder)
    begun = time.perf_counter()
    problem = Problem.fit(example, best.transforms, encoder)
    report = show_iteration if show else None
    if isinstance(data, Samples):
        operator, found = problem.solve(best, Ranks(*ranks), ACCURACY, report, mesh)
    else:
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            streamed = problem.solve_streamed
            operator, found = streamed(data, Path(scratch), best, Ranks(*ranks), ACCURACY, report, mesh)
    if show:
        print(file=sys.stderr)  # noqa: T201
    now = time.perf_counter()
    return operator, SolveReport(tuple(trials.rows), best, found.iterations, found.residual, now - start, now - begun)


def prepared(
    directory: Path, data: Samples | Records, validation: Samples | None, seed: int, ranks: tuple[int, int]
) -> Path:
    """The directory of a search, after a check that it was not started for other data."""
    directory.mkdir(parents=True, exist_ok=True)
    digests = {"data": data_digest(data), "validation": None if validation is None else data_digest(validation)}
    request = {"provenance": {}, **digests, "seed": seed, "ranks": list(ranks)}
    if not is_started(directory, request):
        write_request(directory, request)
    return directory


def folds(data: Samples, validation: Samples | None) -> list[Fold]:
    """What the search compares predictions with."""
    if validation is not None:
        return [Fold(data, validation.take(jnp.arange(min(HELD, len(validation)))))]
    rows = np.arange(len(data))
    held = [rows[i::3] for i in range(3)] if len(data) < FEW else [rows[-min(HELD, len(data) // 5) :]]
    return [Fold(data.take(jnp.asarray(np.setdiff1d(rows, each))), data.take(jnp.asarray(each))) for each in held]


def stages(ranks: Ranks) -> list[Stage]:
    """Many trials with few functions and features, then a few with more."""
    small = Ranks(min(400, ranks.inputs), min(256, ranks.locations))
    medium = Ranks(min(1000, ranks.inputs), min(768, ranks.locations))
    return [Stage(400, small, (4.0, 2.0), 60), Stage(1000, medium, (2.0,), 14)]


def show_iteration(count: int, residual: float) -> None:
    """Show the progress of the last solve."""
    print(f"\riteration {count}, residual {residual:.1e}", end="", file=sys.stderr)  # noqa: T201
