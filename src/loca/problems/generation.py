"""Generate the pairs of a problem with any number of workers and write them to a store."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import Executor

import jax
import numpy as np

from loca.data import Arrays, Progress, Store, StoreSchema, versions, write_store
from loca.problems.problem import Problem
from loca.workers import one_thread

PIECES = 32
"""The smallest number of pieces into which the work is divided, so that several workers can share it."""


def generate(
    problem: Problem,
    count: int,
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Store:
    """Write the first `count` pairs of the sequence of a seed to a store.

    If the call is interrupted at any moment, the same call resumes it.

    **Arguments:**

    - `problem`: the problem to solve.
    - `count`: the number of pairs.
    - `path`: `FILE.zarr`, which exists only when it is complete; until then the work is in `FILE.zarr.partial`.
    - `seed`: determines the sequence of pairs.
    - `workers`: number of processes; with 1 the calling process does the work. In a script, more than one worker needs
      the usual `if __name__ == "__main__":`.
    - `executor`: any `concurrent.futures.Executor` to use instead, whose workers see the same files.
    - `progress`: called with the number of finished pairs and the total number.
    """
    if count < 1 or workers < 1:
        raise ValueError(f"count and workers must be at least 1, got count={count}, workers={workers}")
    m, M, d_u, d_s = len(problem.x), len(problem.y), len(problem.inputs), len(problem.outputs)
    schema = StoreSchema(
        count,
        problem.domain,
        problem.inputs,
        problem.outputs,
        once={"x": np.asarray(problem.x), "y": np.asarray(problem.y)},
        each={"u": np.empty((m, d_u), np.float32), "s": np.empty((M, d_s), np.float32)},
    )
    provenance = {
        "problem": type(problem).__qualname__,
        "arguments": problem.arguments,
        "seed": seed,
        "citation": problem.citation,
        "versions": versions(),
    }
    return write_store(
        path,
        schema,
        Pairs(problem, seed),
        provenance=provenance,
        block=min(problem.block, -(-count // PIECES)),
        workers=workers,
        executor=executor,
        progress=progress,
    )


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The sequence of pairs of a seed, as arrays in single precision."""

    problem: Problem
    seed: int

    def __call__(self, rows: range) -> Arrays:
        """Compute the pairs with these numbers."""
        with one_thread():  # so that sums are computed in the same order in this process and in workers
            u, s = self.problem.pairs(jax.random.key(self.seed), rows)
        return {"u": np.asarray(u, np.float32), "s": np.asarray(s, np.float32)}
