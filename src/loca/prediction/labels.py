"""The arrays that hold predictions: names, dimensions and coordinates, as those of the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Records, Rows, Samples, Shared
from loca.prediction.queries import QueryPoints, Tile, coordinates_of

if TYPE_CHECKING:
    import xarray

LABEL_BYTES = 2**24
"""About how much memory the labels of a block of functions take while coordinates are collected."""

LIST = "query"
"""The dimension of locations in a list, which no file has named."""


class InMemory(Records):
    """Samples as records: functions along `sample`, and their values along `query`."""

    def __init__(self, samples: Samples):
        self.samples, self.source = samples, ""
        self.inputs, self.outputs, self.domain = samples.inputs, samples.outputs, samples.domain

    def __len__(self) -> int:
        return len(self.samples)

    def load(self, rows: Rows = slice(None)) -> Samples:
        return self.samples.take(jnp.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows)])

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        import xarray

        queries, numbers = self.samples.y, np.arange(len(self))[rows]
        own = () if isinstance(queries, Shared) else ("sample",)
        y = queries.points if not own else queries.take(jnp.asarray(numbers)).locations(len(numbers))
        coordinates = self.samples.query_coordinates or coordinates_of(self.domain)
        places = {
            each.name: ((*own, LIST), np.asarray(y[..., i]), each.attributes) for i, each in enumerate(coordinates)
        }
        fields = {each.name: (("sample", LIST), s[..., i], each.attributes) for i, each in enumerate(self.outputs)}
        return xarray.Dataset(fields, {"sample": numbers, **places})


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """How `Records.label` arranges output functions: names, dimensions and coordinates, without any values."""

    data: Records
    example: xarray.Dataset
    """The first function, with the numbers of its queries as values; NaN where there is no query."""
    sample: str
    """The dimension along which functions are numbered."""

    @classmethod
    def of(cls, data: Records, queries: int) -> Labels:
        """The labels of data with a number of queries per function."""
        channels = len(data.outputs)
        numbers = np.broadcast_to(np.arange(queries, dtype=np.float64)[None, :, None], (1, queries, channels))
        example = data.label(numbers, [0])
        twice = data.label(zeros(2, queries, channels), [0, 0])
        (sample,) = (str(dim) for dim in twice.sizes if twice.sizes[dim] != example.sizes[dim])
        return cls(data, example, sample)

    def queries(self, y: Float[np.ndarray, "M d_y"]) -> QueryPoints:
        """Shared queries, arranged along the dimensions of the output functions, in the order of the first output."""
        outputs = list(self.example.data_vars.values())
        named = dict.fromkeys(str(dim) for output in outputs for dim in output.dims)
        dims = tuple(dim for dim in named if dim != self.sample)
        first = outputs[0].variable.isel({self.sample: 0})
        placed = first.set_dims({dim: self.example.sizes[dim] for dim in dims}).transpose(*dims).to_numpy()
        return QueryPoints((), y, dims, np.nan_to_num(placed, nan=-1.0).astype(np.int64))

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
