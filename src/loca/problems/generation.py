"""Pairs of a problem, computed by any number of workers and kept in a store."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import Executor

import jax
import numpy as np

from loca.data.store import Arrays, Progress, Store, StoreSchema, versions, write_store
from loca.problems.problem import Problem
from loca.workers import one_thread

PIECES = 32
"""Into how many pieces little work is cut at least, for several workers to share."""


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
    """Write the first `count` pairs of a seed's sequence; stopped at any moment, the same call goes on where it was.

    **Arguments:**

    - `path`: `FILE.zarr`, which is there only when it is whole; until then there is `FILE.zarr.partial`.
    - `workers`: how many processes compute; with 1 it is this one. In a script, more than one need the usual
      `if __name__ == "__main__":`.
    - `executor`: any `concurrent.futures.Executor` to compute instead, whose workers see the same files.
    - `progress`: called with how many pairs are done, and of how many.
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
    """The pairs of the sequence that a seed stands for, as arrays in single precision."""

    problem: Problem
    seed: int

    def __call__(self, rows: range) -> Arrays:
        """Those with these numbers."""
        with one_thread():  # so that sums come in the same order in this process and in workers
            u, s = self.problem.pairs(jax.random.key(self.seed), rows)
        return {"u": np.asarray(u, np.float32), "s": np.asarray(s, np.float32)}
