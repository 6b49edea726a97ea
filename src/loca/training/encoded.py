"""Training data with everything done that training does not change."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import Queries, Samples, batch_rows
from loca.devices import shard_functions
from loca.models import Operator
from loca.typing import Input


class Encoded(eqx.Module):
    """Encoded input functions, their queries and how much these count, and standardized outputs, for one model."""

    codes: Float[Array, "N ..."]
    queries: Queries
    s: Float[Array, "N P d_s"]
    weights: Float[Array, " P"] | Float[Array, "N P"] | None = None

    @classmethod
    def of(cls, model: Operator, samples: Samples, weights: Float[Array, " M"] | None = None) -> Encoded:
        """Encode some samples once, so that no step has to; with a weight for each of the locations `y.points`."""
        codes = encode(model, samples.u)
        s = model.normalization.standardize_output(samples.s)
        return cls(codes, samples.y, s, None if weights is None else weights_at(samples.y, weights))

    def each(self, change: Callable[[Array], Array]) -> Encoded:
        """With a change made to whatever has a row for each function."""
        weights = self.weights if self.weights is None or self.weights.ndim == 1 else change(self.weights)
        return Encoded(change(self.codes), self.queries.each(change), change(self.s), weights)

    def sharded(self, mesh: Mesh | None) -> Encoded:
        """Split over the devices of a mesh by function; inside a compiled program."""
        return self.each(lambda rows: shard_functions(rows, mesh))

    def take(self, rows: Int[Array, " B"]) -> Encoded:
        """Some of the functions, in the order given."""
        return self.each(lambda array: array[rows])

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Encoded:
        """The functions of one training step: a pure function of (seed, step), every function once per epoch."""
        return self.take(batch_rows(seed, step, size, len(self.s)))


@eqx.filter_jit
def encode(model: Operator, u: Input) -> Float[Array, "N ..."]:
    """All input functions; compiled here, so that another run with the same sizes needs no compilation."""
    return jax.lax.map(model.encode, u, batch_size=256)


def weights_at(queries: Queries, weights: Float[Array, " M"]) -> Float[Array, " P"] | Float[Array, "N P"]:
    """Weights of all locations, brought to the queries; refused if there are not as many as locations."""
    if len(weights) != len(queries.points):
        raise ValueError(
            f"{len(weights)} weights were given, but the functions are asked at {len(queries.points)} locations; "
            "give one for each, such as loca.domains.area_weights(data.domain, data.y.points)"
        )
    return queries.gather(weights)
