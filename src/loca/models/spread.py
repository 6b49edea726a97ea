"""Answers that all devices of a mesh work out together."""

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
from loca.models.operator import Operator
from loca.models.separable import AtQueries, SeparableOperator
from loca.typing import Input, PyTree


class Spread(eqx.Module):
    """F, asked as the operator itself is, with the work of every call spread over a mesh; use `spread`.

    Every device answers for its own functions and queries with parameters of its own, so that nothing goes between
    devices but the partial integrals of `Sharded` and, on the way back, the gradient of the parameters, once.
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
                    f"queries of the kind {type(queries).__name__} cannot be split; use Shared, Indexed or Free"
                )
        return s if s.shape[1] == queries.count else s[:, : queries.count]

    def at(self, y: Float[Array, "P d_y"]) -> PyTree:
        """For a fixed set of queries: a function u ↦ s(y) with all work on y done, its part on each device."""
        if not isinstance(self.operator, SeparableOperator):
            return self.operator.at(y)
        rows = PartitionSpec(QUERIES)
        phi = self._on_each(lambda own, y: own.weights(y), (self._filled(y, axis=0),), (rows,), rows)
        return AtQueries(self.operator, jax.tree.map(lambda phi_s: phi_s[: len(y)], phi))

    def __call__(self, u: Input, y: Float[Array, "P d_y"]) -> Float[Array, "P d_s"]:
        """F(u)(y) for one function, in the units of the data."""
        return self.at(y)(u)

    def predict(self, u: Input, queries: Queries) -> Float[Array, "N P d_s"]:
        """F(uᵢ)(yᵢ) for many functions, in the units of the data."""
        operator = self.operator
        functions = len(jax.tree.leaves(u)[0])
        codes = pad_to_multiple(jax.vmap(operator.encode)(u), self.mesh.shape[FUNCTIONS], axis=0)
        queries = queries.each(lambda rows: pad_to_multiple(rows, self.mesh.shape[FUNCTIONS], axis=0))
        return operator.normalization.restore_output(self.respond(codes, queries)[:functions])

    def _shares_locations(self, y: Float[Array, "M d_y"], index: Int[Array, "N P"]) -> bool:
        """Whether a device does better to answer at its part of all locations than at its part of the labels."""
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
        """A function of the operator, whole on each device, and of the device's own part of some arrays."""
        parameters, rest = eqx.partition(self.operator, eqx.is_array)
        return jax.shard_map(
            lambda parameters, *arrays: function(eqx.combine(parameters, rest), *arrays),
            mesh=self.mesh,
            axis_names={FUNCTIONS, QUERIES},
            in_specs=(PartitionSpec(), *split),
            out_specs=out,
            check_vma=False,  # a loop in somebody's network may begin with zeros that are the same on all devices
        )(parameters, *arrays)


def spread(operator: Operator, mesh: Mesh) -> Spread:
    """The same operator, for `predict`, `at` and calls, with the work spread over the devices of a mesh.

    Compile what you call: `jax.jit(lambda u, y: spread(model, mesh)(u, y))`.

    **Arguments:**

    - `operator`: any; it stays as it is, and holds nothing of the mesh.
    - `mesh`: with any of the axes "functions", "queries" and "nodes". The last splits the integral of a `LOCA` that is
        evaluated by `Dense` or `Sharded`. Neither last nor second make sense where answers depend on what is asked
        together, as with the rule `OwnQueries`.
    """
    mesh = complete(mesh)
    if mesh.shape[QUERIES] > 1 and isinstance(operator, SeparableOperator) and not operator.is_pointwise:
        raise ValueError(
            "the answers of this operator depend on what is asked together, so its queries cannot be split; "
            f"give a mesh without the axis {QUERIES!r}, or a model with another rule"
        )
    if mesh.shape[NODES] > 1:
        if not isinstance(operator, LOCA) or not isinstance(operator.attention, Dense | Sharded):
            way = type(operator.attention).__name__ if isinstance(operator, LOCA) else "no attention at all"
            raise ValueError(
                f"the axis {NODES!r} of the mesh splits the integral of a LOCA with Dense or Sharded attention, and "
                f"this {type(operator).__name__} has {way}; give a mesh without that axis"
            )
        operator = dataclasses.replace(operator, attention=Sharded(NODES))
    return Spread(operator, mesh)


def at_own_locations(
    operator: Operator, codes: Float[Array, "N ..."], y: Float[Array, "part d_y"], index: Int[Array, "N P"]
) -> Float[Array, "N own d_s"]:
    """Answers at indexed locations, of which every device has only some: each is found where its location is.

    All devices but one contribute zero to an answer, so the sum over them is exact.
    """
    answers = operator.respond(codes, Shared(y))
    place = index - jax.lax.axis_index(QUERIES) * len(y)
    is_here = (0 <= place) & (place < len(y))
    chosen = jnp.take_along_axis(answers, jnp.clip(place, 0, len(y) - 1)[:, :, None], axis=1)
    chosen = jnp.where(is_here[:, :, None], chosen, 0.0)
    return jax.lax.psum_scatter(chosen, QUERIES, scatter_dimension=1, tiled=True)
