"""Any records as a store."""

from __future__ import annotations

import dataclasses
import hashlib
import os

import numpy as np

from loca.data.records import Records, Rows
from loca.data.store.layout import Arrays, StoreLayout, content_digest, sample_digests, take_apart
from loca.data.store.store import Store
from loca.data.store.writing import Progress, versions, write_store

PIECE_BYTES = 2**24
"""About how much is read at a time."""


def convert(
    records: Records, path: str | os.PathLike[str], *, rows: Rows = slice(None), progress: Progress | None = None
) -> Store:
    """Write records, or some rows of them, as a store; stopped at any moment, the same call goes on where it was.

    **Arguments:**

    - `records`: what `loca.data.open` gives.
    - `path`: `FILE.zarr`, which is there only when it is whole; until then there is `FILE.zarr.partial`.
    - `progress`: called with how many samples are done, and of how many.
    """
    numbers = np.arange(len(records))[rows if isinstance(rows, slice) else np.asarray(rows)]
    if not len(numbers):
        raise ValueError(f"no rows of {records.source} were chosen; it has {len(records)}")
    once, each = take_apart(records.load(numbers[[0, -1]]))
    example = {name: array[0] for name, array in each.items()}
    layout = StoreLayout(len(numbers), records.domain, records.inputs, records.outputs, once, example)
    provenance = {
        "source": records.source,
        "rows": describe(numbers),
        "first and last": content_digest({}, sample_digests(each)),  # another choice from an equal name is not the same
        "versions": versions(),
    }
    return write_store(
        path,
        layout,
        Chosen(records, numbers),
        provenance=provenance,
        block=max(1, PIECE_BYTES // sum(array.nbytes for array in example.values())),
        progress=progress,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """The arrays of some rows of records, counted anew."""

    records: Records
    numbers: np.ndarray

    def __call__(self, rows: range) -> Arrays:
        """Those of a few of them."""
        return take_apart(self.records.load(self.numbers[rows.start : rows.stop]))[1]


def describe(numbers: np.ndarray) -> str:
    """Rows as first:last:step if they are evenly spaced, else by their digest."""
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    if np.array_equal(numbers, numbers[0] + step * np.arange(len(numbers))):
        return f"{numbers[0]}:{numbers[-1]}:{step}"
    return "sha256:" + hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()
