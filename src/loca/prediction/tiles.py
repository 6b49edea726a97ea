"""Predictions in tiles of functions × queries, each of which fits in memory many times."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Records, Samples
from loca.models import Operator, TilePredictor, Uncertain, encode_functions, predict_encoded, predict_error_bars
from loca.prediction.grid import (
    ERROR_BARS,
    Labels,
    QueryGrid,
    QueryPoints,
    StoredArray,
    Tile,
    TileValues,
    with_error_bars,
)
from loca.typing import PyTree

if TYPE_CHECKING:
    import xarray

TILE_BYTES = 2**24
"""About how much is written at once, and how much of the data is read at once."""

HALF_BYTES = 2**24
"""About how much memory each half of the operator takes: φ of a tile, v of a group of functions."""

MOST_QUERIES = 2**17
"""The most queries in a tile: an interrupted tile is computed again."""

MOST_FUNCTIONS = 32
"""The most functions that are encoded at once."""

MOST_OWN_NODES = 4096
"""The most queries that may also be the nodes: κ among them then takes 64 MB."""


class Tiles(abc.ABC):
    """A prediction as a sequence of tiles, each a pure function of model, data and queries."""

    arrays: Mapping[str, StoredArray]
    moving: tuple[str, ...] = ()
    """The arrays that are coordinates: they differ between functions."""

    labels: Labels
    p_values: Float[np.ndarray, " N"] | None = None
    """How familiar every input function is to the model; None if unknown."""

    @property
    @abc.abstractmethod
    def names(self) -> list[str]:
        """The names of the tiles, in the order in which they are computed."""

    @abc.abstractmethod
    def compute(self, done: Collection[str]) -> Iterator[tuple[str, TileValues]]:
        """The names and values of all tiles that are not done yet."""

    @abc.abstractmethod
    def coordinates(self) -> xarray.Dataset:
        """The coordinates that are not written in tiles."""

    def complete_coordinates(self) -> xarray.Dataset:
        """The coordinates, and the p-values of the input functions if they are known."""
        if self.p_values is None:
            return self.coordinates()
        title = "p-value of the input among the calibration functions; small if it is unlike them"
        values = self.labels.sample, self.p_values.astype(np.float32), {"long_name": title}
        return self.coordinates().assign({"in_distribution": values})

    def description(self) -> dict[str, Any]:
        """The arrays of the prediction as JSON values."""
        return {name: array._asdict() for name, array in self.arrays.items()}


class SharedQueryTiles(Tiles):
    """Tiles of a prediction F(uᵢ)(yₚ) of all functions at the same queries.

    Functions are processed in groups whose features fit in memory, usually a single group; the queries of each group
    are processed in tiles. φ of a tile is computed once and serves all functions of the group, whose features were
    computed once before.

    **Arguments:**

    - `model`, `data`: the operator and its input functions.
    - `first`: the first function.
    - `queries`: a grid or points; by default the queries of the data.
    - `level`: of bands, for a model that knows its error.
    """

    def __init__(
        self,
        model: Operator,
        data: Records,
        first: Samples,
        queries: QueryGrid | QueryPoints | None,
        level: float | None = None,
    ):
        self.data, self.count, self.num_queries, self.grid = data, len(data), first.y.count, queries
        check_nodes(model, queries.count if queries else self.num_queries)
        self.labels = Labels.of(data, self.num_queries)
        y = np.asarray(first.y.points)
        self.queries = queries or self.labels.queries(y)
        shape = self.queries.shape
        if queries is not None:
            y = queries.points(tuple(slice(0, 1 if model.is_pointwise else n) for n in shape))
        self.predictor = TilePredictor(model, jnp.asarray(y), level)
        each_function = bytes_after(self.predictor.of_functions, first.u)
        each_query = bytes_after(self.predictor.of_queries, jnp.asarray(y[:1]))
        most = within(HALF_BYTES // each_query, 1, MOST_QUERIES)
        self.sides = tile_sides(shape, most)
        size = 4 * len(data.outputs) * math.prod(self.sides) * (1 if level is None else len(ERROR_BARS))
        rows = within(min(TILE_BYTES // size, HALF_BYTES // each_function), 1, self.count)
        self.rows = tile_sides((self.count,), rows)[0]
        self.group = self.rows * max(1, HALF_BYTES // (each_function * self.rows))
        self.batch = within(TILE_BYTES // bytes_of(first), 1, MOST_FUNCTIONS)
        self.arrays = with_error_bars({each.name: self.stored(each.name) for each in data.outputs}, level)

    def stored(self, name: str) -> StoredArray:
        """An output as it is stored, with the data's order of dimensions."""
        own = (self.labels.sample, *self.queries.dims)
        dims = own if self.grid else tuple(str(dim) for dim in self.labels.example[name].dims)
        order = [own.index(dim) for dim in dims]
        shape, chunks = (self.count, *self.queries.shape), (self.rows, *self.sides)
        return StoredArray(
            dims,
            tuple(shape[i] for i in order),
            tuple(chunks[i] for i in order),
            "float32",
            self.labels.attributes(name),
        )

    @property
    def names(self) -> list[str]:
        places = list(tiles_of(self.queries.shape, self.sides))
        return [
            name_of((slice(rows.start, rows.stop), *place))
            for group in pieces(range(self.count), self.group)
            for place in places
            for rows in pieces(group, self.rows)
        ]

    def compute(self, done: Collection[str]) -> Iterator[tuple[str, TileValues]]:
        for group in pieces(range(self.count), self.group):
            features: Array | None = None
            for place in tiles_of(self.queries.shape, self.sides):
                regions = [(slice(rows.start, rows.stop), *place) for rows in pieces(group, self.rows)]
                todo = [region for region in regions if name_of(region) not in done]
                if not todo:
                    continue
                if features is None:
                    features = self.of_functions(group)
                at = self.predictor.of_queries(jnp.asarray(self.queries.points(place)))
                for region in todo:
                    own = features[region[0].start - group.start : region[0].stop - group.start]
                    yield name_of(region), self.arrange(self.predictor.together(own, at), region)

    def of_functions(self, group: range) -> Array:
        """What depends on u alone, for a group of functions."""
        batches = pieces(group, self.batch)
        return jnp.concatenate([self.predictor.of_functions(self.data.load(slice(b.start, b.stop)).u) for b in batches])

    def arrange(self, s: Float[np.ndarray, "B P d_s"], region: Tile) -> TileValues:
        """The values of a tile as they are stored."""
        present = self.queries.present(region[1:])
        if present is not None:
            s = np.where(present[None, :, None], s, np.float32(np.nan))
        values = s.reshape(*extent(region), s.shape[-1])
        own = (self.labels.sample, *self.queries.dims)
        parts = {}
        for i, (name, array) in enumerate(self.arrays.items()):
            order = [own.index(dim) for dim in array.dims]
            single = [axis for axis in range(len(own)) if axis not in order]  # dimensions that only other outputs have
            place = tuple(region[axis] for axis in order)
            parts[name] = place, values[..., i].transpose(*order, *single).reshape(extent(place))
        return parts

    def coordinates(self) -> xarray.Dataset:
        found = self.labels.coordinates(self.num_queries)
        if self.grid is None:
            return found
        own = self.grid.coordinates()
        others = [n for n, c in found.coords.items() if set(c.dims) - {self.labels.sample} or n in own]
        return found.drop_vars(others).assign_coords(own)


class OwnQueryTiles(Tiles):
    """Tiles of a prediction F(uᵢ)(yᵢₚ) of every function at its own queries: a few functions each.

    If a function has many queries, they are predicted in several steps.

    **Arguments:**

    - `model`, `data`: the operator and its input functions.
    - `first`: the first function.
    - `level`: of bands, for a model that knows its error.
    """

    def __init__(self, model: Operator, data: Records, first: Samples, level: float | None = None):
        self.model, self.data, self.num_queries, self.level = model, data, first.y.count, level
        check_nodes(model, self.num_queries)
        self.labels = Labels.of(data, self.num_queries)
        self.at_once = self.num_queries
        rows = 1
        if model.is_pointwise:
            each_query = bytes_after(lambda y: TilePredictor(model, y).of_queries(y), first.y.points[:1])
            most = within(HALF_BYTES // each_query, 1, MOST_QUERIES)
            rows = within(min(most // self.num_queries, TILE_BYTES // bytes_of(first)), 1, MOST_FUNCTIONS)
            self.at_once = tile_sides((self.num_queries,), most)[0]
        self.rows = tile_sides((len(data),), rows)[0]
        self.moving = self.labels.moving()
        outputs = {variable.name: self.stored(variable.name) for variable in data.outputs}
        self.arrays = {**with_error_bars(outputs, level), **{name: self.stored(name) for name in self.moving}}

    def stored(self, name: str) -> StoredArray:
        """An output or a coordinate as it is stored: as in the data, divided along the functions only."""
        example = self.labels.example[name]
        is_coordinate = name in self.moving
        attributes = self.labels.attributes(name)
        if self.moving and not is_coordinate:
            attributes["coordinates"] = " ".join(self.moving)  # the convention by which xarray finds them

        def sizes(functions: int) -> tuple[int, ...]:
            return tuple(functions if dim == self.labels.sample else example.sizes[dim] for dim in example.dims)

        return StoredArray(
            tuple(str(dim) for dim in example.dims),
            sizes(len(self.data)),
            sizes(self.rows),
            example.dtype.name if is_coordinate else "float32",
            attributes,
        )

    @property
    def names(self) -> list[str]:
        return [str(rows.start) for rows in pieces(range(len(self.data)), self.rows)]

    def compute(self, done: Collection[str]) -> Iterator[tuple[str, TileValues]]:
        for rows in pieces(range(len(self.data)), self.rows):
            if str(rows.start) in done:
                continue
            taken = slice(rows.start, rows.stop)
            found = self.predictions(self.data.load(taken))
            kinds = zip(ERROR_BARS, np.split(found, found.shape[-1] // len(self.data.outputs), axis=-1), strict=False)
            by_kind = {ending: self.data.label(values, taken) for ending, values in kinds}
            labeled = {name: by_kind[""][name] for name in self.moving}
            for ending, values in by_kind.items():
                labeled |= {each.name + ending: values[each.name] for each in self.data.outputs}
            parts = {}
            for name, array in self.arrays.items():
                region = tuple(
                    taken if dim == self.labels.sample else slice(0, n)
                    for dim, n in zip(array.dims, array.shape, strict=True)
                )
                parts[name] = region, labeled[name].to_numpy()
            yield str(rows.start), parts

    def predictions(self, samples: Samples) -> Float[np.ndarray, "B P kinds_d_s"]:
        """The predictions at all queries of some functions, with error bars along the channels if there are any."""
        codes = encode_functions(self.model, samples.u)
        parts = []
        for start in range(0, self.num_queries, self.at_once):
            columns = jnp.arange(start, min(start + self.at_once, self.num_queries))
            queries = samples.y.choose(jnp.broadcast_to(columns, (len(samples), len(columns))))
            if self.level is None:
                parts.append(np.asarray(predict_encoded(self.model, codes, queries)))
            else:
                assert isinstance(self.model, Uncertain)
                found = predict_error_bars(self.model, samples.u, queries, self.model.radius(self.level))
                parts.append(np.concatenate(found, axis=-1))
        return np.concatenate(parts, axis=1)

    def coordinates(self) -> xarray.Dataset:
        return self.labels.coordinates(self.num_queries, without=self.moving)


def check_nodes(model: Operator, queries: int) -> None:
    """Raise if a model whose nodes are its queries has too many: its cost is their number squared."""
    if not model.is_pointwise and queries > MOST_OWN_NODES:
        raise ValueError(
            f"the nodes of this model are its queries (rule `OwnQueries`), so {queries} queries cannot be divided into "
            f"tiles; pass at most {MOST_OWN_NODES}, or train with a rule that has nodes of its own, such as "
            "`MonteCarlo`"
        )


def tile_sides(shape: Sequence[int], limit: int) -> tuple[int, ...]:
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


def tiles_of(shape: Sequence[int], sides: Sequence[int]) -> Iterator[Tile]:
    """All tiles of a grid, in row-major order."""
    axes = zip(shape, sides, strict=True)
    return itertools.product(*([slice(i, min(i + side, n)) for i in range(0, n, side)] for n, side in axes))


def pieces(rows: range, size: int) -> list[range]:
    """Consecutive parts of a range of rows; the last may be smaller."""
    return [range(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]


def extent(tile: Tile) -> tuple[int, ...]:
    """The sides of a tile."""
    return tuple(along.stop - along.start for along in tile)


def name_of(tile: Tile) -> str:
    """The name of a tile: its first indices."""
    return ".".join(str(along.start) for along in tile)


def bytes_of(tree: PyTree) -> int:
    """The memory that the arrays of a tree take."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct))
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


def bytes_after(function: Callable[..., PyTree], *given: PyTree) -> int:
    """The memory that the result of a function takes, without calling it."""
    return bytes_of(eqx.filter_eval_shape(function, *given))


def within(number: int, least: int, most: int) -> int:
    """The nearest number in a range."""
    return max(least, min(number, most))
