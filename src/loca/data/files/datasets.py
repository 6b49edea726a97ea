"""Data sets in files, read when indexed: HDF5 arrays, the result of every reader, and several data sets as one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
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


@dataclasses.dataclass(frozen=True)
class Layout:
    """A labeled data set that is still in its file, and the roles that its format gives to the variables.

    **Arguments:**

    - `dataset`: the variables, read when indexed.
    - `sample`: the dimension that counts the pairs (u, s); None if the format does not define it.
    - `inputs`, `outputs`: names of the variables that make up u and s.
    - `time`: the dimension along which the variables are trajectories; u is their start and s the rest.
    - `parameters`: scalars per sample; those that differ between samples are inputs as well.
    - `periods`: the periods of the periodic coordinates.
    - `parts`: for every array of the file that became several variables, their names.
    """

    dataset: xarray.Dataset
    sample: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    time: str | None = None
    parameters: tuple[str, ...] = ()
    periods: Mapping[str, float] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def named(self, names: Iterable[str]) -> tuple[str, ...]:
        """The variables with these names; the name of a vector stands for all its components."""
        return tuple(part for name in names for part in self.parts.get(name, (name,)))


@dataclasses.dataclass(frozen=True)
class Names:
    """Names that the user gave for arrays in files without labels, and whether outputs may be missing."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    sensors: str | None = None
    queries: str | None = None
    unsolved: bool = False


def numbered(name: str, field: xarray.Variable, dim: str = "channel") -> dict[str, xarray.Variable]:
    """The channels of an array as variables: `name` if there is one channel, otherwise `name_1`, `name_2`, …."""
    if dim not in field.dims:
        return {name: field}
    count = field.sizes[dim]
    return {name if count == 1 else f"{name}_{i + 1}": field.isel({dim: i}) for i in range(count)}


class Concatenated(BackendArray):
    """Variables of several files, concatenated along one axis and read when indexed."""

    def __init__(self, parts: Sequence[xarray.Variable], axis: int):
        self.parts, self.axis = parts, axis
        self.starts = list(itertools.accumulate((part.shape[axis] for part in parts), initial=0))
        self.shape = (*parts[0].shape[:axis], self.starts[-1], *parts[0].shape[axis + 1 :])
        self.dtype = np.result_type(*[part.dtype for part in parts])

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple) -> Any:
        selected = key[self.axis]
        single = isinstance(selected, int | np.integer)
        rows = np.atleast_1d(np.arange(self.shape[self.axis])[selected])
        axis = remaining_axis(key, self.axis)
        blocks, places = [], []
        for part, start, stop in zip(self.parts, self.starts, self.starts[1:], strict=False):
            here = np.flatnonzero((start <= rows) & (rows < stop))
            if len(here):
                local = as_slice(rows[here] - start)
                blocks.append(part[(*key[: self.axis], local, *key[self.axis + 1 :])].to_numpy())
                places.append(here)
        if not blocks:
            return self.parts[0][(*key[: self.axis], slice(0, 0), *key[self.axis + 1 :])].to_numpy()
        values = np.concatenate(blocks, axis).astype(self.dtype, copy=False)
        order = np.argsort(np.concatenate(places))
        values = values if (order == np.arange(len(order))).all() else np.take(values, order, axis)
        return np.take(values, 0, axis) if single else values


def join(
    datasets: Sequence[xarray.Dataset], sample: str, files: Sequence[Path], names: Sequence[str]
) -> xarray.Dataset:
    """Combine the data sets of several files without reading them.

    Files that hold the same variables out of `names` are concatenated along the sample. Files that hold different
    ones, such as temperature and pressure, are merged.
    """
    kinds: dict[tuple[str, ...], list[int]] = {}
    for i, dataset in enumerate(datasets):
        kinds.setdefault(tuple(name for name in names if name in dataset.variables), []).append(i)
    if len(kinds) > 1 and () in kinds:
        raise ValueError(f"{files[kinds[()][0]]} holds none of {', '.join(names)}; leave it out")
    whole = [concatenate([datasets[i] for i in kind], sample, [files[i] for i in kind]) for kind in kinds.values()]
    if len(whole) == 1:
        return whole[0]
    try:
        return xarray.merge(whole, join="exact", compat="override")
    except ValueError as error:
        apart = " and of ".join(", ".join(kind) for kind in kinds)
        raise ValueError(f"the files of {apart} do not have the same samples and grids: {error}") from error


def concatenate(datasets: Sequence[xarray.Dataset], sample: str, files: Sequence[Path]) -> xarray.Dataset:
    """Concatenate the data sets of several files along the sample without reading them.

    Coordinates that do not depend on the sample, such as the grid, must be equal in all files. Other variables that do
    not depend on the sample but differ between files, such as parameters, become variables that do. Variables that
    are missing in some files are dropped.
    """
    first = datasets[0]
    variables: dict[str, xarray.Variable] = {}
    for name, kept in first.variables.items():
        if name in first.data_vars and not all(name in other for other in datasets):
            continue
        parts = [
            check_same(first, other, str(name), sample, files[0], file)
            for other, file in zip(datasets, files, strict=True)
        ]
        if sample not in kept.dims and all(kept.equals(part) for part in parts[1:]):
            variables[str(name)] = kept
            continue
        if sample not in kept.dims:
            counts = [dataset.sizes[sample] for dataset in datasets]
            parts = [part.set_dims({sample: n, **part.sizes}) for part, n in zip(parts, counts, strict=True)]
        dims = parts[0].dims
        joined = variable(dims, Concatenated(parts, dims.index(sample)), kept.attrs)
        variables[str(name)] = joined.load() if dims == (sample,) else joined
    coords = {name: variables.pop(str(name)) for name in first.coords}
    return xarray.Dataset(variables, coords, first.attrs)


def check_same(
    first: xarray.Dataset, other: xarray.Dataset, name: str, sample: str, first_file: Path, file: Path
) -> xarray.Variable:
    """The variable of the other file; raises unless it can be concatenated with that of the first file."""
    if name not in other.variables:
        raise ValueError(f"{file} has no variable {name!r}, but {first_file} has; open only files of one kind together")
    here, there = first.variables[name], other.variables[name]
    sizes = {dim: size for dim, size in here.sizes.items() if dim != sample}
    same = here.dims == there.dims and sizes == {dim: size for dim, size in there.sizes.items() if dim != sample}
    if same and name in first.coords and sample not in here.dims:
        same = here.equals(there)
    if not same:
        raise ValueError(
            f"{name!r} differs between {first_file} {dict(here.sizes)} and {file} {dict(there.sizes)}; "
            f"files that are opened together may differ only along {sample!r}"
        )
    return there
