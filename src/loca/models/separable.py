"""Operators that are sums of products of a function of y and a function of u."""

from __future__ import annotations

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim
from jaxtyping import Array, Float

from loca.attention import Channels, expectation
from loca.data import Indexed, Normalization, OutputNormalization, Queries, Shared
from loca.encoders import Encoder
from loca.models.operator import Function, Halves, Operator
from loca.typing import Input, PyTree

BLOCK = 8192
"""Queries at a time where φ would not fit in memory: 8192 × 1024 nodes in single precision are 32 MB."""

HALVES_BLOCK = 2048
"""Queries at a time where φ is kept: with 1024 nodes κ then takes 8 MB, and larger blocks are no faster."""

Basis = Callable[[Float[Array, "P d_y"]], Channels]
"""φ, as a function of the queries."""


class SeparableOperator(Operator):
    """F(u)(y) = Σᵢ φᵢ(y) ⊙ vᵢ(u): φ depends on y alone, v on u alone.

    So φ is computed once per distinct location and v once per function, whatever the form of the queries.
    """

    encoder: eqx.AbstractVar[Encoder]

    @abc.abstractmethod
    def basis(self, y: Float[Array, "P d_y"]) -> Basis:
        """φ as a function, after all work that does not depend on single queries.

        **Arguments:**

        - `y`: all queries; any of them suffice if the operator is pointwise.
        """

    @abc.abstractmethod
    def read(self, codes: Float[Array, "*N d"]) -> Float[Array, "*N d_s n"]:
        """v of encoded functions."""

    def weights(self, y: Float[Array, "P d_y"]) -> Channels:
        """φ(y)."""
        return self._in_blocks(self.basis(y), y, axis=0)

    def features(self, u: Input) -> Float[Array, "d_s n"]:
        """v(u) = f(𝒟(u))."""
        return self.read(self.encode(u))

    def encode(self, u: Input) -> Float[Array, " d"]:
        return self.encoder(self.normalization.standardize_input(u))

    def respond(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        v = self.read(codes)
        match queries:
            case Shared(y):
                return self._respond_shared(v, y)
            case Indexed(y, index) if self.is_pointwise and len(y) <= index.size:
                # all M locations first and then a choice: φ is not repeated, and one product serves all functions
                return jnp.take_along_axis(self._respond_shared(v, y), index[:, :, None], axis=1)
            case _:
                y = queries.locations(codes.shape[0])
                if self.is_pointwise:
                    phi = self.weights(y.reshape(-1, y.shape[-1]))
                    phi = tuple(phi_s.reshape(*y.shape[:2], -1) for phi_s in phi)
                else:
                    phi = jax.vmap(self.weights)(y)
                return jax.vmap(expectation)(phi, v)

    def at(self, y: Float[Array, "P d_y"]) -> AtQueries:
        return AtQueries(self, self.weights(y), self.normalization.at(Shared(y)))

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        """v(u) and φ(y); all work at the nodes is done here, once."""
        of_queries = WithNormalization(self.basis(y), self.normalization)
        return Halves(self._features_of_many, of_queries, self._expectation, HALVES_BLOCK)

    def _respond_shared(self, v: Float[Array, "N d_s n"], y: Float[Array, "P d_y"]) -> Float[Array, "N P d_s"]:
        phi = self.basis(y)
        return self._in_blocks(lambda y: expectation(phi(y), v), y, axis=1)

    def _in_blocks(self, function: Callable[[Array], PyTree], y: Float[Array, "P d_y"], axis: int) -> PyTree:
        """Evaluate a function of the queries block by block if there are many; `axis` is that of the queries.

        All at once if their number is free, as in `loca.export`.
        """
        count = y.shape[0]
        if is_symbolic_dim(count) or count <= BLOCK or not self.is_pointwise:
            return function(y)
        whole = count - count % BLOCK

        def join(blocks: Array, *rest: Array) -> Array:
            blocks = jnp.moveaxis(blocks, 0, axis)
            merged = blocks.reshape(*blocks.shape[:axis], whole, *blocks.shape[axis + 2 :])
            return jnp.concatenate([merged, *rest], axis)

        blocks = jax.lax.map(function, y[:whole].reshape(-1, BLOCK, y.shape[-1]))
        rest = [function(y[whole:])] if whole < count else []
        return jax.tree.map(join, blocks, *rest)

    def _features_of_many(self, u: Input) -> Float[Array, "N d_s n"]:
        return jax.vmap(self.features)(u)

    def _expectation(
        self, v: Float[Array, "N d_s n"], of_queries: tuple[Channels, OutputNormalization]
    ) -> Float[Array, "N P d_s"]:
        """E_φ[v], in the units of the data."""
        phi, outputs = of_queries
        return outputs.restore(expectation(phi, v))


class WithNormalization(eqx.Module):
    """y ↦ φ(y) and the normalization of outputs at y."""

    basis: Basis
    normalization: Normalization

    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Channels, OutputNormalization]:
        return self.basis(y), self.normalization.at(Shared(y))


class AtQueries(Function):
    """u ↦ F(u)(y) for fixed queries: φ is a constant, so a call is one encoder pass and one matrix product."""

    operator: SeparableOperator
    phi: Channels
    outputs: OutputNormalization  # at these queries

    def __call__(self, u: Input) -> Float[Array, "P d_s"]:
        return self.outputs.restore(expectation(self.phi, self.operator.features(u)))
