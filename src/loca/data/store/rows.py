"""Rows of Zarr arrays, read and written with tensorstore if it is installed, else with zarr-python."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from loca.durable import CorruptDataError

INDEX_BYTES = 16
"""Bytes per sample of a shard's index; it is read again for every batch unless the cache can hold it."""

CACHE_BYTES = 2**22
"""Additional cache, for samples that are being read."""


def with_tensorstore() -> bool:
    """Whether tensorstore is installed."""
    return importlib.util.find_spec("tensorstore") is not None


class RowReader:
    """Reads rows of arrays of a Zarr group and checks every bit of them.

    **Arguments:**

    - `path`: the directory of the group.
    - `names`: the arrays, whose first axis counts the samples.
    - `count`: the number of samples.
    """

    def __init__(self, path: Path, names: Sequence[str], count: int):
        self.path = path
        self.arrays = open_with_tensorstore(path, names, count) if with_tensorstore() else open_with_zarr(path, names)

    def __call__(self, rows: Int[np.ndarray, " B"]) -> dict[str, np.ndarray]:
        """Read these rows of every array, in the order given."""
        try:
            # all reads are started before the first is awaited
            started = {name: array.read(rows) for name, array in self.arrays.items()}
            return {name: result() for name, result in started.items()}
        except (ValueError, OSError) as error:
            self.check_rows(rows, error)
            raise

    def check_rows(self, rows: Int[np.ndarray, " B"], error: Exception) -> None:
        """Raise `CorruptDataError` that names the samples that cannot be read, if there are any."""
        for name, array in self.arrays.items():
            bad = [row for row in np.unique(rows).tolist() if not is_readable(array, row)]
            if bad:
                few = ", ".join(map(str, bad[:5])) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
                raise CorruptDataError(
                    f"{self.path}: array '{name}', chunk of sample {few}: the bytes do not match their checksum. "
                    "The file was damaged after it was written; restore it from a copy, or delete it and create it "
                    "again with `loca generate` or `loca convert`"
                ) from error


def is_readable(array: Any, row: int) -> bool:
    """Whether one row can be read."""
    try:
        array.read(np.array([row]))()
    except (ValueError, OSError):
        return False
    return True


def open_with_tensorstore(path: Path, names: Sequence[str], count: int) -> dict[str, Any]:
    """Arrays that are read in parallel, without Python's lock."""
    import tensorstore

    index_bytes = INDEX_BYTES * count * len(names)
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES + 2 * index_bytes}})
    opened = [tensorstore.open(tensorstore_spec(path / name), context=context, read=True) for name in names]
    return {name: TensorstoreRows(future.result()) for name, future in zip(names, opened, strict=True)}


def tensorstore_spec(path: Path) -> dict[str, Any]:
    """How tensorstore finds an array."""
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path.absolute()}/"}}


def open_with_zarr(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Arrays that are read without optional dependencies."""
    import zarr

    group = zarr.open_group(path, mode="r")
    return {name: ZarrRows(group[name]) for name in names}


class TensorstoreRows:
    """Rows of one array, read by tensorstore."""

    def __init__(self, array: Any):
        self.array = array

    def read(self, rows: Int[np.ndarray, " B"]) -> Any:
        """Start to read, and return a function that waits for the rows."""
        return self.array[rows].read().result


class ZarrRows:
    """Rows of one array, read by zarr-python."""

    def __init__(self, array: Any):
        self.array = array

    def read(self, rows: Int[np.ndarray, " B"]) -> Any:
        """Return a function that reads the rows."""
        return lambda: np.asarray(self.array.oindex[rows])


def write_rows(path: Path, rows: range, values: np.ndarray) -> None:
    """Write the rows of one shard of an array; both libraries do so atomically."""
    if with_tensorstore():
        import tensorstore

        spec = {**tensorstore_spec(path), "store_data_equal_to_fill_value": True}
        opened = tensorstore.open(spec, write=True).result()
        opened[rows.start : rows.stop].write(values).result()
    else:  # the same, more slowly
        import zarr

        with zarr.config.set({"array.write_empty_chunks": True}):  # `config=` is for new arrays only
            array = zarr.open_array(path, mode="r+")
        array[rows.start : rows.stop] = values
