"""What every operator is."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Shared
from loca.typing import Input, PyTree


class Operator(eqx.Module):
    """F : u ↦ s, from input functions to output functions that can be asked anywhere.

    A call is made in two halves, so that training pays for the first only once: `encode` holds all that learning does
    not change, `respond` all that it does. Both work in standardized units; a call takes and gives the user's.
    """

    normalization: eqx.AbstractVar[Normalization]

    @abc.abstractmethod
    def encode(self, u: Input) -> Float[Array, "..."]:
        """What an input function becomes before anything learned touches it."""

    @abc.abstractmethod
    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        """Standardized outputs of encoded functions at their queries."""

    @abc.abstractmethod
    def at(self, y: Float[Array, "P d_y"]) -> PyTree:
        """This operator for a fixed set of queries: a function u ↦ s(y) with all work on y already done."""

    def __call__(self, u: Input, y: Float[Array, "P d_y"]) -> Float[Array, "P d_s"]:
        """F(u)(y) for one function, in the units of the data."""
        s = self.respond(self.encode(u)[None], Shared(y))[0]
        return self.normalization.restore_output(s)

    def predict(self, u: Input, queries: Queries) -> Float[Array, "N P d_s"]:
        """F(uᵢ)(yᵢ) for many functions, in the units of the data."""
        return self.normalization.restore_output(self.respond(jax.vmap(self.encode)(u), queries))
