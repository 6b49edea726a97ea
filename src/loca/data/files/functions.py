"""Functions in a labeled data set: their values, their locations, and the domain of these locations."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from loca.data.records import Rows
from loca.data.samples import Variable
from loca.domains import Box, Domain, Sphere, Torus

if TYPE_CHECKING:
    import xarray

SPATIAL = {"x", "y", "z"}
"""Variable names under which files store the locations of scattered points."""


class Functions:
    """Several variables of a data set, read as the channels of one function per sample.

    The dimensions of the variable with the most dimensions, except for the sample and those of length one, span the
    locations; variables that lack some of them are constant along these. A point that is missing (NaN) in the first
    sample, such as land in a map of the sea, is left out of all samples.

    **Arguments:**

    - `dataset`: labeled arrays, in files or in memory.
    - `names`: the variables, one channel each.
    - `sample`: the dimension that counts the functions.
    """

    def __init__(self, dataset: xarray.Dataset, names: Sequence[str], sample: str):
        self.dataset, self.names, self.sample = dataset, tuple(names), sample
        widest = dataset[max(names, key=lambda name: len(spanned(dataset[name], sample)))]
        self.columns = columns(widest, spanned(widest, sample), sample)
        # points are in the order of the columns, the last one varying fastest
        along = (str(dim) for column in self.columns for dim in column.dims)
        self.dims = tuple(dict.fromkeys(dim for dim in along if dim in spanned(widest, sample)))
        for name in names:
            foreign = set(spanned(dataset[name], sample)) - set(self.dims)
            if foreign:
                raise ValueError(
                    f"{name!r} has dimensions {dataset[name].dims} but {widest.name!r} has {widest.dims}: the channels "
                    "of a function must share their locations; interpolate one variable onto the grid of the other"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of locations along every dimension."""
        return tuple(self.dataset.sizes[dim] for dim in self.dims)

    @property
    def coordinates(self) -> tuple[Variable, ...]:
        """Names and units of the coordinates of the locations."""
        return tuple(Variable(str(column.name), unit(column)) for column in self.columns)

    @property
    def moving(self) -> bool:
        """Whether every function has its own locations."""
        return any(self.sample in column.dims for column in self.columns)

    @functools.cached_property
    def kept(self) -> Int[np.ndarray, " m"] | None:
        """The numbers of the locations that are not missing in the first sample; None if none are missing."""
        if self.moving:
            return None
        present = ~np.isnan(self._all_values(slice(0, 1))[0]).any(-1)
        if not present.any():
            raise ValueError(f"the first sample of {self.names} is missing (NaN) everywhere; select other samples")
        return None if present.all() else np.flatnonzero(present)

    def select(self, rows: Rows) -> Functions:
        """A subset of the functions, at the locations that are kept in the complete set."""
        chosen = copy.copy(self)
        chosen.kept = self.kept
        chosen.dataset = self.dataset.isel({self.sample: rows})
        chosen.columns = [c.isel({self.sample: rows}) if self.sample in c.dims else c for c in self.columns]
        return chosen

    def values(self, rows: Rows) -> Float[np.ndarray, "B m d"]:
        """The values of these functions, in single precision."""
        values = self._all_values(rows)
        return values if self.kept is None else values[:, self.kept]

    def points(self, rows: Rows) -> Float[np.ndarray, "m d"] | Float[np.ndarray, "B m d"]:
        """The locations of these functions, in single precision: one set for all, or one per function if `moving`."""
        if self.moving:
            return np.stack([self._flat(column, rows, True) for column in self.columns], axis=-1)
        return self._fixed_points

    def scatter(self, values: Float[np.ndarray, "B m d"]) -> Float[np.ndarray, "B M d"]:
        """The values at every location of the file, NaN at those that are not kept."""
        if self.kept is None:
            return values
        everywhere = np.full((len(values), int(np.prod(self.shape)), values.shape[-1]), np.nan, values.dtype)
        everywhere[:, self.kept] = values
        return everywhere

    @functools.cached_property
    def _fixed_points(self) -> Float[np.ndarray, "m d"]:
        if not self.columns:  # numbers, not functions: one sensor at the origin
            return np.zeros((1, 1), np.float32)
        points = np.stack([self._flat(column, slice(None), False) for column in self.columns], axis=-1)
        return points if self.kept is None else points[self.kept]

    def _all_values(self, rows: Rows) -> Float[np.ndarray, "B M d"]:
        return np.stack([self._flat(self.dataset[name], rows, True) for name in self.names], axis=-1)

    def _flat(self, array: xarray.DataArray, rows: Rows, by_sample: bool) -> Float[np.ndarray, "*B M"]:
        """An array broadcast to all locations and flattened."""
        if self.sample in array.dims:
            array = array.isel({self.sample: rows})
        sizes = dict(zip(self.dims, self.shape, strict=True))
        if by_sample:
            sizes = {self.sample: len(np.arange(self.dataset.sizes[self.sample])[rows]), **sizes}
        array = array.isel({dim: 0 for dim in array.dims if dim not in sizes}, drop=True)
        full = array.variable.astype(np.float32).set_dims(sizes).transpose(*sizes)
        return np.ascontiguousarray(full.to_numpy()).reshape(*full.shape[:by_sample], int(np.prod(self.shape)))


def unit(array: xarray.DataArray) -> str:
    """The unit of an array, from its attributes."""
    return str(array.attrs.get("units", array.attrs.get("unit", "")))


def spanned(array: xarray.DataArray, sample: str) -> list[str]:
    """The dimensions along which the locations of an array vary."""
    return [str(dim) for dim in array.dims if dim != sample and array.sizes[dim] > 1]


def columns(array: xarray.DataArray, dims: Sequence[str], sample: str) -> list[xarray.DataArray]:
    """The coordinates of the locations of an array, in the order of its dimensions.

    Latitude and longitude are found both as two dimensions of a grid and along one dimension of points, and come in
    this order. The coordinates of any other dimension are, in order of preference: the one with the name of the
    dimension; those that vary along it, such as x(node) and y(node), in alphabetical order; equal steps from 0 to 1.
    """
    within = [c for c in array.coords.values() if c.dtype.kind in "fiu" and fits(c, dims, sample)]
    found: list[xarray.DataArray] = []
    covered: set[str] = set()
    geographic = [c for known in (is_latitude, is_longitude) for c in list(filter(known, within))[:1]]
    for dim in dims:
        if dim in covered:
            continue
        if len(geographic) == 2 and any(dim in c.dims for c in geographic):
            chosen = geographic
        elif any(c.name == dim and c.dims == (dim,) for c in within):
            chosen = [array.coords[dim]]
        else:
            taken = {c.name for c in found} | set(dims)
            along = [c for c in within if dim in c.dims and c.name not in taken]
            chosen = sorted(along, key=lambda c: str(c.name)) or [unit_steps(array, dim)]
        found += chosen
        covered |= {str(d) for c in chosen for d in c.dims}
    return found


def fits(coordinate: xarray.DataArray, dims: Sequence[str], sample: str) -> bool:
    """Whether a coordinate varies along some of these dimensions, and along no others except the sample."""
    along = {dim for dim in coordinate.dims if dim != sample and coordinate.sizes[dim] > 1}
    return bool(along) and along <= set(dims)


def unit_steps(array: xarray.DataArray | xarray.Dataset, dim: str) -> xarray.DataArray:
    """Equal steps from 0 to 1, for a dimension without coordinates."""
    import xarray

    return xarray.DataArray(np.linspace(0.0, 1.0, array.sizes[dim]), dims=dim, name=dim)


def is_latitude(coordinate: xarray.DataArray) -> bool:
    """Whether a coordinate is degrees north, by the CF conventions or by its name."""
    return is_named(coordinate, "latitude", "north", "n")


def is_longitude(coordinate: xarray.DataArray) -> bool:
    """Whether a coordinate is degrees east, by the CF conventions or by its name."""
    return is_named(coordinate, "longitude", "east", "e")


def is_named(coordinate: xarray.DataArray, name: str, direction: str, letter: str) -> bool:
    """Whether the units, the standard name or the name of a coordinate identify it as `name`."""
    units = str(coordinate.attrs.get("units", "")).lower().replace("_", "").replace("degrees", "degree")
    return (
        units in {f"degree{direction}", f"degree{letter}"}
        or coordinate.attrs.get("standard_name") == name
        or str(coordinate.name).lower() in {name, name[:3]}
    )


def domain_of(found: Sequence[xarray.DataArray], sample: str, periods: Mapping[str, float]) -> Domain:
    """The domain of these coordinates: a sphere if they cover it, a torus if all are periodic, otherwise a box."""
    if len(found) == 2 and is_latitude(found[0]) and is_longitude(found[1]) and is_global(found[0], found[1]):
        return Sphere()
    low, high = zip(*[extent(column, sample) for column in found], strict=True)
    if all(column.name in periods for column in found):
        return Torus(low, [a + periods[str(column.name)] for a, column in zip(low, found, strict=True)])
    return Box(low, high)


def is_global(latitude: xarray.DataArray, longitude: xarray.DataArray) -> bool:
    """Whether points reach both polar regions and leave no gap in longitude wider than 60 degrees."""
    around = np.unique(np.asarray(longitude) % 360.0)
    gaps = np.diff(around, append=around[0] + 360.0)
    return bool(np.min(latitude) < -60.0 and np.max(latitude) > 60.0 and np.max(gaps) <= 60.0)


def extent(column: xarray.DataArray, sample: str, block: int = 256) -> tuple[float, float]:
    """The smallest and the largest value of a coordinate, in single precision, read in blocks of samples."""
    parts: Iterable[xarray.DataArray] = [column]
    if sample in column.dims:
        parts = (column.isel({sample: slice(i, i + block)}) for i in range(0, column.sizes[sample], block))
    limits = [(np.nanmin(v), np.nanmax(v)) for v in (np.asarray(part, np.float32) for part in parts)]
    return float(min(a for a, _ in limits)), float(max(b for _, b in limits))
