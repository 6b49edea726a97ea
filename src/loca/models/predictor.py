"""Compiled predictions for many functions, on one device or on a mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from loca.data import Queries, Records, Samples, Shared
from loca.devices import complete, constrain, place, shard_functions
from loca.metrics import relative_l2
from loca.models.align import adapt
from loca.models.operator import Operator
from loca.models.sharded import ShardedOperator, shard
from loca.models.uncertain import Uncertain
from loca.typing import Input, PyTree

BLOCK = 100
"""Functions that are predicted at once."""

# The compiled functions take the operator as an argument and are defined here, once, so that another operator of the
# same sizes needs no compilation.


@eqx.filter_jit
def predict(
    operator: Operator | ShardedOperator, u: Input, queries: Queries, mesh: Mesh | None = None
) -> Float[Array, "N P d_s"]:
    """F(uᵢ)(yᵢ) in the units of the data, on every device of a mesh."""
    return constrain(operator.predict(u, queries), mesh)


@eqx.filter_jit
def encode_functions(operator: Operator, u: Input) -> Float[Array, "N ..."]:
    """Many input functions, encoded."""
    return jax.vmap(operator.encode)(u)


@eqx.filter_jit
def predict_encoded(
    operator: Operator, codes: Float[Array, "N ..."], queries: Queries, mesh: Mesh | None = None
) -> Float[Array, "N P d_s"]:
    """Predictions for encoded functions, in the units of the data; with a mesh, its devices share the work."""
    responding = operator if mesh is None else shard(operator, mesh)
    return operator.normalization.at(queries).restore(responding.respond(codes, queries))


@eqx.filter_jit
def at_queries(operator: Operator | ShardedOperator, y: Float[Array, "P d_y"]) -> PyTree:
    """The operator at fixed queries, see `Operator.at`."""
    return operator.at(y)


@eqx.filter_jit
def predict_fixed(fixed: PyTree, u: Input, mesh: Mesh | None) -> Float[Array, "N P d_s"]:
    """Predictions of an operator at fixed queries, on every device of a mesh."""
    return constrain(jax.vmap(fixed)(shard_functions(u, mesh)), mesh)


@eqx.filter_jit
def call(function: Callable[..., PyTree], *arguments: Any) -> PyTree:
    """The value of a function; arrays of the function itself, such as those of an operator, are arguments too."""
    return function(*arguments)


class Predictor:
    """F(uᵢ)(yᵢ) for blocks of functions.

    All work on queries that the functions share is done once, when the predictor is made. A block that is smaller than
    `size` is padded, so that it needs no compilation of its own.

    **Arguments:**

    - `operator`: any.
    - `queries`: those of the first block. If they are `Shared`, they hold for all blocks.
    - `size`: the number of functions in a full block; by default blocks are not padded.
    - `mesh`: devices that share the work, see `shard`. With devices of several processes, each makes the same calls and
      gets all predictions.
    """

    def __init__(self, operator: Operator, queries: Queries, size: int | None = None, mesh: Mesh | None = None):
        self.mesh = None if mesh is None else complete(mesh)
        self.size = size
        self.check = functools.partial(operator.normalization.check_input, variables=operator.inputs)
        self.operator = operator if self.mesh is None else place(shard(operator, self.mesh), self.mesh)
        shared = isinstance(queries, Shared)
        self.fixed = at_queries(self.operator, place(queries.points, self.mesh)) if shared else None

    def __call__(self, u: Input, queries: Queries) -> Float[np.ndarray, "N P d_s"]:
        """The predictions for one block of functions at their queries."""
        self.check(u)
        count = len(jax.tree.leaves(u)[0])
        if self.size is not None and count < self.size:
            rows = jnp.arange(self.size) % count
            u, queries = jax.tree.map(lambda array: array[rows], u), queries.take(rows)
        if self.fixed is not None:
            s = predict_fixed(self.fixed, place(u, self.mesh), self.mesh)
        else:
            s = predict(self.operator, *place((u, queries), self.mesh), self.mesh)
        return np.asarray(s)[:count]


def blocks(data: Samples | Records, size: int) -> Iterator[Samples]:
    """All functions in order, `size` at a time; the last block may be smaller."""
    if size < 1:
        raise ValueError(f"a block needs at least one function, got batch_size={size} and {len(data)} functions")
    for start in range(0, len(data), size):
        stop = min(start + size, len(data))
        yield data.load(slice(start, stop)) if isinstance(data, Records) else data.take(jnp.arange(start, stop))


def mean_error(operator: Operator, data: Samples) -> float:
    """The mean relative L2 error over functions and channels, except those that are zero everywhere."""
    data = adapt(operator, data)
    predict = Predictor(operator, data.y, min(BLOCK, len(data)))
    errors = []
    for block in blocks(data, BLOCK):
        s = np.asarray(block.s)
        errors.append(relative_l2(predict(block.u, block.y), s)[(s != 0.0).any(axis=1)])
    return float(np.mean(np.concatenate(errors)))


class TilePredictor:
    """Predictions for tiles of functions × queries, in which each half of the operator is computed once.

    With a level of bands the operator is `Uncertain`, and the channels of predictions are followed by those of the
    standard deviation, the lower and the upper end of pointwise bands. y are all queries; any of them suffice if the
    operator is pointwise.
    """

    def __init__(self, operator: Operator, y: Float[Array, "P d_y"], level: float | None = None):
        if level is None:
            self.halves = operator.halves(y)
        else:
            assert isinstance(operator, Uncertain)
            self.halves = operator.halves_with_bands(operator.radius(level))
        self.check = functools.partial(operator.normalization.check_input, variables=operator.inputs)

    def of_functions(self, u: Input) -> Array:
        """What depends on u alone, one row per function."""
        self.check(u)
        return call(self.halves.of_functions, u)

    def of_queries(self, y: Float[Array, "P d_y"]) -> list[PyTree]:
        """What depends on y alone, in blocks of queries."""
        size = self.halves.block or len(y)
        return [call(self.halves.of_queries, y[i : i + size]) for i in range(0, len(y), size)]

    def together(self, functions: Array, queries: list[PyTree]) -> Float[np.ndarray, "B P d_s"]:
        """The predictions, from both halves."""
        return np.concatenate([np.asarray(call(self.halves.together, functions, part)) for part in queries], axis=1)
