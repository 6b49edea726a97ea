"""MATLAB's .mat, versions 5 and 7.3."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from loca.data.files.formats import arrays
from loca.data.files.formats.layout import Layout, Names
from loca.data.files.formats.lazy import HDF5Array, hdf5
from loca.data.files.formats.sniff import hdf5_root, is_hdf5, start


def recognizes(path: Path) -> bool:
    """Whether the file says so, or its arrays carry MATLAB's classes."""
    if start(path)[:10] in (b"MATLAB 5.0", b"MATLAB 7.3"):
        return True
    if not is_hdf5(path):
        return False
    with hdf5_root(path) as root:
        return any("MATLAB_class" in root[name].attrs for name in root)


def read(path: Path, names: Names) -> Layout:
    """The arrays with the names that are asked for; version 7.3 is read row by row, version 5 as a whole."""
    if start(path)[:10] == b"MATLAB 5.0":
        from scipy import io

        listed = {name: tuple(shape) for name, shape, _ in io.whosmat(path)}
        return arrays.layout(path, listed, lambda name: numbers(path, name), names)
    # HDF5 counts axes in the order of C, MATLAB in that of Fortran: the same bytes, the axes reversed
    with hdf5_root(path) as root:
        listed = {name: stored.shape[::-1] for name, stored in root.items() if isinstance(stored, h5py.Dataset)}
    file = hdf5(path)
    return arrays.layout(path, listed, lambda name: HDF5Array(file, name, reverse=True), names)


def numbers(path: Path, name: str) -> np.ndarray:
    """One array of version 5."""
    from scipy import io

    array = io.loadmat(path, variable_names=[name])[name]
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name!r} of {path} is a cell or structure, not an array of numbers; save its arrays by name")
    return array
