"""Pairs of functions in files, read on demand or streamed in shuffled batches."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from loca.data.samples import Samples, Variable, batch_rows
from loca.domains import Domain
from loca.typing import Key

if TYPE_CHECKING:  # importing xarray takes as long as importing everything else
    import xarray


Rows = slice | Sequence[int] | np.ndarray
"""A selection of the N pairs: a slice or a list of numbers."""


def numbered_rows(rows: Rows, count: int) -> Int[np.ndarray, " B"]:
    """The numbers, out of `count`, of these rows; negative ones count from the end."""
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    chosen = np.asarray(rows)
    return np.arange(count)[chosen if chosen.size else slice(0)]


def as_slice(rows: np.ndarray) -> slice | np.ndarray:
    """The same rows, as a slice if they are consecutive."""
    if not len(rows):
        return slice(0, 0)
    return slice(int(rows[0]), int(rows[-1]) + 1) if (np.diff(rows) == 1).all() else rows


def pieces(rows: range, size: int) -> list[range]:
    """Consecutive ranges of this size; the last may be smaller."""
    return [range(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]


class Records(abc.ABC):
    """N labeled pairs (u, s) that stay in their files until they are loaded.

    `loca.data.open` returns records for every format. They can be loaded, streamed, converted, checked and plotted.
    """

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    domain: Domain
    source: str
    """The file name, for messages."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    def __repr__(self) -> str:
        names = ", ".join(v.name for v in self.inputs), ", ".join(v.name for v in self.outputs) or "?"
        kind = type(self).__name__
        return f"{kind}({self.source!r}: {len(self)} pairs, {names[0]} → {names[1]}, {self.domain})"

    def select(self, rows: Rows) -> Part:
        """A subset of the pairs, still in their file."""
        return Part(self, numbered_rows(rows, len(self)))

    @abc.abstractmethod
    def load(self, rows: Rows = slice(None)) -> Samples:
        """Read these pairs into memory, in single precision."""

    @abc.abstractmethod
    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        """Output functions, such as predictions for these rows, with the coordinates, names and units of the data."""


class Part(Records):
    """A subset of the pairs of other records, left in their file, with P labels of each function.

    The labels of a function depend only on the key and on its number in the file, so they are the same whether the
    pairs are loaded at once or streamed.

    **Arguments:**

    - `whole`: the records to select from.
    - `rows`: numbers of the pairs, in the desired order.
    - `key`, `labels`: keep this number of labels of every function; by default all.
    """

    def __init__(
        self, whole: Records, rows: Int[np.ndarray, " N"], *, key: Key | None = None, labels: int | None = None
    ):
        if (key is None) != (labels is None):
            raise ValueError("`labels` and `key` belong together; pass both to keep random labels of every function")
        self.whole, self.rows, self.key, self.labels = whole, np.asarray(rows), key, labels
        self.inputs, self.outputs, self.domain, self.source = whole.inputs, whole.outputs, whole.domain, whole.source

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, rows: Rows = slice(None)) -> Samples:
        chosen = self.rows[rows]
        samples = self.whole.load(chosen)
        if self.key is None or self.labels is None:
            return samples
        return samples.observe(jax.vmap(jax.random.fold_in, (None, 0))(self.key, jnp.asarray(chosen)), self.labels)

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        return self.whole.label(s, self.rows[rows])


_rows = jax.jit(batch_rows, static_argnames=("size", "count"))

STEPS, AHEAD = 2**31, 2
"""More steps than any run takes, and the number of batches that each thread reads ahead."""


class Stream(Iterator[Samples]):
    """The batches `Samples.batch(seed, step, size)` of steps `start`, `start` + 1, … without end, read ahead.

    Its state is `step`, the number of the next step: a stream with that `start` continues exactly, and at no cost.

    **Arguments:**

    - `records`: a `Store`, or anything else that `loca.data.open` returns; only a store has fast random access.
    - `size`: functions per step, over all processes together.
    - `seed`: determines the order, together with the number of the step.
    - `start`: the first step.
    - `process`: (i, n) for the i-th of n processes; each process reads its own part of every batch.
    - `threads`: number of threads, each of which reads some batches ahead.
    """

    def __init__(
        self,
        records: Records,
        *,
        size: int,
        seed: int,
        start: int = 0,
        process: tuple[int, int] = (0, 1),
        threads: int = 2,
    ):
        index, processes = process
        if not 0 <= index < processes:
            raise ValueError(f"expected process=(i, n) with 0 ≤ i < n, got process={process}")
        if size % processes:
            raise ValueError(f"batches of {size} cannot be divided evenly among {processes} processes")
        try:
            import grain
        except ImportError as error:
            raise ImportError("streaming needs additional libraries: pip install loca-jax[stream]") from error
        self.size, self.seed, self.process, self.step, self.count = size, seed, process, start, len(records)
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=AHEAD * threads)
        batches = grain.MapDataset.range(start, STEPS).map(lambda step: records.load(self.rows(step)))
        self.batches: Any = iter(batches.to_iter_dataset(options))

    def rows(self, step: int) -> Int[np.ndarray, " B"]:
        """The numbers of the functions that this process reads at a step."""
        index, processes = self.process
        part = self.size // processes
        with jax.default_device(jax.local_devices(backend="cpu")[0]):  # a few integers are not worth a transfer
            rows = _rows(self.seed, step, self.size, self.count)
        return np.asarray(rows)[index * part : (index + 1) * part]

    def __next__(self) -> Samples:
        batch = next(self.batches)
        self.step += 1
        return batch

    def close(self) -> None:
        """Stop reading ahead."""
        self.batches.close()
