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


@contextmanager
def hdf5_root(path: Path) -> Iterator[Any]:
    """The root of an HDF5 file, or an empty one if the file is none; what its members are is not for types to say."""
    if not path.is_file() or not h5py.is_hdf5(path):
        yield {}
        return
    with h5py.File(path, "r") as file:
        yield file
