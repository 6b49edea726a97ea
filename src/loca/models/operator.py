"""The interface of every operator, and what an operator knows of the data it was made for."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Samples, Shared, Variable, shared_array
from loca.domains import Domain
from loca.parameters import Fixed
from loca.typing import Input, PyTree, SupportsDLPack


class Signature(Fixed):
    """What an operator was made for: its domain, its sensors, and the names and units of its channels.

    Predictions do not depend on it, and optimizers do not change it.

    **Arguments:**

    - `domain`: Y.
    - `x`: locations of the sensors; None if every function has its own.
    - `input_names`, `input_units`: of the channels of u.
    - `output_names`, `output_units`: of the channels of s.
    """

    domain: Domain
    x: Float[Array, "m d_x"] | None
    input_names: tuple[str, ...] = eqx.field(static=True)
    input_units: tuple[str, ...] = eqx.field(static=True)
    output_names: tuple[str, ...] = eqx.field(static=True)
    output_units: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, data: Samples) -> Signature:
        """The signature of an operator that is made for some data."""
        return cls(
            data.domain,
            data.x,
            tuple(variable.name for variable in data.inputs),
            tuple(variable.unit for variable in data.inputs),
            tuple(variable.name for variable in data.outputs),
            tuple(variable.unit for variable in data.outputs),
        )

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of u."""
        return tuple(map(Variable, self.input_names, self.input_units))

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of s."""
        return tuple(map(Variable, self.output_names, self.output_units))


class Halves(NamedTuple):
    """F(u)(y) = together(of_functions(u), of_queries(y)): predictions at many queries compute neither half twice.

    The three functions are pure; the caller compiles them.

    **Arguments:**

    - `of_functions`: what depends on u alone, from B functions to one row each.
    - `of_queries`: what depends on y alone, from locations (P, d_y).
    - `together`: the predictions (B, P, d_s) in the units of the data.
    - `block`: the number of queries that `of_queries` takes at once; None for any number.
    """

    of_functions: Callable[[Input], Array]
    of_queries: Callable[[Array], PyTree]
    together: Callable[[Array, PyTree], Array]
    block: int | None = None


class Operator(eqx.Module):
    """F : u ↦ s, from input functions to output functions that can be evaluated anywhere.

    An evaluation has two steps, so that training performs the first only once: `encode` contains everything that
    training does not change, `respond` everything that it does. Both work in standardized units; a call takes and
    returns values in the units of the data.

    A subclass needs a field `normalization` and the methods `encode` and `respond`. Created with a `signature`, it also
    knows its domain, sensors and channels.
    """

    normalization: eqx.AbstractVar[Normalization]
    signature: Signature | None = eqx.field(default=None, kw_only=True)
    """What the operator was made for; None if unknown, as for model files of version 0.1."""

    @abc.abstractmethod
    def encode(self, u: Input) -> Float[Array, ...]:
        """One input function, before any learned parameter is applied to it."""

    @abc.abstractmethod
    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        """Standardized outputs of encoded functions at their queries."""

    @property
    def domain(self) -> Domain | None:
        """Y; None if unknown."""
        return None if self.signature is None else self.signature.domain

    @property
    def sensors(self) -> Float[Array, "m d_x"] | None:
        """Locations of the sensors; None if unknown, or if every function has its own."""
        return None if self.signature is None else self.signature.x

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of u; u1, u2, … if unknown."""
        if self.signature is not None:
            return self.signature.inputs
        return tuple(Variable(f"u{i + 1}") for i in range(self.normalization.u_shift.shape[-1]))

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of s; s1, s2, … if unknown."""
        if self.signature is not None:
            return self.signature.outputs
        return tuple(Variable(f"s{i + 1}") for i in range(self.normalization.s_shift.shape[-1]))

    @property
    def is_pointwise(self) -> bool:
        """Whether the prediction at a query is independent of the other queries."""
        return True

    def at(self, y: Float[Array, "P d_y"]) -> PyTree:
        """This operator at fixed queries: a function u ↦ F(u)(y) that has done all work on y already."""
        return OperatorAtQueries(self, y)

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        """What depends on u alone, and what depends on y alone.

        By default these are the encoded functions and the queries themselves, and `respond` does everything else.

        **Arguments:**

        - `y`: all queries; any of them suffice if the operator is pointwise.
        """
        return Halves(self._encode_many, unchanged, self._respond_at)

    def __call__(self, u: Input | SupportsDLPack, y: Float[Array, "P d_y"] | SupportsDLPack) -> Float[Array, "P d_s"]:
        """F(u)(y) for one function, in the units of the data."""
        values, where = jax.tree.map(shared_array, (u, y))
        s = self.respond(self.encode(values)[None], Shared(where))[0]
        return self.normalization.restore_output(s)

    def predict(self, u: Input | SupportsDLPack, queries: Queries) -> Float[Array, "N P d_s"]:
        """F(uᵢ)(yᵢ) for many functions, in the units of the data."""
        values, where = jax.tree.map(shared_array, (u, queries))
        return self.normalization.restore_output(self.respond(self._encode_many(values), where))

    def _encode_many(self, u: Input) -> Float[Array, "N ..."]:
        return jax.vmap(self.encode)(u)

    def _respond_at(self, codes: Float[Array, "N ..."], y: Float[Array, "P d_y"]) -> Float[Array, "N P d_s"]:
        return self.normalization.restore_output(self.respond(codes, Shared(y)))


class OperatorAtQueries(eqx.Module):
    """u ↦ F(u)(y) for fixed queries, without any work done in advance."""

    operator: Operator
    y: Float[Array, "P d_y"]

    def __call__(self, u: Input) -> Float[Array, "P d_s"]:
        return self.operator(u, self.y)


def unchanged(y: Float[Array, "P d_y"]) -> Float[Array, "P d_y"]:
    """The queries themselves."""
    return y
