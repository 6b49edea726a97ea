"""Every function at queries of its own: tiles of functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

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
    within,
)
from loca.prediction.halves import check_nodes, encoded, halves, is_pointwise, responded
from loca.prediction.job import Job, Parts, Stored
from loca.prediction.labels import Labels

if TYPE_CHECKING:
    import xarray


class OwnJob(Job):
    """sᵢ(yᵢₚ) of every function at its own queries, a few functions at a time; many queries are answered in turn.

    **Arguments:**

    - `model`, `data`: the operator and its input functions.
    - `first`: the first function.
    """

    def __init__(self, model: Operator, data: Records, first: Samples):
        self.model, self.data, self.asked = model, data, first.y.count
        check_nodes(model, self.asked)
        self.labels = Labels.of(data, self.asked)
        self.at_once = self.asked
        rows = 1
        if is_pointwise(model):
            each_query = bytes_after(lambda y: halves(model, y).of_queries(y), first.y.points[:1])
            most = within(HALF_BYTES // each_query, 1, MOST_QUERIES)
            rows = within(min(most // self.asked, TILE_BYTES // bytes_of(first)), 1, MOST_FUNCTIONS)
            self.at_once = chunk((self.asked,), most)[0]
        self.rows = chunk((len(data),), rows)[0]
        self.moving = self.labels.moving()
        outputs = [variable.name for variable in data.outputs]
        self.arrays = {name: self.stored(name) for name in (*outputs, *self.moving)}

    def stored(self, name: str) -> Stored:
        """How an output or a coordinate is written: as the data has it, cut along its functions only."""
        example = self.labels.example[name]
        is_coordinate = name in self.moving
        attributes = self.labels.attributes(name)
        if self.moving and not is_coordinate:
            attributes["coordinates"] = " ".join(self.moving)  # the convention by which xarray knows them again

        def sizes(functions: int) -> tuple[int, ...]:
            return tuple(functions if dim == self.labels.sample else example.sizes[dim] for dim in example.dims)

        return Stored(
            tuple(str(dim) for dim in example.dims),
            sizes(len(self.data)),
            sizes(self.rows),
            example.dtype.name if is_coordinate else "float32",
            attributes,
        )

    @property
    def names(self) -> list[str]:
        return [str(rows.start) for rows in cut(range(len(self.data)), self.rows)]

    def make(self, done: Collection[str]) -> Iterator[tuple[str, Parts]]:
        for rows in cut(range(len(self.data)), self.rows):
            if str(rows.start) in done:
                continue
            taken = slice(rows.start, rows.stop)
            labeled = self.data.label(self.answers(self.data.load(taken)), taken)
            parts = {}
            for name, array in self.arrays.items():
                region = tuple(
                    taken if dim == self.labels.sample else slice(0, n)
                    for dim, n in zip(array.dims, array.shape, strict=True)
                )
                parts[name] = region, labeled[name].to_numpy()
            yield str(rows.start), parts

    def answers(self, samples: Samples) -> Float[np.ndarray, "B P d_s"]:
        """The answers at all queries, so many at a time."""
        codes = encoded(self.model, samples.u)
        parts = []
        for start in range(0, self.asked, self.at_once):
            columns = jnp.arange(start, min(start + self.at_once, self.asked))
            queries = samples.y.choose(jnp.broadcast_to(columns, (len(samples), len(columns))))
            parts.append(np.asarray(responded(self.model, codes, queries)))
        return np.concatenate(parts, axis=1)

    def coordinates(self) -> xarray.Dataset:
        return self.labels.coordinates(self.asked, without=self.moving)
