"""Compiled predictions for many functions, on one device, and by all devices of a mesh together."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from loca.attention import Dense, Sharded
from loca.data import Free, Indexed, Queries, Records, Samples, Shared
from loca.devices import FUNCTIONS, NODES, QUERIES, complete, constrain, pad_to_multiple, place, shard_functions
from loca.metrics import relative_l2
from loca.models.align import adapt
from loca.models.loca import LOCA
from loca.models.operator import AtQueries, Operator, SeparableOperator
from loca.models.uncertain import Uncertain
from loca.typing import Input, PyTree

BLOCK = 100
"""Functions that are predicted at once."""

# ---- one operator on many devices ------------------------------------------------------------------------------------


class ShardedOperator(eqx.Module):
    """F, with the work of every call split over the devices of a mesh; made by `shard`.

    Each device evaluates its own functions at its own queries with its own copy of the parameters. Devices exchange
    only the partial integrals of `Sharded` and, in the backward pass, the gradient of the parameters, once.
    """

    operator: Operator
    mesh: Mesh = eqx.field(static=True)

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        """Standardized outputs of encoded functions at their queries."""
        functions, rows, both = PartitionSpec(FUNCTIONS), PartitionSpec(QUERIES), PartitionSpec(FUNCTIONS, QUERIES)
        kind: Callable[..., Queries] = type(queries)
        respond: Callable[..., Array] = lambda own, codes, *parts: own.respond(codes, kind(*parts))  # noqa: E731
        match queries:
            case Shared(y):
                parts, split = (self._filled(y, axis=0),), (rows,)
            case Free(y):
                parts, split = (self._filled(y, axis=1),), (both,)
            case Indexed(y, index) if self._shares_locations(y, index):
                respond = at_own_locations
                parts, split = (self._filled(y, axis=0), self._filled(index, axis=1)), (rows, functions)
            case Indexed(y, index):
                parts, split = (y, self._filled(index, axis=1)), (PartitionSpec(), both)
            case _:
                raise TypeError(
                    f"expected Shared, Indexed or Free queries, got {type(queries).__name__}, which cannot be split"
                )
        s = self._on_each(respond, (codes, *parts), (functions, *split), both)
        return s if s.shape[1] == queries.count else s[:, : queries.count]

    def at(self, y: Float[Array, "P d_y"]) -> PyTree:
        """The operator at fixed queries, a part of them on each device: a function u ↦ F(u)(y)."""
        if not isinstance(self.operator, SeparableOperator):
            return self.operator.at(y)
        rows = PartitionSpec(QUERIES)
        phi = self._on_each(lambda own, y: own.weights(y), (self._filled(y, axis=0),), (rows,), rows)
        phi = jax.tree.map(lambda phi_s: phi_s[: len(y)], phi)
        outputs = self.operator.normalization.at(Shared(y))
        return AtQueries(self.operator._features_of_many, self.operator._expectation, (phi, outputs))

    def __call__(self, u: Input, y: Float[Array, "P d_y"]) -> Float[Array, "P d_s"]:
        """F(u)(y) for one function, in the units of the data."""
        return self.at(y)(u)

    def predict(self, u: Input, queries: Queries) -> Float[Array, "N P d_s"]:
        """F(uᵢ)(yᵢ) for many functions, in the units of the data."""
        operator, outputs = self.operator, self.operator.normalization.at(queries)
        functions = len(jax.tree.leaves(u)[0])
        codes = pad_to_multiple(jax.vmap(operator.encode)(u), self.mesh.shape[FUNCTIONS], axis=0)
        queries = queries.each(lambda rows: pad_to_multiple(rows, self.mesh.shape[FUNCTIONS], axis=0))
        return outputs.restore(self.respond(codes, queries)[:functions])

    def _shares_locations(self, y: Float[Array, "M d_y"], index: Int[Array, "N P"]) -> bool:
        """Whether it is cheaper to evaluate at a device's part of all locations than at its part of the labels."""
        operator, devices = self.operator, self.mesh.shape
        pointwise = isinstance(operator, SeparableOperator) and operator.is_pointwise
        return pointwise and devices[QUERIES] > 1 and len(y) * devices[FUNCTIONS] <= index.size

    def _filled(self, rows: Array, axis: int) -> Array:
        return pad_to_multiple(rows, self.mesh.shape[QUERIES], axis)

    def _on_each(
        self,
        function: Callable[..., PyTree],
        arrays: tuple[Array, ...],
        split: tuple[PartitionSpec, ...],
        out: PartitionSpec,
    ) -> PyTree:
        """Evaluate a function on each device, from a copy of the operator and the device's part of some arrays."""
        parameters, rest = eqx.partition(self.operator, eqx.is_array)
        return jax.shard_map(
            lambda parameters, *arrays: function(eqx.combine(parameters, rest), *arrays),
            mesh=self.mesh,
            axis_names={FUNCTIONS, QUERIES},
            in_specs=(PartitionSpec(), *split),
            out_specs=out,
            check_vma=False,  # a loop in a user's network may begin with zeros that are the same on all devices
        )(parameters, *arrays)


def shard(operator: Operator, mesh: Mesh) -> ShardedOperator:
    """The same operator, for `predict`, `at` and calls, with the work split over the devices of a mesh.

    Compile what you call: `jax.jit(lambda u, y: shard(model, mesh)(u, y))`.

    **Arguments:**

    - `operator`: any; it does not change, and does not refer to the mesh.
    - `mesh`: with any of the axes "functions", "queries" and "nodes". "nodes" splits the integral of a `LOCA` that is
        evaluated by `Dense` or `Sharded`. "queries" and "nodes" need a pointwise operator, so they do not work with the
        rule `OwnQueries`.
    """
    mesh = complete(mesh)
    if mesh.shape[QUERIES] > 1 and not operator.is_pointwise:
        raise ValueError(
            "predictions of this operator depend on all queries together, so the queries cannot be split; "
            f"pass a mesh without the axis {QUERIES!r}, or a model with another rule"
        )
    if mesh.shape[NODES] > 1:
        if not isinstance(operator, LOCA) or not isinstance(operator.attention, Dense | Sharded):
            found = type(operator.attention).__name__ if isinstance(operator, LOCA) else "no attention"
            raise ValueError(
                f"the axis {NODES!r} of the mesh splits the integral of a LOCA with Dense or Sharded attention, but "
                f"this {type(operator).__name__} has {found}; pass a mesh without that axis"
            )
        operator = dataclasses.replace(operator, attention=Sharded(NODES))
    return ShardedOperator(operator, mesh)


def at_own_locations(
    operator: Operator, codes: Float[Array, "N ..."], y: Float[Array, "part d_y"], index: Int[Array, "N P"]
) -> Float[Array, "N own d_s"]:
    """Outputs at indexed locations, of which each device has a part.

    The device that has a location contributes the output there and all others zero, so the sum over devices is exact.
    """
    outputs = operator.respond(codes, Shared(y))
    place = index - jax.lax.axis_index(QUERIES) * len(y)
    is_here = (0 <= place) & (place < len(y))
    chosen = jnp.take_along_axis(outputs, jnp.clip(place, 0, len(y) - 1)[:, :, None], axis=1)
    chosen = jnp.where(is_here[:, :, None], chosen, 0.0)
    return jax.lax.psum_scatter(chosen, QUERIES, scatter_dimension=1, tiled=True)


# ---- compiled predictions --------------------------------------------------------------------------------------------

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
