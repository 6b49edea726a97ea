"""Predictions in tiles of functions × queries, each of which fits in memory many times, labeled as the data is."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Records, Rows, Samples, Shared, coordinates_of, labeled, pieces
from loca.models import Operator, TilePredictor, Uncertain, encode_functions, predict_encoded, predict_error_bars
from loca.prediction.queries import QueryGrid, QueryPoints, Tile
from loca.typing import PyTree
from loca.uncertainty import Calibrated

if TYPE_CHECKING:
    import xarray

BYTES = 2**24
"""About how much memory each part of a tile takes: data that is read, features of functions, φ, values to write."""

MOST_QUERIES = 2**17  # the most queries in a tile: an interrupted tile is computed again
MOST_FUNCTIONS = 32  # the most functions that are encoded at once
MOST_OWN_NODES = 4096  # the most queries that may also be the nodes: κ among them then takes 64 MB
LIST = "query"  # the dimension of locations in a list, which no file has named
P_VALUE = "in_distribution"  # the array with the p-values of input functions

FAMILIAR = {"long_name": "p-value of the input among the calibration functions; small if it is unlike them"}
"""Its attributes."""

ERROR_BARS = {
    "_std": "standard deviation of the error of {name}",
    "_lower": "lower end of pointwise {level} % bands of {name}",
    "_upper": "upper end of pointwise {level} % bands of {name}",
}
"""Endings of the names of error bars and bands, and what they are."""


class InMemory(Records):
    """Samples as records: functions along `sample`, and their values on a grid or along `query`."""

    def __init__(self, samples: Samples):
        self.samples, self.source = samples, ""
        self.inputs, self.outputs, self.domain = samples.inputs, samples.outputs, samples.domain

    def __len__(self) -> int:
        return len(self.samples)

    def load(self, rows: Rows = slice(None)) -> Samples:
        return self.samples.take(jnp.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows)])

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        queries, numbers = self.samples.y, np.arange(len(self))[rows]
        is_shared = isinstance(queries, Shared)
        y = queries.points if is_shared else queries.take(jnp.asarray(numbers)).locations(len(numbers))
        coordinates = self.samples.query_coordinates or coordinates_of(self.domain)
        return labeled(s, numbers, np.asarray(y), coordinates, self.outputs)


class Labels:
    """How `Records.label` arranges output functions: names, dimensions and coordinates, without any values.

    `example` is the first function, with the numbers of its queries as values; NaN where there is no query. `sample` is
    the dimension along which functions are numbered.
    """

    def __init__(self, data: Records, queries: int):
        self.data, self.count, self.num_queries = data, len(data), queries
        numbers = np.broadcast_to(np.arange(queries, dtype=np.float64)[None, :, None], self._zeros(1).shape)
        self.example = data.label(numbers, [0])
        twice = data.label(self._zeros(2), [0, 0])
        (self.sample,) = (str(dim) for dim in twice.sizes if twice.sizes[dim] != self.example.sizes[dim])

    def _zeros(self, functions: int) -> Float[np.ndarray, "B P d_s"]:
        """Zeros that take no memory."""
        return np.broadcast_to(np.float32(0.0), (functions, self.num_queries, len(self.data.outputs)))

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

    def coordinates(self, without: Collection[str] = ()) -> xarray.Dataset:
        """The coordinates of all functions, except those in `without`."""
        import xarray

        size = _within(BYTES // (4 * max(self._zeros(1).size, 1)), 1, self.count)
        parts = []
        for rows in pieces(range(self.count), size):
            labeled = self.data.label(self._zeros(len(rows)), slice(rows.start, rows.stop))
            counted = [n for n, c in labeled.coords.items() if self.sample in c.dims and n not in without]
            parts.append(labeled.drop_vars([n for n in labeled.variables if n not in counted]))
        fixed = {n: c.variable for n, c in self.example.coords.items() if self.sample not in c.dims}
        together = xarray.concat(parts, self.sample) if len(parts) > 1 else parts[0]
        return together.assign_coords(fixed).drop_encoding()

    def attributes(self, name: str) -> dict[str, Any]:
        """The attributes of an output as JSON values, without NumPy's number types."""
        if name not in self.example.variables:  # the data has no outputs
            return next(variable.attributes for variable in self.data.outputs if variable.name == name)
        return {
            str(key): value.tolist() if isinstance(value, np.ndarray | np.generic) else value
            for key, value in self.example[name].attrs.items()
        }


class StoredArray(NamedTuple):
    """An array that is written in tiles."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    attributes: dict[str, Any]


TileValues = Mapping[str, tuple[Tile, np.ndarray]]
"""The content of one tile: for each array a region and its values."""


def stored_arrays(
    outputs: Mapping[str, StoredArray], model: Operator, level: float | None, p_values: StoredArray
) -> dict[str, StoredArray]:
    """Outputs as they are stored; if there are bands of a level, error bars; and the p-values of a calibrated model."""
    found = dict(outputs)
    for ending, title in ERROR_BARS.items() if level is not None else ():
        for name, array in outputs.items():
            told = {key: value for key, value in array.attributes.items() if key in ("units", "coordinates")}
            told["long_name"] = title.format(name=name, level=f"{100 * (level or 0.0):g}")
            found[name + ending] = array._replace(attributes=told)
    return found | ({P_VALUE: p_values} if isinstance(model, Calibrated) else {})


class SharedQueryTiles:
    """Tiles of a prediction F(uᵢ)(yₚ) of all functions at the same queries, each a pure function of what is given.

    Functions are processed in groups whose features fit in memory, usually a single group; the queries of each group
    are processed in tiles. φ of a tile is computed once and serves all functions of the group, whose features were
    computed once before. Queries are those of the data unless given.
    """

    moving: tuple[str, ...] = ()

    def __init__(
        self,
        model: Operator,
        data: Records,
        first: Samples,
        labels: Labels,
        queries: QueryGrid | QueryPoints | None,
        level: float | None = None,
    ):
        self.model, self.data, self.labels, self.is_chosen = model, data, labels, queries is not None
        self.queries = labels.queries(np.asarray(first.y.points)) if queries is None else queries
        shape = self.queries.shape
        _check_nodes(model, math.prod(shape))
        all_queries = tuple(slice(0, 1 if model.is_pointwise else n) for n in shape)
        y = jnp.asarray(first.y.points if queries is None else queries.points(all_queries))
        self.predictor = TilePredictor(model, y, level)
        each_function = _bytes_after(self.predictor.of_functions, first.u)
        each_query = _bytes_after(self.predictor.of_queries, y[:1])
        self.sides = _tile_sides(shape, _within(BYTES // each_query, 1, MOST_QUERIES))
        size = 4 * len(data.outputs) * math.prod(self.sides) * (1 if level is None else 1 + len(ERROR_BARS))
        self.rows = _tile_sides((len(data),), _within(BYTES // max(size, each_function), 1, len(data)))[0]
        self.group = self.rows * max(1, BYTES // (each_function * self.rows))
        self.block = max(1, BYTES // _bytes_of(first))
        own = (labels.sample, *self.queries.dims)
        shape, chunks = (len(data), *shape), (self.rows, *self.sides)
        outputs, self.orders = {}, {}
        for name in (variable.name for variable in data.outputs):
            dims = own if self.is_chosen else tuple(str(dim) for dim in labels.example[name].dims)
            order = [own.index(dim) for dim in dims]  # the data's
            sizes, pieces = (tuple(each[axis] for axis in order) for each in (shape, chunks))
            outputs[name] = StoredArray(dims, sizes, pieces, "float32", labels.attributes(name))
            self.orders |= {name + ending: order for ending in ("", *ERROR_BARS)}
        familiar = StoredArray((labels.sample,), (len(data),), (self.rows,), "float32", FAMILIAR)
        self.arrays = stored_arrays(outputs, model, level, familiar)

    def __iter__(self) -> Iterator[tuple[str, Callable[[], TileValues]]]:
        for group in pieces(range(len(self.data)), self.group):
            of_functions = functools.cache(functools.partial(self.of_functions, group))
            for number, place in enumerate(_tiles_of(self.queries.shape, self.sides)):
                of_queries = functools.cache(functools.partial(self.of_queries, place))
                for rows in pieces(group, self.rows):
                    region = (slice(rows.start, rows.stop), *place)
                    compute = functools.partial(self.values, region, of_functions, of_queries, is_first=number == 0)
                    yield ".".join(str(along.start) for along in region), compute

    def values(
        self,
        region: Tile,
        of_functions: Callable[[], tuple[Array, Float[np.ndarray, " G"], int]],
        of_queries: Callable[[], list[PyTree]],
        *,
        is_first: bool,
    ) -> TileValues:
        """The values of a tile; the first ones of each function include its p-value."""
        features, familiar, start = of_functions()
        own = slice(region[0].start - start, region[0].stop - start)
        found = self.arrange(self.predictor.together(features[own], of_queries()), region)
        return {**found, P_VALUE: (region[:1], familiar[own])} if is_first and P_VALUE in self.arrays else found

    def of_functions(self, group: range) -> tuple[Array, Float[np.ndarray, " G"], int]:
        """What depends on u alone for a group of functions, their p-values, and the number of the first."""
        features, familiar = [], []
        for block in pieces(group, self.block):
            u = self.data.load(slice(block.start, block.stop)).u
            for batch in pieces(range(len(block)), MOST_FUNCTIONS):
                part = jax.tree.map(lambda array, batch=batch: array[batch.start : batch.stop], u)
                features.append(self.predictor.of_functions(part))
            if isinstance(self.model, Calibrated):
                familiar.append(np.asarray(self.model.in_distribution(u), np.float32))
        return jnp.concatenate(features), np.concatenate(familiar or [np.empty(0)]), group.start

    def of_queries(self, place: Tile) -> list[PyTree]:
        """What depends on y alone, for a tile of queries."""
        return self.predictor.of_queries(jnp.asarray(self.queries.points(place)))

    def arrange(self, s: Float[np.ndarray, "B P d_s"], region: Tile) -> TileValues:
        """The values of a tile as they are stored."""
        present = self.queries.present(region[1:])
        if present is not None:
            s = np.where(present[None, :, None], s, np.float32(np.nan))
        values = s.reshape(*_extent(region), s.shape[-1])
        parts = {}
        for i, name in zip(range(s.shape[-1]), self.arrays, strict=False):
            order = self.orders[name]
            single = [axis for axis in range(len(region)) if axis not in order]  # that only other outputs have
            place = tuple(region[axis] for axis in order)
            parts[name] = place, values[..., i].transpose(*order, *single).reshape(_extent(place))
        return parts

    def coordinates(self) -> xarray.Dataset:
        """The coordinates, which are not written in tiles."""
        found = self.labels.coordinates()
        if not self.is_chosen:
            return found
        own = self.queries.located()
        others = [n for n, c in found.coords.items() if set(c.dims) - {self.labels.sample} or n in own]
        return found.drop_vars(others).assign_coords(own)


class OwnQueryTiles:
    """Tiles of a prediction F(uᵢ)(yᵢₚ) of every function at its own queries: a few functions each.

    If a function has many queries, they are predicted in several steps. Arguments are as of `SharedQueryTiles`.
    """

    def __init__(self, model: Operator, data: Records, first: Samples, labels: Labels, level: float | None = None):
        self.model, self.data, self.labels, self.level = model, data, labels, level
        self.num_queries = self.at_once = first.y.count
        _check_nodes(model, self.num_queries)
        self.rows = 1
        if model.is_pointwise:
            each_query = _bytes_after(lambda y: TilePredictor(model, y).of_queries(y), first.y.points[:1])
            most = _within(BYTES // each_query, 1, MOST_QUERIES)
            rows = _within(min(most // self.num_queries, BYTES // _bytes_of(first)), 1, MOST_FUNCTIONS)
            self.at_once = _tile_sides((self.num_queries,), most)[0]
            self.rows = _tile_sides((len(data),), rows)[0]
        self.moving = labels.moving()
        moving = {name: self.stored(name, labels.example[name].dtype.name) for name in self.moving}
        outputs = {variable.name: self.stored(variable.name) for variable in data.outputs}
        if moving:  # the convention by which xarray finds them
            for array in outputs.values():
                array.attributes["coordinates"] = " ".join(moving)
        familiar = StoredArray((labels.sample,), (len(data),), (self.rows,), "float32", FAMILIAR)
        self.arrays = stored_arrays(outputs, model, level, familiar) | moving

    def stored(self, name: str, dtype: str = "float32") -> StoredArray:
        """An output or a coordinate as it is stored: as in the data, divided along the functions only."""
        sizes = {str(dim): size for dim, size in self.labels.example[name].sizes.items()}
        shape, chunks = (tuple((sizes | {self.labels.sample: n}).values()) for n in (len(self.data), self.rows))
        return StoredArray(tuple(sizes), shape, chunks, dtype, self.labels.attributes(name))

    def __iter__(self) -> Iterator[tuple[str, Callable[[], TileValues]]]:
        for rows in pieces(range(len(self.data)), self.rows):
            yield str(rows.start), functools.partial(self.values, slice(rows.start, rows.stop))

    def values(self, rows: slice) -> TileValues:
        """The predictions for some functions, and their own coordinates."""
        samples = self.data.load(rows)
        found = self.predictions(samples)
        kinds = zip(
            ("", *ERROR_BARS), np.split(found, found.shape[-1] // len(self.data.outputs), axis=-1), strict=False
        )
        by_kind = {ending: self.data.label(values, rows) for ending, values in kinds}
        labeled = {name: by_kind[""][name].to_numpy() for name in self.moving}
        for ending, values in by_kind.items():
            labeled |= {each.name + ending: values[each.name].to_numpy() for each in self.data.outputs}
        if isinstance(self.model, Calibrated):
            labeled[P_VALUE] = np.asarray(self.model.in_distribution(samples.u))
        return {
            name: (tuple(rows if dim == self.labels.sample else slice(0, None) for dim in array.dims), labeled[name])
            for name, array in self.arrays.items()
        }

    def predictions(self, samples: Samples) -> Float[np.ndarray, "B P kinds_d_s"]:
        """The predictions at all queries of some functions, with error bars along the channels if there are any."""
        if self.level is None:
            predict = functools.partial(predict_encoded, self.model, encode_functions(self.model, samples.u))
        else:
            assert isinstance(self.model, Uncertain)
            predict = functools.partial(predict_error_bars, self.model, samples.u, radius=self.model.radius(self.level))
        parts = []
        for start in range(0, self.num_queries, self.at_once):
            columns = jnp.arange(start, min(start + self.at_once, self.num_queries))
            queries = samples.y.choose(jnp.broadcast_to(columns, (len(samples), len(columns))))
            found = predict(queries)
            parts.append(np.asarray(found) if self.level is None else np.concatenate(found, axis=-1))
        return np.concatenate(parts, axis=1)

    def coordinates(self) -> xarray.Dataset:
        """The coordinates, which are not written in tiles."""
        return self.labels.coordinates(without=self.moving)


Tiles = SharedQueryTiles | OwnQueryTiles
"""A prediction as a sequence of tiles: their names, each with a function that computes its values."""


def _check_nodes(model: Operator, queries: int) -> None:
    """Raise if a model whose nodes are its queries has too many: its cost is their number squared."""
    if not model.is_pointwise and queries > MOST_OWN_NODES:
        raise ValueError(
            f"the nodes of this model are its queries (rule `OwnQueries`), so {queries} queries cannot be divided into "
            f"tiles; pass at most {MOST_OWN_NODES}, or train with a rule that has nodes of its own, such as "
            "`MonteCarlo`"
        )


def _tile_sides(shape: Sequence[int], limit: int) -> tuple[int, ...]:
    """The sides of tiles that divide a grid evenly, with at most `limit` points each.

    Tiles extend over the axes that vary fastest first.
    """
    sides: list[int] = []
    room = max(1, limit)
    for length in reversed(shape):
        side = -(-length // -(-length // room))
        sides.append(side)
        room = room // side if side == length else 1
    return tuple(reversed(sides))


def _tiles_of(shape: Sequence[int], sides: Sequence[int]) -> Iterator[Tile]:
    axes = zip(shape, sides, strict=True)
    return itertools.product(*([slice(i, min(i + side, n)) for i in range(0, n, side)] for n, side in axes))


def _extent(tile: Tile) -> tuple[int, ...]:
    return tuple(along.stop - along.start for along in tile)


def _bytes_of(tree: PyTree) -> int:
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct))
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


def _bytes_after(function: Callable[..., PyTree], *given: PyTree) -> int:
    """The memory that the result of a function takes, without calling it."""
    return _bytes_of(eqx.filter_eval_shape(function, *given))


def _within(number: int, least: int, most: int) -> int:
    return max(least, min(number, most))
