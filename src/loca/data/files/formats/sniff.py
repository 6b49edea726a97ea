"""Telling formats apart by what is inside the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py


def start(path: Path) -> bytes:
    """The first bytes of a file, none of a folder."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(32)


def is_hdf5(path: Path) -> bool:
    """Whether this is HDF5, perhaps behind a header of something else."""
    return path.is_file() and h5py.is_hdf5(path)


@contextmanager
def hdf5_root(path: Path) -> Iterator[Any]:
    """The root of an HDF5 file; what its members are is not for types to say."""
    with h5py.File(path, "r") as file:
        yield file
