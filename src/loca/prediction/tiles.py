"""Predictions in tiles of functions × queries, each of which fits in memory many times."""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Records, Samples, pieces
from loca.models import Operator, TilePredictor, Uncertain, encode_functions, predict_encoded, predict_error_bars
from loca.prediction.labels import ERROR_BARS, Labels, StoredArray, TileValues, with_error_bars
from loca.prediction.queries import QueryGrid, QueryPoints, Tile
from loca.typing import PyTree
from loca.uncertainty import Calibrated

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

    arrays: dict[str, StoredArray]
    moving: tuple[str, ...] = ()
    """The arrays that are coordinates: they differ between functions."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[tuple[str, Callable[[], TileValues]]]:
        """The names of the tiles, each with a function that computes its values."""

    @abc.abstractmethod
    def coordinates(self) -> xarray.Dataset:
        """The coordinates that are not written in tiles."""


P_VALUE = "in_distribution"
"""The array with the p-values of input functions."""


def _p_values(model: Operator, sample: str, count: int, rows: int) -> dict[str, StoredArray]:
    """How familiar every input function is to a calibrated model, as an array in tiles of some functions."""
    if not isinstance(model, Calibrated):
        return {}
    title = "p-value of the input among the calibration functions; small if it is unlike them"
    return {P_VALUE: StoredArray((sample,), (count,), (rows,), "float32", {"long_name": title})}


class SharedQueryTiles(Tiles):
    """Tiles of a prediction F(uᵢ)(yₚ) of all functions at the same queries.

    Functions are processed in groups whose features fit in memory, usually a single group; the queries of each group
    are processed in tiles. φ of a tile is computed once and serves all functions of the group, whose features were
    computed once before.

    **Arguments:**

    - `first`: the first function.
    - `queries`: a grid or points; by default the queries of the data.
    - `level`: of bands, for a model that knows its error.
    """

    def __init__(
        self,
        model: Operator,
        data: Records,
        first: Samples,
        labels: Labels,
        queries: QueryGrid | QueryPoints | None,
        level: float | None = None,
    ):
        self.model, self.data, self.count, self.labels = model, data, len(data), labels
        self.num_queries, self.is_chosen = first.y.count, queries is not None
        self.queries = labels.queries(np.asarray(first.y.points)) if queries is None else queries
        _check_nodes(model, math.prod(self.queries.shape))
        shape = self.queries.shape
        all_queries = tuple(slice(0, 1 if model.is_pointwise else n) for n in shape)
        y = np.asarray(first.y.points) if queries is None else queries.points(all_queries)
        self.predictor = TilePredictor(model, jnp.asarray(y), level)
        each_function = _bytes_after(self.predictor.of_functions, first.u)
        each_query = _bytes_after(self.predictor.of_queries, jnp.asarray(y[:1]))
        self.sides = _tile_sides(shape, _within(HALF_BYTES // each_query, 1, MOST_QUERIES))
        size = 4 * len(data.outputs) * math.prod(self.sides) * (1 if level is None else len(ERROR_BARS))
        rows = _within(min(TILE_BYTES // size, HALF_BYTES // each_function), 1, self.count)
        self.rows = _tile_sides((self.count,), rows)[0]
        self.group = self.rows * max(1, HALF_BYTES // (each_function * self.rows))
        self.block = max(1, TILE_BYTES // _bytes_of(first))
        outputs = with_error_bars({each.name: self.stored(each.name) for each in data.outputs}, level)
        self.arrays = {**outputs, **_p_values(model, labels.sample, self.count, self.rows)}

    def stored(self, name: str) -> StoredArray:
        """An output as it is stored, with the data's order of dimensions."""
        own = (self.labels.sample, *self.queries.dims)
        dims = own if self.is_chosen else tuple(str(dim) for dim in self.labels.example[name].dims)
        order = [own.index(dim) for dim in dims]
        shape, chunks = (self.count, *self.queries.shape), (self.rows, *self.sides)
        return StoredArray(
            dims,
            tuple(shape[i] for i in order),
            tuple(chunks[i] for i in order),
            "float32",
            self.labels.attributes(name),
        )

    def __iter__(self) -> Iterator[tuple[str, Callable[[], TileValues]]]:
        for group in pieces(range(self.count), self.group):
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
        own = (self.labels.sample, *self.queries.dims)
        parts = {}
        for i, (name, array) in enumerate(list(self.arrays.items())[: values.shape[-1]]):
            order = [own.index(dim) for dim in array.dims]
            single = [axis for axis in range(len(own)) if axis not in order]  # dimensions that only other outputs have
            place = tuple(region[axis] for axis in order)
            parts[name] = place, values[..., i].transpose(*order, *single).reshape(_extent(place))
        return parts

    def coordinates(self) -> xarray.Dataset:
        found = self.labels.coordinates(self.num_queries)
        if not self.is_chosen:
            return found
        own = self.queries.located()
        others = [n for n, c in found.coords.items() if set(c.dims) - {self.labels.sample} or n in own]
        return found.drop_vars(others).assign_coords(own)


class OwnQueryTiles(Tiles):
    """Tiles of a prediction F(uᵢ)(yᵢₚ) of every function at its own queries: a few functions each.

    If a function has many queries, they are predicted in several steps. Arguments are as of `SharedQueryTiles`.
    """

    def __init__(self, model: Operator, data: Records, first: Samples, labels: Labels, level: float | None = None):
        self.model, self.data, self.labels, self.level = model, data, labels, level
        self.num_queries = first.y.count
        _check_nodes(model, self.num_queries)
        self.at_once = self.num_queries
        rows = 1
        if model.is_pointwise:
            each_query = _bytes_after(lambda y: TilePredictor(model, y).of_queries(y), first.y.points[:1])
            most = _within(HALF_BYTES // each_query, 1, MOST_QUERIES)
            rows = _within(min(most // self.num_queries, TILE_BYTES // _bytes_of(first)), 1, MOST_FUNCTIONS)
            self.at_once = _tile_sides((self.num_queries,), most)[0]
        self.rows = _tile_sides((len(data),), rows)[0]
        self.moving = self.labels.moving()
        outputs = {variable.name: self.stored(variable.name) for variable in data.outputs}
        moving = {name: self.stored(name) for name in self.moving}
        familiar = _p_values(model, labels.sample, len(data), self.rows)
        self.arrays = {**with_error_bars(outputs, level), **moving, **familiar}

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

    def __iter__(self) -> Iterator[tuple[str, Callable[[], TileValues]]]:
        for rows in pieces(range(len(self.data)), self.rows):
            yield str(rows.start), functools.partial(self.values, slice(rows.start, rows.stop))

    def values(self, rows: slice) -> TileValues:
        """The predictions for some functions, and their own coordinates."""
        samples = self.data.load(rows)
        found = self.predictions(samples)
        kinds = zip(ERROR_BARS, np.split(found, found.shape[-1] // len(self.data.outputs), axis=-1), strict=False)
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
        return self.labels.coordinates(self.num_queries, without=self.moving)


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
