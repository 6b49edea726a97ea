"""What data says of its output functions: names, dimensions and coordinates, found out without any values."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from loca.data import Records
from loca.prediction.cutting import TILE_BYTES, within
from loca.prediction.grid import Tile

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """How `Records.label` arranges output functions.

    **Arguments:**

    - `data`: whose functions they are.
    - `example`: the first function, whose values are the numbers of its queries; NaN where there is none.
    - `sample`: the dimension that counts the functions.
    """

    data: Records
    example: xarray.Dataset
    sample: str

    @classmethod
    def of(cls, data: Records, queries: int) -> Labels:
        """The labels of data whose functions have so many queries."""
        channels = len(data.outputs)
        numbers = np.broadcast_to(np.arange(queries, dtype=np.float64)[None, :, None], (1, queries, channels))
        example = data.label(numbers, [0])
        twice = data.label(nothing(2, queries, channels), [0, 0])
        (sample,) = (str(dim) for dim in twice.sizes if twice.sizes[dim] != example.sizes[dim])
        return cls(data, example, sample)

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions of the output functions, in the order of the first."""
        found = (str(dim) for output in self.example.data_vars.values() for dim in output.dims)
        return tuple(dim for dim in dict.fromkeys(found) if dim != self.sample)

    def numbers(self) -> Int[np.ndarray, "*shape"]:
        """Along these dimensions, which query is where; −1 where there is none."""
        first = next(iter(self.example.data_vars.values())).variable.isel({self.sample: 0})
        placed = first.set_dims({dim: self.example.sizes[dim] for dim in self.dims}).transpose(*self.dims)
        return np.nan_to_num(placed.to_numpy(), nan=-1.0).astype(np.int64)

    def moving(self) -> tuple[str, ...]:
        """Coordinates that every function has of its own, such as where it was measured."""
        coordinates = self.example.coords.items()
        return tuple(str(n) for n, c in coordinates if self.sample in c.dims and c.ndim > 1 and c.dtype.kind in "fiub")

    def coordinates(self, queries: int, without: Collection[str] = ()) -> xarray.Dataset:
        """The coordinates of all functions."""
        import xarray

        size = within(TILE_BYTES // (4 * queries * len(self.data.outputs)), 1, len(self.data))
        parts = []
        for start in range(0, len(self.data), size):
            rows = slice(start, min(start + size, len(self.data)))
            labeled = self.data.label(nothing(rows.stop - rows.start, queries, len(self.data.outputs)), rows)
            counted = [n for n, c in labeled.coords.items() if self.sample in c.dims and n not in without]
            parts.append(labeled.drop_vars([n for n in labeled.variables if n not in counted]))
        together = xarray.concat(parts, self.sample) if len(parts) > 1 else parts[0]
        fixed = {n: c.variable for n, c in self.example.coords.items() if self.sample not in c.dims}
        return together.assign_coords(fixed).drop_encoding()

    def attributes(self, name: str) -> dict[str, Any]:
        """What the data says of an output, as JSON can hold it."""
        return plain(self.example[name].attrs)


@dataclasses.dataclass(frozen=True, eq=False)
class LabeledQueries:
    """The locations that all functions of some data share, arranged as its labels say."""

    dims: tuple[str, ...]
    numbers: Int[np.ndarray, "*shape"]
    y: Float[np.ndarray, "M d_y"]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many places there are along each dimension."""
        return self.numbers.shape

    def points(self, tile: Tile) -> Float[np.ndarray, "P d_y"]:
        """The locations in a rectangle; any location where there is none."""
        return self.y[np.maximum(self.numbers[tile].ravel(), 0)]

    def present(self, tile: Tile) -> np.ndarray | None:
        """Where in a rectangle there are locations; None if everywhere."""
        there = self.numbers[tile].ravel() >= 0
        return None if there.all() else there


def nothing(*shape: int) -> Float[np.ndarray, "*shape"]:
    """Zeros that take no memory."""
    return np.broadcast_to(np.float32(0.0), shape)


def plain(attributes: dict[Any, Any]) -> dict[str, Any]:
    """Attributes without NumPy's own kinds of numbers."""
    return {
        str(name): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in attributes.items()
    }
