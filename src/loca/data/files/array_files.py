"""Files of arrays without labels: NumPy's .npz, and MATLAB's .mat in versions 5 and 7.3.

Names and shapes decide which array is input, output, sensors or queries.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import h5py
import numpy as np
import xarray

from loca.data.files.datasets import HDF5Array, Layout, Names, first_bytes, hdf5, hdf5_root, is_hdf5, numbered, variable

Array = np.ndarray | HDF5Array

PAIRS = (("u", "s"), ("coeff", "sol"), ("a", "u"))
"""Common names of inputs and outputs: those of loca, and those of FNO's Darcy and Navier–Stokes files."""


def is_npz(path: Path) -> bool:
    """Whether the file is an archive of .npy files."""
    if first_bytes(path)[:4] != b"PK\x03\x04":
        return False
    with zipfile.ZipFile(path) as archive:
        return all(name.endswith(".npy") for name in archive.namelist())


def read_npz(path: Path, names: Names) -> Layout:
    """The selected arrays of an .npz file; only these are read, but completely."""
    return layout(path, npz_shapes(path), lambda name: npz_array(path, name), names)


def npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every array, read from its header alone."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                version = np.lib.format.read_magic(member)
                header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                found[name.removesuffix(".npy")] = header(member)[0]
    return found


def npz_array(path: Path, name: str) -> np.ndarray:
    """Read one array; arrays of Python objects are refused, because reading them can run any code."""
    with np.load(path, allow_pickle=False) as archive:
        try:
            return archive[name]
        except ValueError as error:
            if "Object arrays" not in str(error):
                raise
            raise ValueError(
                f"{name!r} of {path} holds Python objects, which are not read because reading them can run code. "
                "If you trust the file, load it yourself and save its numbers as one array: "
                f"np.savez(path, {name}=np.stack(list({name}))); pad parts of different lengths with NaN first"
            ) from error


def is_matlab(path: Path) -> bool:
    """Whether the file starts with MATLAB's header, or is HDF5 whose arrays have MATLAB's classes."""
    if first_bytes(path)[:10] in (b"MATLAB 5.0", b"MATLAB 7.3"):
        return True
    if not is_hdf5(path):
        return False
    with hdf5_root(path) as root:
        return any("MATLAB_class" in root[name].attrs for name in root)


def read_matlab(path: Path, names: Names) -> Layout:
    """The selected arrays of a .mat file; version 7.3 is read row by row, version 5 completely."""
    if first_bytes(path)[:10] == b"MATLAB 5.0":
        from scipy import io

        listed = {name: tuple(shape) for name, shape, _ in io.whosmat(path)}
        return layout(path, listed, lambda name: matlab5_array(path, name), names)
    # HDF5 stores axes in C order, MATLAB in Fortran order: the bytes are the same, the axes reversed
    with hdf5_root(path) as root:
        listed = {name: stored.shape[::-1] for name, stored in root.items() if isinstance(stored, h5py.Dataset)}
    file = hdf5(path)
    return layout(path, listed, lambda name: HDF5Array(file, name, reverse=True), names)


def matlab5_array(path: Path, name: str) -> np.ndarray:
    """Read one array of a version 5 file."""
    from scipy import io

    array = io.loadmat(path, variable_names=[name])[name]
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name!r} of {path} is a cell or structure, not an array of numbers; save its arrays by name")
    return array


def layout(path: Path, shapes: Mapping[str, tuple[int, ...]], get: Callable[[str], Array], names: Names) -> Layout:
    """Named arrays as a labeled data set.

    Values have shape (N, m) or (N, m, channels) if their locations, of shape (m, d) or (N, m, d), are given as well.
    Otherwise they have shape (N, n₁, n₂, …) and live on a uniform grid from 0 to 1. An array of shape (N,) is one
    number per sample.

    **Arguments:**

    - `path`: the file, for messages.
    - `shapes`: the shapes of all arrays in the file.
    - `get`: reads one array.
    - `names`: the arrays that make up u, s, x and y; by default those in `PAIRS`, and "x" and "y" for "u" and "s".
    """
    found = next((pair for pair in PAIRS if set(pair) <= set(shapes)), None)
    if names.unsolved and found is None and "u" in shapes:
        found = PAIRS[0]
    inputs = names.inputs or ((found[0],) if found else ())
    outputs = names.outputs or ((found[1],) if found else ())
    is_unsolved = names.unsolved and not set(outputs) & set(shapes)
    ours = (inputs, outputs) == (("u",), ("s",))
    outputs = () if is_unsolved else outputs
    sensors = names.sensors or ("x" if ours and "x" in shapes else None)
    queries = None if is_unsolved else names.queries or ("y" if ours and "y" in shapes else None)
    wanted = [*inputs, *outputs, *filter(None, (sensors, queries))]
    missing = [name for name in wanted if name not in shapes]
    if missing or not inputs or not (outputs or is_unsolved):
        listed = "\n".join(f"  {name}{shape}" for name, shape in shapes.items())
        problem = f"has no array {', '.join(missing)}" if missing else "does not define its inputs and outputs"
        raise ValueError(f"{path} {problem}; pass inputs= and outputs=, and sensors= and queries=, among\n{listed}")
    u = Side(path, get, inputs, sensors, "sensor", "x")
    s = Side(path, get, outputs, queries, "query", "y")
    return Layout(
        xarray.Dataset({**u.variables, **s.variables}, {**u.coords, **s.coords}),
        "sample",
        tuple(u.variables),
        tuple(s.variables),
        parts={**u.parts, **s.parts},
    )


class Side:
    """The inputs or the outputs as labeled variables: arrays of values, and possibly one of locations."""

    def __init__(
        self, path: Path, get: Callable[[str], Array], names: tuple[str, ...], where: str | None, dim: str, letter: str
    ):
        self.variables: dict[str, xarray.Variable] = {}
        self.coords: dict[str, xarray.Variable] = {}
        self.parts: dict[str, tuple[str, ...]] = {}
        count = None
        if where is not None:
            points = np.asarray(labeled(get(where), ["a", "b", "c"]).to_numpy())
            points = points.T if points.ndim == 2 and points.shape[0] == 1 else points  # a row vector of MATLAB
            points = points[:, None] if points.ndim == 1 else points
            dims = ["sample", dim] if points.ndim == 3 else [dim]
            count = points.shape[-2]
            for i in range(points.shape[-1]):
                self.coords[f"{letter}{i + 1}"] = xarray.Variable(dims, points[..., i])
        for name in names:
            array = get(name)
            if count is None:
                dims = ["sample", *[f"{letter}{i}" for i in range(1, len(array.shape))]]
                self.variables[name] = labeled(array, dims)
                continue
            if len(array.shape) > 3 or (len(array.shape) > 1 and array.shape[1] != count):
                raise ValueError(
                    f"{name!r} of {path} has shape {array.shape} but {where!r} holds {count} locations; "
                    f"expected shape (N, {count}) or (N, {count}, channels)"
                )
            channels = numbered(name, labeled(array, ["sample", dim, "channel"]))
            self.variables |= channels
            self.parts[name] = tuple(channels)


def labeled(array: Array, dims: list[str]) -> xarray.Variable:
    """An array with named axes."""
    dims = dims[: len(array.shape)]
    return xarray.Variable(dims, array) if isinstance(array, np.ndarray) else variable(dims, array)
