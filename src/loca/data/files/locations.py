"""Where the values of labeled arrays were taken, and the domain in which that is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from loca.domains import Box, Domain, Sphere, Torus

if TYPE_CHECKING:
    import xarray

SPATIAL = {"x", "y", "z"}
"""Names under which locations of scattered points are stored."""


def spanned(array: xarray.DataArray, sample: str) -> list[str]:
    """The dimensions along which the locations of an array vary."""
    return [str(dim) for dim in array.dims if dim != sample and array.sizes[dim] > 1]


def columns(array: xarray.DataArray, dims: Sequence[str], sample: str) -> list[xarray.DataArray]:
    """The coordinates of the locations of an array, one by one, in the order of its dimensions.

    Latitude and longitude are taken wherever they are, as two dimensions of a grid or along one dimension of points,
    and in this order. Other dimensions have a coordinate of their own name, or those that vary along them, such as
    x(node) and y(node) in the order of the alphabet, or else the numbers from 0 to 1 in equal steps.
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
    """Whether a coordinate varies along these dimensions, and along no others but the sample."""
    along = {dim for dim in coordinate.dims if dim != sample and coordinate.sizes[dim] > 1}
    return bool(along) and along <= set(dims)


def unit_steps(array: xarray.DataArray | xarray.Dataset, dim: str) -> xarray.DataArray:
    """Equal steps from 0 to 1 along a dimension of which nothing else is known."""
    import xarray

    return xarray.DataArray(np.linspace(0.0, 1.0, array.sizes[dim]), dims=dim, name=dim)


def is_latitude(coordinate: xarray.DataArray) -> bool:
    """Whether a coordinate is degrees north, by the CF conventions or by its name."""
    return is_named(coordinate, "latitude", "north", "n")


def is_longitude(coordinate: xarray.DataArray) -> bool:
    """Whether a coordinate is degrees east, by the CF conventions or by its name."""
    return is_named(coordinate, "longitude", "east", "e")


def is_named(coordinate: xarray.DataArray, name: str, direction: str, letter: str) -> bool:
    """Whether units, standard name or name of a coordinate say that it is this one."""
    units = str(coordinate.attrs.get("units", "")).lower().replace("_", "").replace("degrees", "degree")
    return (
        units in {f"degree{direction}", f"degree{letter}"}
        or coordinate.attrs.get("standard_name") == name
        or str(coordinate.name).lower() in {name, name[:3]}
    )


def domain(found: Sequence[xarray.DataArray], sample: str, periods: Mapping[str, float]) -> Domain:
    """Where functions of these coordinates live: a sphere they cover, a torus if all are periodic, or else a box."""
    if len(found) == 2 and is_latitude(found[0]) and is_longitude(found[1]) and all_round(found[0], found[1]):
        return Sphere()
    low, high = zip(*[extent(column, sample) for column in found], strict=True)
    if all(column.name in periods for column in found):
        return Torus(low, [a + periods[str(column.name)] for a, column in zip(low, found, strict=True)])
    return Box(low, high)


def all_round(latitude: xarray.DataArray, longitude: xarray.DataArray) -> bool:
    """Whether points reach both polar regions and leave no gap wider than a sixth of the way round."""
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
