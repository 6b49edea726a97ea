"""Training data with everything done that training does not change."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int

from loca.data import Queries, Samples, batch_rows
from loca.models import Operator


class Encoded(eqx.Module):
    """Encoded input functions, their queries, and standardized outputs, for one model."""

    codes: Float[Array, "N ..."]
    queries: Queries
    s: Float[Array, "N P d_s"]

    @classmethod
    def of(cls, model: Operator, samples: Samples) -> Encoded:
        """Encode some samples once, so that no step has to."""
        codes = eqx.filter_jit(lambda u: jax.lax.map(model.encode, u, batch_size=256))(samples.u)
        return cls(codes, samples.y, model.normalization.standardize_output(samples.s))

    def take(self, rows: Int[Array, " B"]) -> Encoded:
        """Some of the functions, in the order given."""
        return Encoded(self.codes[rows], self.queries.take(rows), self.s[rows])

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Encoded:
        """The functions of one training step: a pure function of (seed, step), every function once per epoch."""
        return self.take(batch_rows(seed, step, size, len(self.s)))
