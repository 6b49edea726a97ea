"""Rows of the arrays of a Zarr group, read many at once, with every bit of them checked."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from loca.durable import CorruptDataError

INDEX_BYTES = 16
"""Of every sample, where in its shard it lies; read again for every batch unless there is room to keep it."""

CACHE_BYTES = 2**22
"""Room besides, for samples on their way."""


def with_tensorstore() -> bool:
    """Whether tensorstore is installed."""
    return importlib.util.find_spec("tensorstore") is not None


class RowReader:
    """Rows of some arrays of a Zarr group: with tensorstore if it is installed, else with zarr-python.

    **Arguments:**

    - `path`: the directory of the group.
    - `names`: its arrays whose first axis is that of the samples.
    - `count`: how many samples there are.
    """

    def __init__(self, path: Path, names: Sequence[str], count: int):
        self.path = path
        self.arrays = open_with_tensorstore(path, names, count) if with_tensorstore() else open_with_zarr(path, names)

    def __call__(self, rows: Int[np.ndarray, " B"]) -> dict[str, np.ndarray]:
        """These rows of every array, in the order given."""
        try:
            # all reads are begun before the first is waited for
            begun = {name: array.read(rows) for name, array in self.arrays.items()}
            return {name: result() for name, result in begun.items()}
        except (ValueError, OSError) as error:
            self.blame(rows, error)
            raise

    def blame(self, rows: Int[np.ndarray, " B"], error: Exception) -> None:
        """Say which samples cannot be read, if it is the samples that cannot be read."""
        for name, array in self.arrays.items():
            bad = [row for row in np.unique(rows).tolist() if not readable(array, row)]
            if bad:
                few = ", ".join(map(str, bad[:5])) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
                raise CorruptDataError(
                    f"{self.path}: array '{name}', chunk of sample {few}: the bytes do not match their checksum. "
                    "The file was damaged after it was written; restore it from a copy, or delete it and make it again "
                    "with `loca generate` or `loca convert`"
                ) from error


def readable(array: Any, row: int) -> bool:
    """Whether one row can be read."""
    try:
        array.read(np.array([row]))()
    except (ValueError, OSError):
        return False
    return True


def open_with_tensorstore(path: Path, names: Sequence[str], count: int) -> dict[str, Any]:
    """Arrays that read in parallel and outside of Python."""
    import tensorstore

    index_bytes = INDEX_BYTES * count * len(names)
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES + 2 * index_bytes}})
    opened = [
        tensorstore.open(
            {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{(path / name).absolute()}/"}},
            context=context,
            read=True,
        )
        for name in names
    ]
    return {name: TensorstoreRows(future.result()) for name, future in zip(names, opened, strict=True)}


def open_with_zarr(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Arrays that read without further libraries."""
    import zarr

    group = zarr.open_group(path, mode="r")
    return {name: ZarrRows(group[name]) for name in names}


class TensorstoreRows:
    """Rows of one array, by tensorstore."""

    def __init__(self, array: Any):
        self.array = array

    def read(self, rows: Int[np.ndarray, " B"]) -> Any:
        """Begin to read; a call of the result waits for the rows."""
        return self.array[rows].read().result


class ZarrRows:
    """Rows of one array, by zarr-python."""

    def __init__(self, array: Any):
        self.array = array

    def read(self, rows: Int[np.ndarray, " B"]) -> Any:
        """Nothing is begun; a call of the result reads the rows."""
        return lambda: np.asarray(self.array.oindex[rows])
