"""Operators evaluated by all devices of a mesh together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from loca.attention import Dense, Sharded
from loca.data import Free, Indexed, Queries, Shared
from loca.devices import FUNCTIONS, NODES, QUERIES, complete, pad_to_multiple
from loca.models.loca import LOCA
from loca.models.operator import AtQueries, Operator, SeparableOperator
from loca.typing import Input, PyTree


class ShardedOperator(eqx.Module):
    """F, with the work of every call split over the devices of a mesh; made by `shard`.

    Each device evaluates its own functions at its own queries with its own copy of the parameters. Devices exchange
    only the partial integrals of `Sharded` and, in the backward pass, the gradient of the parameters, once.
    """

    operator: Operator
    mesh: Mesh = eqx.field(static=True)

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        """Standardized outputs of encoded functions at their queries."""
        split, by_function = PartitionSpec(FUNCTIONS, QUERIES), PartitionSpec(FUNCTIONS)
        match queries:
            case Shared(y):
                s = self._on_each(
                    lambda own, codes, y: own.respond(codes, Shared(y)),
                    (codes, self._filled(y, axis=0)), (by_function, PartitionSpec(QUERIES)), split,
                )  # fmt: skip
            case Free(y):
                s = self._on_each(
                    lambda own, codes, y: own.respond(codes, Free(y)),
                    (codes, self._filled(y, axis=1)), (by_function, split), split,
                )  # fmt: skip
            case Indexed(y, index) if self._shares_locations(y, index):
                s = self._on_each(
                    at_own_locations,
                    (codes, self._filled(y, axis=0), self._filled(index, axis=1)),
                    (by_function, PartitionSpec(QUERIES), by_function), split,
                )  # fmt: skip
            case Indexed(y, index):
                s = self._on_each(
                    lambda own, codes, y, index: own.respond(codes, Indexed(y, index)),
                    (codes, y, self._filled(index, axis=1)), (by_function, PartitionSpec(), split), split,
                )  # fmt: skip
            case _:
                raise TypeError(
                    f"expected Shared, Indexed or Free queries, got {type(queries).__name__}, which cannot be split"
                )
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
