"""Where predictions are made: on a grid given by its axes, at points, or at the labeled locations of the data;
and the arrays that hold them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from loca.data import Records, Variable, array_digest, grid_axes
from loca.domains import Domain
from loca.models import Operator

if TYPE_CHECKING:
    import xarray

Tile = tuple[slice, ...]
"""A rectangle of a grid: its start and stop along every axis."""

TOLERANCE = 1e-5
"""How far outside the domain, relative to its extent, a grid point may be: a hundred spacings of single precision."""

LABEL_BYTES = 2**24
"""About how much memory the labels of a block of functions take while coordinates are collected."""


@dataclasses.dataclass(frozen=True, eq=False)
class QueryGrid:
    """A rectangular grid of queries given by its axes, in row-major order; its points are never stored all at once.

    **Arguments:**

    - `dims`: names of the coordinates.
    - `axes`: their values.
    - `attributes`: metadata of each coordinate, such as its unit.
    - `domain`: Y; predictions at grid points outside of it are NaN.
    """

    dims: tuple[str, ...]
    axes: tuple[Float[np.ndarray, " _"], ...]
    attributes: tuple[dict[str, str], ...]
    domain: Domain | None = None

    @classmethod
    def even(cls, domain: Domain, counts: Sequence[int], coordinates: Sequence[Variable] = ()) -> QueryGrid:
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
        names, attributes = names_and_attributes(coordinates or coordinates_of(domain))
        return cls(names, axes, attributes, domain)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each coordinate."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def count(self) -> int:
        """The number of queries."""
        return math.prod(self.shape)

    def points(self, tile: Tile) -> Float[np.ndarray, "P d_y"]:
        """The locations in a tile, in single precision."""
        parts = [axis[along].astype(np.float32) for axis, along in zip(self.axes, tile, strict=True)]
        return np.stack([c.ravel() for c in np.meshgrid(*parts, indexing="ij")], axis=-1)

    def present(self, tile: Tile) -> np.ndarray | None:
        """Which grid points of a tile lie in the domain; None if all do."""
        if self.domain is None:
            return None
        inside = self.domain.contains(self.points(tile), TOLERANCE)
        return None if inside.all() else inside

    def coordinates(self) -> dict[str, Any]:
        """The axes as coordinates of an xarray data set."""
        named = zip(self.dims, self.axes, self.attributes, strict=True)
        return {name: (name, axis, attributes) for name, axis, attributes in named}

    def corners(self) -> Float[np.ndarray, "_ d_y"]:
        """The outermost locations, without those outside of the domain."""
        ends = [(axis.min(), axis.max()) for axis in self.axes]
        found = np.stack([c.ravel() for c in np.meshgrid(*ends, indexing="ij")], axis=-1)
        return found if self.domain is None else found[self.domain.contains(found, TOLERANCE)]

    def digests(self) -> list[str]:
        """What identifies the locations."""
        return [array_digest(axis) for axis in self.axes]


@dataclasses.dataclass(frozen=True, eq=False)
class QueryPoints:
    """Queries at any locations, the same for all functions.

    **Arguments:**

    - `names`: names of the coordinates.
    - `y`: the locations.
    - `attributes`: metadata of each coordinate, such as its unit.
    """

    names: tuple[str, ...]
    y: Float[np.ndarray, "P d_y"]
    attributes: tuple[dict[str, str], ...]
    dims = ("query",)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of queries."""
        return (len(self.y),)

    @property
    def count(self) -> int:
        """The number of queries."""
        return len(self.y)

    def points(self, tile: Tile) -> Float[np.ndarray, "P d_y"]:
        """The locations in a tile, in single precision."""
        return self.y[tile[0]].astype(np.float32)

    def present(self, tile: Tile) -> None:
        """None: no query is missing."""

    def coordinates(self) -> dict[str, Any]:
        """The locations as coordinates of an xarray data set."""
        named = zip(self.names, self.y.T, self.attributes, strict=True)
        return {name: ("query", values, attributes) for name, values, attributes in named}

    def corners(self) -> Float[np.ndarray, "_ d_y"]:
        """All locations."""
        return self.y

    def digests(self) -> list[str]:
        """What identifies the locations."""
        return [array_digest(self.y)]


def own_queries(model: Operator) -> QueryGrid | QueryPoints:
    """The queries that the functions shared on which a model was trained, as a grid if they form one."""
    known = model.signature
    if known is None or known.y is None:
        raise ValueError(
            "this data has no outputs, and the model knows no query locations of its own; choose them: --grid or --at "
            "on the command line, `queries` in Python"
        )
    y, (names, attributes) = np.asarray(known.y, np.float64), names_and_attributes(known.query_coordinates)
    axes = grid_axes(y)
    return QueryPoints(names, y, attributes) if axes is None else QueryGrid(names, axes, attributes)


def coordinates_of(domain: Domain) -> tuple[Variable, ...]:
    """Names and units of the coordinates of a domain."""
    return tuple(map(Variable, domain.coordinate_names, domain.coordinate_units))


def names_and_attributes(coordinates: Sequence[Variable]) -> tuple[tuple[str, ...], tuple[dict[str, str], ...]]:
    """The names of coordinates and their metadata in files."""
    return tuple(each.name for each in coordinates), tuple(each.attributes for each in coordinates)


@dataclasses.dataclass(frozen=True, eq=False)
class LabeledQueries:
    """The queries that all functions of some data share, arranged along the dimensions of the data."""

    dims: tuple[str, ...]
    numbers: Int[np.ndarray, "*shape"]  # which query is where; −1 where there is none
    y: Float[np.ndarray, "M d_y"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return self.numbers.shape

    def points(self, tile: Tile) -> Float[np.ndarray, "P d_y"]:
        """The locations in a tile; an arbitrary one where there is no query."""
        return self.y[np.maximum(self.numbers[tile].ravel(), 0)]

    def present(self, tile: Tile) -> np.ndarray | None:
        """Which places of a tile have a query; None if all do."""
        found = self.numbers[tile].ravel() >= 0
        return None if found.all() else found


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """How `Records.label` arranges output functions: names, dimensions and coordinates, without any values.

    **Arguments:**

    - `data`: the functions.
    - `example`: the first function, with the numbers of its queries as values; NaN where there is no query.
    - `sample`: the dimension along which functions are numbered.
    """

    data: Records
    example: xarray.Dataset
    sample: str

    @classmethod
    def of(cls, data: Records, queries: int) -> Labels:
        """The labels of data with a number of queries per function."""
        channels = len(data.outputs)
        numbers = np.broadcast_to(np.arange(queries, dtype=np.float64)[None, :, None], (1, queries, channels))
        example = data.label(numbers, [0])
        twice = data.label(zeros(2, queries, channels), [0, 0])
        (sample,) = (str(dim) for dim in twice.sizes if twice.sizes[dim] != example.sizes[dim])
        return cls(data, example, sample)

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions of the output functions, in the order of the first output."""
        found = (str(dim) for output in self.example.data_vars.values() for dim in output.dims)
        return tuple(dim for dim in dict.fromkeys(found) if dim != self.sample)

    def queries(self, y: Float[np.ndarray, "M d_y"]) -> LabeledQueries:
        """Shared queries, arranged along these dimensions."""
        first = next(iter(self.example.data_vars.values())).variable.isel({self.sample: 0})
        placed = first.set_dims({dim: self.example.sizes[dim] for dim in self.dims}).transpose(*self.dims)
        return LabeledQueries(self.dims, np.nan_to_num(placed.to_numpy(), nan=-1.0).astype(np.int64), y)

    def moving(self) -> tuple[str, ...]:
        """Coordinates that differ between functions, such as the locations of moving stations."""
        coordinates = self.example.coords.items()
        return tuple(str(n) for n, c in coordinates if self.sample in c.dims and c.ndim > 1 and c.dtype.kind in "fiub")

    def coordinates(self, queries: int, without: Collection[str] = ()) -> xarray.Dataset:
        """The coordinates of all functions, except those in `without`."""
        import xarray

        size = min(max(LABEL_BYTES // (4 * max(queries, 1) * len(self.data.outputs)), 1), len(self.data))
        parts = []
        for start in range(0, len(self.data), size):
            rows = slice(start, min(start + size, len(self.data)))
            labeled = self.data.label(zeros(rows.stop - rows.start, queries, len(self.data.outputs)), rows)
            counted = [n for n, c in labeled.coords.items() if self.sample in c.dims and n not in without]
            parts.append(labeled.drop_vars([n for n in labeled.variables if n not in counted]))
        together = xarray.concat(parts, self.sample) if len(parts) > 1 else parts[0]
        fixed = {n: c.variable for n, c in self.example.coords.items() if self.sample not in c.dims}
        return together.assign_coords(fixed).drop_encoding()

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of an output as JSON values, without NumPy's number types."""
        if name not in self.example.variables:  # the data has no outputs
            return next(variable.attributes for variable in self.data.outputs if variable.name == name)
        return {
            str(key): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
            for key, value in self.example[name].attrs.items()
        }


def zeros(*shape: int) -> Float[np.ndarray, "*shape"]:
    """Zeros that take no memory."""
    return np.broadcast_to(np.float32(0.0), shape)


ERROR_BARS = {
    "": "",
    "_std": "standard deviation of the error of {name}",
    "_lower": "lower end of pointwise {level} % bands of {name}",
    "_upper": "upper end of pointwise {level} % bands of {name}",
}
"""Endings of the names of predictions, error bars and bands, and what they are."""


class StoredArray(NamedTuple):
    """An array that is written in tiles."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    attributes: dict[str, Any]


TileValues = Mapping[str, tuple[Tile, np.ndarray]]
"""The content of one tile: for each array a region and its values."""


def with_error_bars(arrays: Mapping[str, StoredArray], level: float | None) -> dict[str, StoredArray]:
    """Outputs as they are stored and, if there are bands of a level, standard deviations and ends of bands."""
    if level is None:
        return dict(arrays)
    found = {}
    for ending, title in ERROR_BARS.items():
        for name, array in arrays.items():
            kept = {k: v for k, v in array.attributes.items() if not ending or k in ("units", "coordinates")}
            told = {"long_name": title.format(name=name, level=f"{100 * level:g}")} if ending else {}
            found[name + ending] = array._replace(attributes={**kept, **told})
    return found
