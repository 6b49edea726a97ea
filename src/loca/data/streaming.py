"""Batches of data too large for memory, in the same order as batches of samples in memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from loca.data.records import Records
from loca.data.samples import Samples, batch_rows

STEPS = 2**31
"""More steps than any run takes; the order of samples has no end."""

AHEAD = 2
"""Number of batches that each thread reads ahead."""


def stream(
    records: Records, *, size: int, seed: int, start: int = 0, process: tuple[int, int] = (0, 1), threads: int = 2
) -> Stream:
    """The batches `Samples.batch(seed, step, size)` of steps `start`, `start` + 1, …, read ahead by threads.

    **Arguments:**

    - `records`: a `Store`, or anything else that `loca.data.open` returns; only a store has fast random access.
    - `size`: functions per step, over all processes together.
    - `seed`: determines the order, together with the number of the step.
    - `start`: the first step.
    - `process`: (i, n) for the i-th of n processes; each process reads its own part of every batch.
    - `threads`: number of batches that are read at the same time.
    """
    index, processes = process
    if not 0 <= index < processes:
        raise ValueError(f"expected process=(i, n) with 0 ≤ i < n, got process={process}")
    if size % processes:
        raise ValueError(
            f"batches of {size} cannot be divided evenly among {processes} processes; pass a multiple of {processes}"
        )
    if start < 0 or threads < 1:
        raise ValueError(f"expected start ≥ 0 and at least one thread, got start={start}, threads={threads}")
    return Stream(records, size, seed, start, process, threads)


class Stream(Iterator[Samples]):
    """An endless iterator of batches, created by `stream`.

    Its state is the number of the next step, so `get_state` and `set_state` are exact and cost nothing.
    """

    def __init__(self, records: Records, size: int, seed: int, step: int, process: tuple[int, int], threads: int):
        self.records, self.size, self.seed, self.process, self.threads = records, size, seed, process, threads
        self.rows_of = jax.jit(functools.partial(batch_rows, size=size, count=len(records)))
        self.step = step
        self.batches = self.begin(step)

    def rows(self, step: int) -> Int[np.ndarray, " B"]:
        """The numbers of the functions that this process reads at a step."""
        index, processes = self.process
        part = self.size // processes
        with jax.default_device(jax.local_devices(backend="cpu")[0]):  # a few integers are not worth a transfer
            rows = self.rows_of(self.seed, step)
        return np.asarray(rows)[index * part : (index + 1) * part]

    def read(self, step: int) -> Samples:
        """Read the batch of a step."""
        return self.records.load(self.rows(step))

    def begin(self, step: int) -> Any:
        """Start the threads that read batches from this step on."""
        try:
            import grain
        except ImportError as error:
            raise ImportError("streaming needs additional libraries: pip install loca-jax[stream]") from error
        options = grain.ReadOptions(num_threads=self.threads, prefetch_buffer_size=AHEAD * self.threads)
        return iter(grain.MapDataset.range(step, STEPS).map(self.read).to_iter_dataset(options))

    def __next__(self) -> Samples:
        batch = next(self.batches)
        self.step += 1
        return batch

    def get_state(self) -> dict[str, int]:
        """The state from which `set_state` resumes with the next batch."""
        return {"step": self.step}

    def set_state(self, state: dict[str, int]) -> None:
        """Resume with the batch of the step in `state`."""
        self.close()
        self.step = state["step"]
        self.batches = self.begin(self.step)

    def close(self) -> None:
        """Stop reading ahead."""
        self.batches.close()
