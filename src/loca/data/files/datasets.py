"""Data sets in files, read when indexed: what readers return, NetCDF, Zarr, arrays of HDF5, several files as one."""

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray
from xarray.backends import BackendArray, CachingFileManager

# the module that xarray's guide to writing backends names; tests/data/test_formats.py reads through all of it
from xarray.core import indexing

from loca.data.records import as_slice
from loca.domains import Domain


@dataclasses.dataclass(frozen=True)
class Roles:
    """The roles that the user gave to the contents of files, as in `open`; empty or None where the format decides."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    sample: str | None = None
    sensors: str | None = None
    queries: str | None = None
    unsolved: bool = False


@dataclasses.dataclass(frozen=True)
class Layout:
    """A labeled data set that is still in its file, and the roles that its format gives to the variables."""

    dataset: xarray.Dataset  # read when indexed
    sample: str | None = None  # the dimension that counts the pairs (u, s); None if the format does not define it
    inputs: tuple[str, ...] = ()  # names of the variables that make up u
    outputs: tuple[str, ...] = ()  # and s
    time: str | None = None  # the dimension along which variables are trajectories; u is their start and s the rest
    parameters: tuple[str, ...] = ()  # scalars per sample; those that differ between samples are inputs as well
    periods: Mapping[str, float] = dataclasses.field(default_factory=dict)  # of the periodic coordinates
    parts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)  # variables of an array, by name
    domain: Callable[[], Domain | None] | None = None  # that of variables on nodes, if the file describes it

    def named(self, names: Iterable[str]) -> tuple[str, ...]:
        """The variables with these names; the name of a vector stands for all its components."""
        return tuple(part for name in names for part in self.parts.get(name, (name,)))


def read_netcdf(path: Path, roles: Roles) -> Layout:
    """The variables of NetCDF 3 or 4, or any other HDF5, decoded by the CF conventions: packing, fill values, dates."""
    if h5py.is_hdf5(path):
        return Layout(_decoded(path, engine="h5netcdf", phony_dims="sort"))
    return Layout(_decoded(path, engine="scipy"))


def read_zarr(path: Path, roles: Roles) -> Layout:
    """The variables of a Zarr group written by xarray."""
    return Layout(_decoded(path, engine="zarr", consolidated=False))


def _decoded(path: Path, **backend: object) -> xarray.Dataset:
    """Open a data set without reading it; times in calendars that cannot be decoded stay numbers."""
    options = {"chunks": None, "cache": False, "decode_timedelta": False, **backend}
    with warnings.catch_warnings():
        # old files define two fill values; xarray masks both and warns
        warnings.filterwarnings("ignore", message=".*multiple fill values", category=xarray.SerializationWarning)
        try:
            return xarray.open_dataset(path, **options)
        except ValueError as error:
            if "decode time" not in str(error):
                raise
            return xarray.open_dataset(path, decode_times=False, **options)


class FileArray(BackendArray):
    """An array that is read when indexed, at numbers, slices or one-dimensional arrays of numbers along its axes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    support = indexing.IndexingSupport.OUTER_1VECTOR

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, self.support, self._read)

    def _read(self, key: tuple) -> Any:
        raise NotImplementedError

    def variable(self, dims: Sequence[Hashable], attrs: Mapping | None = None) -> xarray.Variable:
        """The array with named axes, still in its file."""
        return xarray.Variable(dims, indexing.LazilyIndexedArray(self), attrs)


def hdf5(path: Path) -> CachingFileManager:
    """A file manager that opens an HDF5 file for reading when needed, in another process too."""
    return CachingFileManager(h5py.File, str(path), mode="r")


class HDF5Array(FileArray):
    """An array of an HDF5 file; `reverse` reverses the axes, which MATLAB stores in the opposite order."""

    def __init__(self, file: CachingFileManager, name: str, *, reverse: bool = False):
        self.file, self.name, self.reverse = file, name, reverse
        stored = file.acquire()[name]
        self.shape, self.dtype = stored.shape[::-1] if reverse else stored.shape, stored.dtype

    def _read(self, key: tuple) -> Any:
        stored = self.file.acquire()[self.name]
        return self._rows(stored, key[::-1]).T if self.reverse else self._rows(stored, key)

    def _rows(self, stored: Any, key: tuple) -> np.ndarray:
        axis = next((i for i, k in enumerate(key) if isinstance(k, np.ndarray)), None)
        if axis is None or stored.chunks is None or not len(key[axis]):
            return stored[key]
        # for scattered rows of a chunked array, HDF5's own selection is five times slower than reading run by run
        runs = np.split(key[axis], np.flatnonzero(np.diff(key[axis]) != 1) + 1)
        blocks = [stored[(*key[:axis], as_slice(run), *key[axis + 1 :])] for run in runs]
        return np.concatenate(blocks, _remaining_axis(key, axis))


class Concatenated(FileArray):
    """Variables of several files, concatenated along one axis."""

    support = indexing.IndexingSupport.OUTER

    def __init__(self, parts: Sequence[xarray.Variable], axis: int):
        self.parts, self.axis = parts, axis
        self.starts = list(itertools.accumulate((part.shape[axis] for part in parts), initial=0))
        self.shape = (*parts[0].shape[:axis], self.starts[-1], *parts[0].shape[axis + 1 :])
        self.dtype = np.result_type(*[part.dtype for part in parts])

    def _read(self, key: tuple) -> Any:
        selected = key[self.axis]
        rows = np.atleast_1d(np.arange(self.shape[self.axis])[selected])
        axis = _remaining_axis(key, self.axis)
        blocks, places = [], []
        for part, start, stop in zip(self.parts, self.starts, self.starts[1:], strict=False):
            here = np.flatnonzero((start <= rows) & (rows < stop))
            if len(here) or start == 0:
                local = as_slice(rows[here] - start)
                blocks.append(part[(*key[: self.axis], local, *key[self.axis + 1 :])].to_numpy())
                places.append(here)
        values = np.concatenate(blocks, axis).astype(self.dtype, copy=False)
        values = np.take(values, np.argsort(np.concatenate(places)), axis)
        return np.take(values, 0, axis) if isinstance(selected, int | np.integer) else values


def _remaining_axis(key: tuple, axis: int) -> int:
    """The number of an axis after indexing, which removes the axes indexed by a single number."""
    return sum(not isinstance(k, int | np.integer) for k in key[:axis])


def numbered(name: str, field: xarray.Variable) -> dict[str, xarray.Variable]:
    """The channels of an array as variables: `name` if there is one channel, otherwise `name_1`, `name_2`, …."""
    if "channel" not in field.dims:
        return {name: field}
    count = field.sizes["channel"]
    return {name if count == 1 else f"{name}_{i + 1}": field.isel(channel=i) for i in range(count)}


def concatenate(datasets: Sequence[xarray.Dataset], sample: str, files: Sequence[Path]) -> xarray.Dataset:
    """Concatenate the data sets of several files along the sample without reading them.

    Coordinates that do not depend on the sample, such as the grid, must be equal in all files. Other variables that do
    not depend on the sample but differ between files, such as parameters, become variables that do. Variables that
    are missing in some files are dropped.
    """
    first = datasets[0]
    if len(datasets) == 1:
        return first
    variables: dict[str, xarray.Variable] = {}
    for name, kept in first.variables.items():
        if name in first.data_vars and not all(name in other for other in datasets):
            continue
        for other, file in zip(datasets, files, strict=True):
            _check_same(first, other, str(name), sample, files[0], file)
        parts = [dataset.variables[name] for dataset in datasets]
        if sample not in kept.dims:
            if all(kept.equals(part) for part in parts[1:]):
                variables[str(name)] = kept
                continue
            counts = [dataset.sizes[sample] for dataset in datasets]
            parts = [part.set_dims({sample: n, **part.sizes}) for part, n in zip(parts, counts, strict=True)]
        dims = parts[0].dims
        joined = Concatenated(parts, dims.index(sample)).variable(dims, kept.attrs)
        variables[str(name)] = joined.load() if dims == (sample,) else joined
    coords = {name: variables.pop(str(name)) for name in first.coords}
    return xarray.Dataset(variables, coords, first.attrs)


def _check_same(
    first: xarray.Dataset, other: xarray.Dataset, name: str, sample: str, first_file: Path, file: Path
) -> None:
    if name not in other.variables:
        raise ValueError(f"{file} has no variable {name!r}, but {first_file} has; open only files of one kind together")
    here, there = first.variables[name], other.variables[name]
    sizes = [[item for item in each.sizes.items() if item[0] != sample] for each in (here, there)]
    same = here.dims == there.dims and sizes[0] == sizes[1]
    if same and name in first.coords and sample not in here.dims:
        same = here.equals(there)
    if not same:
        raise ValueError(
            f"{name!r} differs between {first_file} {dict(here.sizes)} and {file} {dict(there.sizes)}; "
            f"files that are opened together may differ only along {sample!r}"
        )
