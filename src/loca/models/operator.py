"""The interface of every operator, and what an operator knows of the data it was made for."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import optax
from jax.core import Tracer
from jaxtyping import Array, Float

from loca.data import Free, Normalization, Queries, Samples, Shared, Variable, as_input, as_numbers, as_queries
from loca.domains import Domain, warn_outside
from loca.models.derivatives import Differentiable
from loca.parameters import Fixed
from loca.typing import Input, Measurements, MultiInput, Numbers, PyTree, SensorLocations


class FieldSignature(Fixed):
    """What an operator knows of a field: the number of its channels, and its sensors.

    **Arguments:**

    - `channels`: how many.
    - `x`: locations of the sensors; None if unknown, or if every function has its own.
    - `coordinate_names`, `coordinate_units`: of the columns of x; empty if unknown.
    - `has_own_sensors`: whether every function has its own sensors.
    """

    channels: int = eqx.field(static=True)
    x: Float[Array, "m d_x"] | None
    coordinate_names: tuple[str, ...] = eqx.field(static=True)
    coordinate_units: tuple[str, ...] = eqx.field(static=True)
    has_own_sensors: bool = eqx.field(static=True)

    @classmethod
    def of(cls, data: Samples) -> FieldSignature:
        """The signature of the only field of some data."""
        ((field, x),) = data.fields
        return cls(data.input_size, x, *names_and_units(data.sensor_coordinates), isinstance(field, Measurements))

    @property
    def coordinates(self) -> tuple[Variable, ...]:
        """Names and units of the columns of x; empty if unknown."""
        return tuple(map(Variable, self.coordinate_names, self.coordinate_units))


class Signature(Fixed):
    """What an operator was made for: its domain, its sensors, and the names and units of its channels.

    Predictions do not depend on it, and optimizers do not change it.

    **Arguments:**

    - `domain`: Y.
    - `x`: locations of the sensors; None if unknown, if every function has its own, or if there are several inputs.
    - `input_names`, `input_units`: of the channels of u.
    - `output_names`, `output_units`: of the channels of s.
    - `y`: the queries that the functions share; None if every function has its own.
    - `sensor_coordinate_names`, `sensor_coordinate_units`: of the columns of x; empty if unknown.
    - `query_coordinate_names`, `query_coordinate_units`: of the columns of y; empty if unknown.
    - `has_own_sensors`: whether every function has its own sensors.
    - `fields`: the fields of several inputs; the channels of u after theirs are scalars. Empty for a single field.
    """

    domain: Domain
    x: Float[Array, "m d_x"] | None
    input_names: tuple[str, ...] = eqx.field(static=True)
    input_units: tuple[str, ...] = eqx.field(static=True)
    output_names: tuple[str, ...] = eqx.field(static=True)
    output_units: tuple[str, ...] = eqx.field(static=True)
    y: Float[Array, "M d_y"] | None = None
    sensor_coordinate_names: tuple[str, ...] = eqx.field(static=True, default=())
    sensor_coordinate_units: tuple[str, ...] = eqx.field(static=True, default=())
    query_coordinate_names: tuple[str, ...] = eqx.field(static=True, default=())
    query_coordinate_units: tuple[str, ...] = eqx.field(static=True, default=())
    has_own_sensors: bool = eqx.field(static=True, default=False)
    fields: tuple[FieldSignature, ...] = ()

    @classmethod
    def of(cls, data: Samples) -> Signature:
        """The signature of an operator that is made for some data."""
        is_single = not isinstance(data.u, MultiInput)
        fields = tuple(map(FieldSignature.of, data.parts[: len(data.fields)]))
        return cls(
            data.domain,
            fields[0].x if is_single else None,
            *names_and_units(data.inputs),
            *names_and_units(data.outputs),
            None if isinstance(data.y, Free) else data.y.points,
            *names_and_units(data.sensor_coordinates if is_single else ()),
            *names_and_units(data.query_coordinates),
            is_single and fields[0].has_own_sensors,
            () if is_single else fields,
        )

    @property
    def parts(self) -> tuple[FieldSignature, ...]:
        """Every field of several inputs, or the only one."""
        coordinates = self.sensor_coordinate_names, self.sensor_coordinate_units
        return self.fields or (FieldSignature(len(self.input_names), self.x, *coordinates, self.has_own_sensors),)

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of u."""
        return tuple(map(Variable, self.input_names, self.input_units))

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of s."""
        return tuple(map(Variable, self.output_names, self.output_units))

    @property
    def query_coordinates(self) -> tuple[Variable, ...]:
        """Names and units of the columns of y: those of the data or, if it has none, of the domain."""
        if self.query_coordinate_names:
            return tuple(map(Variable, self.query_coordinate_names, self.query_coordinate_units))
        return tuple(map(Variable, self.domain.coordinate_names, self.domain.coordinate_units))


def names_and_units(variables: Sequence[Variable]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the units of variables, apart."""
    return tuple(variable.name for variable in variables), tuple(variable.unit for variable in variables)


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


class Function(eqx.Module):
    """A module that `jax.jit` and other transformations accept as a function.

    JAX keeps compiled functions in a table by their hash, but Equinox hashes a module by its arrays, which have none.
    """

    def __hash__(self) -> int:
        arrays = [leaf for leaf in jax.tree.leaves(self) if eqx.is_array(leaf)]
        return hash((type(self), *((array.shape, array.dtype) for array in arrays)))


class Operator(Function, Differentiable):
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

    def objective(
        self,
        loss: Callable[..., Float[Array, ""]],
        codes: Float[Array, "N ..."],
        queries: Queries,
        s: Float[Array, "N P d_s"],
        *weights: Array,
    ) -> Float[Array, ""]:
        """What training minimizes: unless overridden, the loss of the responses to a batch in standardized units."""
        return loss(self.respond(codes, queries), s, *weights)

    def wrap_optimizer(self, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
        """The optimizer that trains this operator; unless overridden, the one that `fit` is given."""
        return optimizer

    @property
    def domain(self) -> Domain | None:
        """Y; None if unknown."""
        return None if self.signature is None else self.signature.domain

    @property
    def sensors(self) -> SensorLocations:
        """Locations of the sensors; None if unknown, or if every function has its own; a tuple for several fields."""
        if self.signature is None or not self.signature.fields:
            return None if self.signature is None else self.signature.x
        return tuple(field.x for field in self.signature.fields)

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

    def __call__(self, u: Numbers | Measurements | MultiInput, y: Numbers) -> Float[Array, "P d_s"]:
        """F(u)(y) for one function, in the units of the data.

        **Arguments:**

        - `u`: values (m, d_u) at the sensors, or (m,) for one channel; `Measurements`, or `MultiInput`.
        - `y`: locations (P, d_y), or (P,) for one coordinate.
        """
        u, queries = self._checked(u, y)
        return self.normalization.at(queries).restore(self.respond(self.encode(u)[None], queries)[0])

    def predict(self, u: Numbers | Measurements | MultiInput, queries: Queries | Numbers) -> Float[Array, "N P d_s"]:
        """F(uᵢ)(yᵢ) for many functions, in the units of the data.

        **Arguments:**

        - `u`: values (N, m, d_u) at the sensors, or (N, m) for one channel; `Measurements`, or `MultiInput`.
        - `queries`: any queries, or an array: (P, d_y) for all functions, (N, P, d_y), or (P,) for one coordinate.
        """
        u, queries = self._checked(u, queries, many=True)
        return self.normalization.at(queries).restore(self.respond(self._encode_many(u), queries))

    def _checked(
        self, u: Numbers | Measurements | MultiInput, y: Queries | Numbers, *, many: bool = False
    ) -> tuple[Input, Queries]:
        u = as_input(u, many=many)
        queries = as_queries(y) if many else Shared(as_numbers(y, "y", "(P, d_y)", "(P,)"))
        self._warn_outside(queries.points)
        self.normalization.check_input(u, self.inputs)
        return u, queries

    def _warn_outside(self, y: Float[Array, "P d_y"]) -> None:
        """Warn if queries lie outside the domain, where both are known: not in a compiled function."""
        if self.signature is None:
            return
        if not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((y, self.signature.domain))):
            warn_outside(self.signature.domain, y, self.signature.query_coordinate_names)

    def _encode_many(self, u: Input) -> Float[Array, "N ..."]:
        return jax.vmap(self.encode)(u)

    def _respond_at(self, codes: Float[Array, "N ..."], y: Float[Array, "P d_y"]) -> Float[Array, "N P d_s"]:
        return self.normalization.at(Shared(y)).restore(self.respond(codes, Shared(y)))


class OperatorAtQueries(Function):
    """u ↦ F(u)(y) for fixed queries, without any work done in advance."""

    operator: Operator
    y: Float[Array, "P d_y"]

    def __call__(self, u: Input) -> Float[Array, "P d_s"]:
        return self.operator(u, self.y)


def unchanged(y: Float[Array, "P d_y"]) -> Float[Array, "P d_y"]:
    """The queries themselves."""
    return y
