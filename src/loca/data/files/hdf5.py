"""HDF5 files: recognizing them, and reading arrays only when they are indexed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray
from xarray.backends import BackendArray, CachingFileManager
from xarray.backends.locks import HDF5_LOCK
from xarray.core import indexing


def first_bytes(path: Path) -> bytes:
    """The first 32 bytes of a file; empty for a folder."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(32)


def is_hdf5(path: Path) -> bool:
    """Whether the file is HDF5, possibly behind the header of another format."""
    return path.is_file() and h5py.is_hdf5(path)


@contextmanager
def hdf5_root(path: Path) -> Iterator[Any]:
    """The root group of an HDF5 file. Untyped, because the types of its members are known only at run time."""
    with h5py.File(path, "r") as file:
        yield file


def hdf5(path: Path) -> CachingFileManager:
    """A file manager that opens an HDF5 file for reading when needed."""
    return CachingFileManager(h5py.File, str(path), mode="r")


class HDF5Array(BackendArray):
    """An array of an HDF5 file, read when indexed.

    It can be pickled: the file is opened when needed, and opened again in another process.

    **Arguments:**

    - `file`: the manager of the file, from `hdf5`.
    - `name`: the path of the array inside the file.
    - `reverse`: whether to reverse the axes, which MATLAB stores in the opposite order.
    """

    def __init__(self, file: CachingFileManager, name: str, *, reverse: bool = False):
        self.file, self.name, self.reverse = file, name, reverse
        with HDF5_LOCK:
            stored = file.acquire()[name]
            self.shape = stored.shape[::-1] if reverse else stored.shape
            self.dtype = stored.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER_1VECTOR
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple) -> Any:
        with HDF5_LOCK:
            stored = self.file.acquire()[self.name]
            return read_rows(stored, key[::-1]).T if self.reverse else read_rows(stored, key)


def read_rows(stored: Any, key: tuple) -> np.ndarray:
    """Read the selected rows of a stored array.

    For scattered rows of a contiguous array, HDF5's own selection is six times as fast as reading run by run; for a
    chunked array it is five times slower.
    """
    axis = next((i for i, k in enumerate(key) if isinstance(k, np.ndarray)), None)
    if axis is None or stored.chunks is None or not len(key[axis]):
        return stored[key]
    runs = np.split(key[axis], np.flatnonzero(np.diff(key[axis]) != 1) + 1)
    blocks = [stored[(*key[:axis], as_slice(run), *key[axis + 1 :])] for run in runs]
    return np.concatenate(blocks, remaining_axis(key, axis))


def remaining_axis(key: tuple, axis: int) -> int:
    """The number of an axis after indexing, which removes the axes indexed by a single number."""
    return sum(not isinstance(k, int | np.integer) for k in key[:axis])


def as_slice(rows: np.ndarray) -> slice | np.ndarray:
    """The same rows, as a slice if they are consecutive: files read slices in one go."""
    follow = (np.diff(rows) == 1).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows


def variable(dims: Sequence[Hashable], array: BackendArray, attrs: dict | None = None) -> xarray.Variable:
    """A labeled variable whose values stay in their file."""
    return xarray.Variable(dims, indexing.LazilyIndexedArray(array), attrs)
