"""Operators that are sums of products: the identity everything rests on."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.attention import expectation
from loca.data import Indexed, Normalization, Queries, Shared
from loca.encoders import Encoder
from loca.models.operator import Operator
from loca.typing import Input

BLOCK = 8192
"""Queries at a time where φ would not fit in memory: 8192 × 1024 nodes in single precision are 32 MB."""

Basis = Callable[[Float[Array, "P d_y"]], Float[Array, "d_s P n"]]
"""φ, as a function of the queries."""


class SeparableOperator(Operator):
    """F(u)(y) = Σᵢ φᵢ(y) ⊙ vᵢ(u): φ depends on y alone, v on u alone.

    So φ is computed once per distinct location and v once per function, whatever the form of the queries.
    """

    encoder: eqx.AbstractVar[Encoder]

    @abc.abstractmethod
    def basis(self, y: Float[Array, "P d_y"]) -> Basis:
        """φ, after all work that it can do before it meets single queries; y is where it will be asked."""

    @abc.abstractmethod
    def read(self, code: Float[Array, " d"]) -> Float[Array, "d_s n"]:
        """v from an encoded function."""

    @property
    @abc.abstractmethod
    def is_pointwise(self) -> bool:
        """Whether φ at a location is the same whatever else is asked."""

    def weights(self, y: Float[Array, "P d_y"]) -> Float[Array, "d_s P n"]:
        """φ(y)."""
        return self._in_blocks(self.basis(y), y)

    def features(self, u: Input) -> Float[Array, "d_s n"]:
        """v(u) = f(𝒟(u))."""
        return self.read(self.encode(u))

    def encode(self, u: Input) -> Float[Array, " d"]:
        return self.encoder(self.normalization.standardize_input(u))

    def respond(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        v = jax.vmap(self.read)(codes)
        match queries:
            case Shared(y):
                return self._answer(v, y)
            case Indexed(y, index) if self.is_pointwise and len(y) <= index.size:
                # All M locations at once and then a choice: φ is not repeated, and one product serves all functions.
                return jnp.take_along_axis(self._answer(v, y), index[:, :, None], axis=1)
            case _:
                y = queries.locations(len(codes))
                if self.is_pointwise:
                    phi = self.weights(y.reshape(-1, y.shape[-1]))
                    phi = phi.reshape(phi.shape[0], *y.shape[:2], phi.shape[-1])
                else:
                    phi = jax.vmap(self.weights, out_axes=1)(y)
                return jnp.einsum("sNpn,Nsn->Nps", phi, v)

    def _answer(self, v: Float[Array, "N d_s n"], y: Float[Array, "P d_y"]) -> Float[Array, "N P d_s"]:
        phi = self.basis(y)
        return self._in_blocks(lambda y: expectation(phi(y), v), y)

    def _in_blocks(self, function: Callable[[Array], Array], y: Float[Array, "P d_y"]) -> Float[Array, "a P b"]:
        """A function of the queries, a block of them at a time where there are many."""
        whole = len(y) - len(y) % BLOCK
        if len(y) <= BLOCK or not self.is_pointwise:
            return function(y)
        values = jax.lax.map(function, y[:whole].reshape(-1, BLOCK, y.shape[-1]))
        values = jnp.moveaxis(values, 0, 1).reshape(values.shape[1], whole, values.shape[-1])
        return values if whole == len(y) else jnp.concatenate([values, function(y[whole:])], axis=1)

    def at(self, y: Float[Array, "P d_y"]) -> "AtQueries":
        return AtQueries(self, self.weights(y))


class AtQueries(eqx.Module):
    """u ↦ F(u)(y) for fixed queries: φ is a constant, and an answer one encoder pass and one matrix product."""

    operator: SeparableOperator
    phi: Float[Array, "d_s P n"]

    @property
    def normalization(self) -> Normalization:
        """That of the operator."""
        return self.operator.normalization

    def __call__(self, u: Input) -> Float[Array, "P d_s"]:
        return self.normalization.restore_output(expectation(self.phi, self.operator.features(u)))
