"""Files of arrays without labels: NumPy's .npz, and MATLAB's .mat in versions 5 and 7.3.

Names and shapes decide which array is input, output, sensors or queries.
"""

import dataclasses
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
import scipy
import xarray

from loca.data.files.datasets import HDF5Array, Layout, Roles, hdf5, numbered

PAIRS = (("u", "s"), ("coeff", "sol"), ("a", "u"))
"""Common names of inputs and outputs: those of loca, and those of FNO's Darcy and Navier–Stokes files."""

Get = Callable[[str, Sequence[str]], xarray.Variable]
"""Reads the array with a name, and labels its axes."""

MOST_EXPANDED, RATIO = 2**28, 100
"""Arrays of more bytes that take a hundredth of them in their file, or less, are refused: few numbers are so regular,
and a small file could fill the memory."""


def _check_size(path: Path, name: str, shape: tuple[int, ...], item_bytes: int, stored: int) -> None:
    """Raise if an array that a file declares would take unreasonably much memory; `stored` is its size in the file."""
    size = int(np.prod(shape, dtype=object)) * item_bytes
    declared = f"{name!r} of {path} declares {size / 1e9:.3g} GB (shape {shape}) but takes {stored / 1e6:.3g} MB there"
    if size > MOST_EXPANDED and size > RATIO * stored:
        raise ValueError(f"{declared}: refused, because such files can fill the memory; save the array uncompressed")
    if size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise ValueError(f"{declared}, and is more than the memory; save it as NetCDF or Zarr, which are read in parts")


def read_npz(path: Path, roles: Roles) -> Layout:
    """The selected arrays of an .npz file; only these are read, but completely."""
    shapes, about = {}, {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                is_first = np.lib.format.read_magic(member) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
                name = info.filename.removesuffix(".npy")
                shapes[name], _, dtype = read(member)
                about[name] = dtype, info.compress_size

    def get(name: str, dims: Sequence[str]) -> xarray.Variable:
        dtype, stored = about[name]
        _check_size(path, name, shapes[name], dtype.itemsize, stored)
        if dtype.hasobject:
            raise ValueError(
                f"{name!r} of {path} holds Python objects, which are not read because reading them can run code. "
                "If you trust the file, load it yourself and save its numbers as one array: "
                f"np.savez(path, {name}=np.stack(list({name}))); pad parts of different lengths with NaN first"
            )
        with np.load(path, allow_pickle=False) as archive:
            return xarray.Variable(dims, archive[name])

    return _layout(path, shapes, get, roles)


def read_matlab(path: Path, roles: Roles) -> Layout:
    """The selected arrays of a .mat file; version 7.3 is read row by row, version 5 completely."""
    if not h5py.is_hdf5(path):
        shapes = {name: tuple(shape) for name, shape, _ in scipy.io.whosmat(path)}

        def get(name: str, dims: Sequence[str]) -> xarray.Variable:
            _check_size(path, name, shapes[name], 1, path.stat().st_size)
            array = scipy.io.loadmat(path, variable_names=[name])[name]
            if array.dtype.kind not in "fiub":
                raise ValueError(f"{name!r} of {path} is a cell or structure, not an array of numbers")
            return xarray.Variable(dims, array)

        return _layout(path, shapes, get, roles)
    # HDF5 stores axes in C order, MATLAB in Fortran order: the bytes are the same, the axes reversed
    file = hdf5(path)
    shapes = {name: stored.shape[::-1] for name, stored in file.acquire().items() if isinstance(stored, h5py.Dataset)}
    return _layout(path, shapes, lambda name, dims: HDF5Array(file, name, reverse=True).variable(dims), roles)


def _layout(path: Path, shapes: Mapping[str, tuple[int, ...]], get: Get, roles: Roles) -> Layout:
    """Named arrays as a labeled data set.

    Values have shape (N, m) or (N, m, channels) if their locations, of shape (m, d) or (N, m, d), are given as well.
    Otherwise they have shape (N, n₁, n₂, …) and live on a uniform grid from 0 to 1. An array of shape (N,) is one
    number per sample. The arrays that make up u, s, x and y are by default those in `PAIRS`, and "x" and "y" for "u"
    and "s". `shapes` are those of all arrays in the file.
    """
    known = next((pair for pair in PAIRS if set(pair) <= set(shapes)), None)
    if roles.unsolved and known is None and "u" in shapes:
        known = PAIRS[0]
    inputs = roles.inputs or (known[:1] if known else ())
    outputs = roles.outputs or (known[1:] if known else ())
    is_unsolved = roles.unsolved and not set(outputs) & set(shapes)
    ours = (inputs, outputs) == (("u",), ("s",))
    outputs = () if is_unsolved else outputs
    sensors = roles.sensors or ("x" if ours and "x" in shapes else None)
    queries = None if is_unsolved else roles.queries or ("y" if ours and "y" in shapes else None)
    missing = [name for name in (*inputs, *outputs, sensors, queries) if name is not None and name not in shapes]
    if missing or not inputs or not (outputs or is_unsolved):
        listed = "\n".join(f"  {name}{shape}" for name, shape in shapes.items())
        problem = f"has no array {', '.join(missing)}" if missing else "does not define its inputs and outputs"
        raise ValueError(f"{path} {problem}; pass inputs= and outputs=, and sensors= and queries=, among\n{listed}")
    sample, variables, coords, parts = roles.sample or "sample", {}, {}, {}
    for names, where, dim, letter in ((inputs, sensors, "sensor", "x"), (outputs, queries, "query", "y")):
        if where is not None:
            coords |= _locations(get, where, shapes[where], [sample, dim], letter)
        for name in names:
            shape = shapes[name]
            dims = [sample, *(f"{letter}{i}" for i in range(1, len(shape)))]
            if where is not None:
                count, dims = coords[f"{letter}1"].sizes[dim], [sample, dim, "channel"][: len(shape)]
                if len(shape) > 3 or (len(shape) > 1 and shape[1] != count):
                    raise ValueError(
                        f"{name!r} of {path} has shape {shape} but {where!r} holds {count} locations; "
                        f"expected shape (N, {count}) or (N, {count}, channels)"
                    )
            channels = numbered(name, get(name, dims))
            variables |= channels
            parts[name] = tuple(channels)
    found = Layout(xarray.Dataset(variables, coords), sample, parts=parts)
    return dataclasses.replace(found, inputs=found.named(inputs), outputs=found.named(outputs))


def _locations(
    get: Get, where: str, shape: tuple[int, ...], dims: list[str], letter: str
) -> dict[str, xarray.Variable]:
    axes = ["a", "b", "c"][: len(shape)]
    points = get(where, axes).transpose(*axes).to_numpy()
    points = points.T if points.ndim == 2 and points.shape[0] == 1 else points  # a row vector of MATLAB
    points = points[:, None] if points.ndim == 1 else points
    own = dims if points.ndim == 3 else dims[1:]
    return {f"{letter}{i + 1}": xarray.Variable(own, points[..., i]) for i in range(points.shape[-1])}
