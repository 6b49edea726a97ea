"""Arrays that stay in their files until they are indexed."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray
from xarray.backends import BackendArray, CachingFileManager
from xarray.backends.locks import HDF5_LOCK
from xarray.core import indexing


class HDF5Array(BackendArray):
    """One array of an HDF5 file.

    The file is opened when it is needed, and again in another process: the array can be sent there.

    **Arguments:**

    - `file`: the manager of the file, from `hdf5`.
    - `name`: the path of the array inside the file.
    - `reverse`: whether its axes run the other way round, as MATLAB stores them.
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
            return gather(stored, key[::-1]).T if self.reverse else gather(stored, key)


def gather(stored: Any, key: tuple) -> np.ndarray:
    """Some rows of an array in a file.

    HDF5 itself gathers scattered rows from one contiguous block six times as fast as one by one, but from chunks five
    times slower.
    """
    axis = next((i for i, k in enumerate(key) if isinstance(k, np.ndarray)), None)
    if axis is None or stored.chunks is None or not len(key[axis]):
        return stored[key]
    runs = np.split(key[axis], np.flatnonzero(np.diff(key[axis]) != 1) + 1)
    blocks = [stored[(*key[:axis], as_slice(run), *key[axis + 1 :])] for run in runs]
    return np.concatenate(blocks, remaining_axis(key, axis))


class Concatenated(BackendArray):
    """Variables of several files, one after the other along one axis."""

    def __init__(self, parts: Sequence[xarray.Variable], axis: int):
        self.parts, self.axis = parts, axis
        self.starts = list(itertools.accumulate((part.shape[axis] for part in parts), initial=0))
        self.shape = (*parts[0].shape[:axis], self.starts[-1], *parts[0].shape[axis + 1 :])
        self.dtype = np.result_type(*[part.dtype for part in parts])

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._read)

    def _read(self, key: tuple) -> Any:
        asked = key[self.axis]
        single = isinstance(asked, int | np.integer)
        rows = np.atleast_1d(np.arange(self.shape[self.axis])[asked])
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


def remaining_axis(key: tuple, axis: int) -> int:
    """Where an axis is after indexing: those asked for by a single number disappear."""
    return sum(not isinstance(k, int | np.integer) for k in key[:axis])


def as_slice(rows: np.ndarray) -> slice | np.ndarray:
    """The same rows as a slice if they follow each other, since files read these at once."""
    follow = (np.diff(rows) == 1).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if follow else rows


def hdf5(path: Path) -> CachingFileManager:
    """The manager of an HDF5 file that is to be read."""
    return CachingFileManager(h5py.File, str(path), mode="r")


def variable(dims: Sequence[Hashable], array: BackendArray, attrs: dict | None = None) -> xarray.Variable:
    """A labeled variable whose values stay where they are."""
    return xarray.Variable(dims, indexing.LazilyIndexedArray(array), attrs)


def join(
    datasets: Sequence[xarray.Dataset], sample: str, files: Sequence[Path], names: Sequence[str]
) -> xarray.Dataset:
    """Data sets of several files as one, none of them read.

    Files that hold the same of the variables in `names` follow each other along the sample; what different files hold
    of them, such as temperature and pressure, is put side by side.
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
    """Data sets of several files as one with more samples, none of them read.

    Coordinates that do not depend on the sample, such as the grid, have to be the same in all files. A variable that
    does not depend on it but differs between files, such as a parameter, becomes one that does. Variables that only
    some of the files hold are left out.
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
    """The variable of the other file, if it fits together with that of the first."""
    if name not in other.variables:
        raise ValueError(f"{file} has no variable {name!r}, but {first_file} has; open files of one kind together")
    here, there = first.variables[name], other.variables[name]
    sizes = {dim: size for dim, size in here.sizes.items() if dim != sample}
    same = here.dims == there.dims and sizes == {dim: size for dim, size in there.sizes.items() if dim != sample}
    if same and name in first.coords and sample not in here.dims:
        same = here.equals(there)
    if not same:
        raise ValueError(
            f"{name!r} differs between {first_file} {dict(here.sizes)} and {file} {dict(there.sizes)}; "
            f"files opened together may differ along {sample!r} only"
        )
    return there
