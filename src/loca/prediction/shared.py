"""All functions at the same queries: tiles of functions and queries, each half of the operator computed once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Records, Samples
from loca.data.store import cut
from loca.models import Operator
from loca.prediction.cutting import (
    HALF_BYTES,
    MOST_FUNCTIONS,
    MOST_QUERIES,
    TILE_BYTES,
    bytes_after,
    bytes_of,
    chunk,
    extent,
    name_of,
    tiles,
    within,
)
from loca.prediction.grid import QueryGrid, Tile
from loca.prediction.halves import check_nodes, halves, is_pointwise
from loca.prediction.job import Job, Parts, Stored
from loca.prediction.labels import LabeledQueries, Labels

if TYPE_CHECKING:
    import xarray


class SharedJob(Job):
    """s(yₚ) of every function at every query of one set.

    Functions pass in groups whose features fit in memory, usually one group; in each, the queries pass in tiles. φ of a
    tile is computed once and serves all functions of the group, whose features were computed once before.

    **Arguments:**

    - `model`, `data`: the operator and its input functions.
    - `first`: the first function.
    - `queries`: a grid; by default the queries of the data.
    """

    def __init__(self, model: Operator, data: Records, first: Samples, queries: QueryGrid | None):
        self.data, self.count, self.asked, self.grid = data, len(data), first.y.count, queries
        check_nodes(model, queries.count if queries else self.asked)
        self.labels = Labels.of(data, self.asked)
        y = np.asarray(first.y.points)
        self.queries = queries or LabeledQueries(self.labels.dims, self.labels.numbers(), y)
        shape = self.queries.shape
        if queries is not None:
            y = queries.points(tuple(slice(0, 1 if is_pointwise(model) else n) for n in shape))
        self.halves = halves(model, jnp.asarray(y))
        each_function = bytes_after(self.halves.of_functions, first.u)
        each_query = bytes_after(self.halves.of_queries, jnp.asarray(y[:1]))
        most = within(HALF_BYTES // each_query, 1, MOST_QUERIES)
        self.sides = chunk(shape, most)
        size = 4 * len(data.outputs) * math.prod(self.sides)
        rows = within(min(TILE_BYTES // size, HALF_BYTES // each_function), 1, self.count)
        self.rows = chunk((self.count,), rows)[0]
        self.group = self.rows * max(1, HALF_BYTES // (each_function * self.rows))
        self.batch = within(TILE_BYTES // bytes_of(first), 1, MOST_FUNCTIONS)
        self.arrays = {variable.name: self.stored(variable.name) for variable in data.outputs}

    def stored(self, name: str) -> Stored:
        """How an output is written: in the order of dimensions that the data has."""
        own = (self.labels.sample, *self.queries.dims)
        dims = own if self.grid else tuple(str(dim) for dim in self.labels.example[name].dims)
        order = [own.index(dim) for dim in dims]
        shape, chunks = (self.count, *self.queries.shape), (self.rows, *self.sides)
        return Stored(
            dims,
            tuple(shape[i] for i in order),
            tuple(chunks[i] for i in order),
            "float32",
            self.labels.attributes(name),
        )

    @property
    def names(self) -> list[str]:
        places = list(tiles(self.queries.shape, self.sides))
        return [
            name_of((slice(rows.start, rows.stop), *place))
            for group in cut(range(self.count), self.group)
            for place in places
            for rows in cut(group, self.rows)
        ]

    def make(self, done: Collection[str]) -> Iterator[tuple[str, Parts]]:
        for group in cut(range(self.count), self.group):
            known: Array | None = None
            for place in tiles(self.queries.shape, self.sides):
                regions = [(slice(rows.start, rows.stop), *place) for rows in cut(group, self.rows)]
                todo = [region for region in regions if name_of(region) not in done]
                if not todo:
                    continue
                if known is None:
                    known = self.of_functions(group)
                at = self.halves.of_queries(jnp.asarray(self.queries.points(place)))
                for region in todo:
                    own = known[region[0].start - group.start : region[0].stop - group.start]
                    yield name_of(region), self.arranged(self.halves.together(own, at), region)

    def of_functions(self, group: range) -> Array:
        """What depends on u alone, for a group of functions."""
        parts = [self.halves.of_functions(self.data.load(slice(b.start, b.stop)).u) for b in cut(group, self.batch)]
        return jnp.concatenate(parts)

    def arranged(self, s: Float[np.ndarray, "B P d_s"], region: Tile) -> Parts:
        """The values of a tile as they are written."""
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
        found = self.labels.coordinates(self.asked)
        if self.grid is None:
            return found
        others = [n for n, c in found.coords.items() if set(c.dims) - {self.labels.sample} or n in self.grid.dims]
        return found.drop_vars(others).assign_coords(self.grid.coordinates())
