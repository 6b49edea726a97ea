"""Where predictions are made: on a grid given by its axes, which may have holes, or at points."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from loca.data import Variable, array_digest, coordinates_of, grid_axes
from loca.domains import Domain, grid

Tile = tuple[slice, ...]
"""A rectangle of a grid: its start and stop along every axis."""

TOLERANCE = 1e-5
"""How far outside the domain, relative to its extent, a grid point may be: a hundred spacings of single precision."""

SPARSE = 8  # locations are those of a grid with holes if the whole grid has at most this many times as many points


@dataclasses.dataclass(frozen=True, eq=False)
class QueryGrid:
    """A rectangular grid of queries given by its axes, in row-major order; its points are never stored all at once.

    **Arguments:**

    - `coordinates`: their names and units.
    - `axes`: their values.
    - `domain`: Y; predictions at grid points outside of it are NaN.
    - `known`: which grid points have predictions; the others are NaN, such as land in a grid of the sea.
    """

    coordinates: tuple[Variable, ...]
    axes: tuple[Float[np.ndarray, " _"], ...]
    domain: Domain | None = None
    known: Bool[np.ndarray, "*shape"] | None = None

    @classmethod
    def even(cls, domain: Domain, counts: Sequence[int], coordinates: Sequence[Variable] = ()) -> "QueryGrid":
        """A grid with `counts` evenly spaced values of each coordinate, from one end of the domain to the other.

        Names and units are those of the given `coordinates`, such as `model.signature.query_coordinates`, or else of
        the domain.

        A periodic coordinate starts at its low end and stops one step before the high end, which is the same location.
        On the sphere latitudes run from pole to pole: (721, 1440) is the globe in steps of a quarter degree.
        """
        if len(counts) != domain.dimension or min(counts) < 2:
            raise ValueError(
                f"a grid over {domain} needs {domain.dimension} numbers of at least 2, one for each coordinate; "
                f"got {'x'.join(map(str, counts))}"
            )
        ranges = zip(domain.bounds, domain.periods, counts, strict=True)
        axes = tuple(np.linspace(*bounds, count, endpoint=period is None) for bounds, period, count in ranges)
        return cls(tuple(coordinates or coordinates_of(domain)), axes, domain)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the coordinates, along which predictions are arranged."""
        return tuple(each.name for each in self.coordinates)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each coordinate."""
        return tuple(len(axis) for axis in self.axes)

    def points(self, tile: Tile) -> Float[np.ndarray, "P d_y"]:
        """The locations in a tile, in single precision."""
        parts = [axis[along].astype(np.float32) for axis, along in zip(self.axes, tile, strict=True)]
        return grid(*parts)

    def present(self, tile: Tile) -> Bool[np.ndarray, " P"] | None:
        """Which grid points of a tile have predictions; None if all do."""
        found = np.ones(1, bool) if self.known is None else self.known[tile].ravel()
        if self.domain is not None:
            found = found & self.domain.contains(self.points(tile), TOLERANCE)
        return None if found.all() else found

    def located(self) -> dict[str, Any]:
        """The axes as coordinates of an xarray data set."""
        return {c.name: (c.name, axis, c.attributes) for c, axis in zip(self.coordinates, self.axes, strict=True)}

    def corners(self) -> Float[np.ndarray, "_ d_y"]:
        """The outermost locations, without those outside of the domain."""
        ends = [np.array([axis.min(), axis.max()]) for axis in self.axes]
        found = grid(*ends)
        return found if self.domain is None else found[self.domain.contains(found, TOLERANCE)]

    def digests(self) -> list[str]:
        """What identifies the locations."""
        return [array_digest(each) for each in (*self.axes, *([] if self.known is None else [self.known]))]


@dataclasses.dataclass(frozen=True, eq=False)
class QueryPoints:
    """Queries at any locations, the same for all functions.

    **Arguments:**

    - `coordinates`: their names and units.
    - `y`: the locations.
    - `dims`, `numbers`: the dimensions along which predictions are arranged, and which location is where, with −1 where
      there is none; by default one after the other.
    """

    coordinates: tuple[Variable, ...]
    y: Float[np.ndarray, "P d_y"]
    dims: tuple[str, ...] = ("query",)
    numbers: Int[np.ndarray, "*shape"] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return (len(self.y),) if self.numbers is None else self.numbers.shape

    def points(self, tile: Tile) -> Float[np.ndarray, "P d_y"]:
        """The locations in a tile, in single precision; an arbitrary one where there is no query."""
        rows = tile[0] if self.numbers is None else np.maximum(self.numbers[tile].ravel(), 0)
        return self.y[rows].astype(np.float32)

    def present(self, tile: Tile) -> Bool[np.ndarray, " P"] | None:
        """Which places of a tile have a query; None if all do."""
        if self.numbers is None or (found := self.numbers[tile].ravel() >= 0).all():
            return None
        return found

    def located(self) -> dict[str, Any]:
        """The locations as coordinates of an xarray data set."""
        return {c.name: (self.dims, values, c.attributes) for c, values in zip(self.coordinates, self.y.T, strict=True)}

    def corners(self) -> Float[np.ndarray, "_ d_y"]:
        """All locations."""
        return self.y

    def digests(self) -> list[str]:
        """What identifies the locations."""
        return [array_digest(self.y)]


def arranged(y: Float[np.ndarray, "P d_y"], coordinates: Sequence[Variable], domain: Domain) -> QueryGrid | QueryPoints:
    """Queries as a grid if they are the points of one, or of one with holes, but no mesh; otherwise as points."""
    coordinates, axes = tuple(coordinates), grid_axes(y)
    if axes is not None:
        return QueryGrid(coordinates, axes)
    values, places = zip(*(np.unique(column, return_inverse=True) for column in y.T), strict=True)
    shape = tuple(map(len, values))
    if len(shape) > 1 and math.prod(shape) <= SPARSE * len(y) and not domain.is_meshed:
        known = np.zeros(shape, bool)
        known[places] = True
        falls = [np.sign(np.diff(column)).sum() < 0 for column in y.T]  # such as latitudes from the north
        turned = tuple(slice(None, None, -1 if fall else 1) for fall in falls)
        if known.sum() == len(y):  # no location occurs twice
            axes = tuple(axis[along] for axis, along in zip(values, turned, strict=True))
            return QueryGrid(coordinates, axes, known=known[turned])
    return QueryPoints(coordinates, y)
