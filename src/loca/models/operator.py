"""The interface of every operator, and operators that are sums of products of a function of y and a function of u."""

import abc
import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.core import Tracer
from jax.export import is_symbolic_dim
from jaxtyping import Array, Float

from loca.attention import Channels, expectation
from loca.data import (
    Chain,
    Indexed,
    Interpolation,
    Normalization,
    OutputNormalization,
    PerLocation,
    Queries,
    Shared,
    Variable,
    as_input,
    as_numbers,
    as_queries,
)
from loca.domains import Domain, warn_outside
from loca.encoders import Encoder
from loca.losses import mean_squared
from loca.models.signature import Signature
from loca.typing import (
    Input,
    Measurements,
    MultiInput,
    Numbers,
    PyTree,
    SensorLocations,
    has_own_sensors,
    values_of,
    with_values,
)

Direction = Float[Array, "m d_u"] | MultiInput
"""A change of the values of u: an array, or a `MultiInput` of arrays. `Measurements` change their values only."""

InputValues = Numbers | Measurements | MultiInput
"""One input function or many, as users pass them."""

OutputOf = Callable[..., Array]
"""An operator."""

OutputFunction = Callable[[Numbers], Float[Array, "P d_s"]]
"""s = F(u), as a function of the queries (P, d_y)."""

Functional = Callable[[OutputFunction], Float[Array, ""]]
"""A number from an output function, such as `lambda s: s(y).mean()`."""


Call = TypeVar("Call", bound=Callable[..., Any])
WIDER = {"float32": "float64", "complex64": "complex128"}

BLOCK = 8192
"""Queries at a time where φ would not fit in memory: 8192 × 1024 nodes in single precision are 32 MB."""

HALVES_BLOCK = 2048
"""Queries at a time where φ is kept: with 1024 nodes κ then takes 8 MB, and larger blocks are no faster."""


class Halves(NamedTuple):
    """F(u)(y) = together(of_functions(u), of_queries(y)): predictions at many queries compute neither half twice.

    The three functions are pure; the caller compiles them.
    """

    of_functions: Callable[[Input], Array]  # what depends on u alone, from B functions to one row each
    of_queries: Callable[[Array], PyTree]  # what depends on y alone, from locations (P, d_y)
    together: Callable[[Array, PyTree], Array]  # the predictions (B, P, d_s) in the units of the data
    block: int | None = None  # the number of queries that `of_queries` takes at once; None for any number


Loss = Callable[..., Float[Array, ""]]
"""loss(prediction, truth): from standardized outputs of a batch to the number that training minimizes.

If locations have weights, it is called as loss(prediction, truth, weights).
"""


class Recipe(NamedTuple):
    """How an operator is trained unless `fit` is told otherwise."""

    batch_size: int = 100
    loss: Loss = mean_squared


class Function(eqx.Module):
    """A module that `jax.jit` and other transformations accept as a function.

    JAX keeps compiled functions in a table by their hash, but Equinox hashes a module by its arrays, which have none.
    """

    def __hash__(self) -> int:
        arrays = [leaf for leaf in jax.tree.leaves(self) if eqx.is_array(leaf)]
        return hash((type(self), *((array.shape, array.dtype) for array in arrays)))


class Operator(Function):
    """F : u ↦ s, from input functions to output functions that can be evaluated anywhere.

    An evaluation has two steps, so that training performs the first only once: `encode` contains everything that
    training does not change, `respond` everything that it does. Both work in standardized units; a call takes and
    returns values in the units of the data.

    A subclass needs a field `normalization` and the methods `encode` and `respond`. Created with a `signature`, it also
    knows its domain, sensors and channels.
    """

    normalization: eqx.AbstractVar[Normalization]
    signature: Signature | None = eqx.field(default=None, kw_only=True)
    """What the operator was made for; None if unknown."""

    @abc.abstractmethod
    def encode(self, u: Input) -> Float[Array, "..."]:
        """One input function, before any learned parameter is applied to it."""

    @abc.abstractmethod
    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        """Standardized outputs of encoded functions at their queries."""

    def objective(
        self, loss: Loss, codes: Float[Array, "N ..."], queries: Queries, s: Float[Array, "N P d_s"], *weights: Array
    ) -> Float[Array, ""]:
        """What training minimizes: unless overridden, the loss of the responses to a batch in standardized units."""
        return loss(self.respond(codes, queries), s, *weights)

    def wrap_optimizer(self, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
        """The optimizer that trains this operator; unless overridden, the one that `fit` is given."""
        return optimizer

    @property
    def recipe(self) -> Recipe:
        """How `fit` trains this operator unless it is told otherwise."""
        return Recipe()

    @property
    def domain(self) -> Domain | None:
        """Y; None if unknown."""
        return None if self.signature is None else self.signature.domain

    @property
    def sensors(self) -> SensorLocations:
        """Locations of the sensors; None if unknown, or if every function has its own; a tuple for several fields."""
        if self.signature is None:
            return None
        x = tuple(field.x for field in self.signature.fields)
        return x if self.signature.is_several else x[0]

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

    def at(self, y: Float[Array, "P d_y"]) -> "AtQueries":
        """This operator at fixed queries: a function u ↦ F(u)(y) that has done all work on y already."""
        halves = self.halves(y)
        return AtQueries(halves.of_functions, halves.together, halves.of_queries(y))

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        """What depends on u alone, and what depends on y alone: all queries, or any of them if it is pointwise.

        By default these are the encoded functions and the queries themselves, and `respond` does everything else.
        """
        return Halves(self._encode_many, unchanged, self._respond_at)

    def __call__(self, u: InputValues, y: Numbers) -> Float[Array, "P d_s"]:
        """F(u)(y) for one function, in the units of the data.

        **Arguments:**

        - `u`: values (m, d_u) at the sensors, or (m,) for one channel; `Measurements`, or `MultiInput`.
        - `y`: locations (P, d_y), or (P,) for one coordinate.
        """
        u, queries = self._checked(u, y)
        return self.normalization.at(queries).restore(self.respond(self.encode(u)[None], queries)[0])

    def predict(self, u: InputValues, queries: Queries | Numbers) -> Float[Array, "N P d_s"]:
        """F(uᵢ)(yᵢ) for many functions, in the units of the data.

        **Arguments:**

        - `u`: values (N, m, d_u) at the sensors, or (N, m) for one channel; `Measurements`, or `MultiInput`.
        - `queries`: any queries, or an array: (P, d_y) for all functions, (N, P, d_y), or (P,) for one coordinate.
        """
        u, queries = self._checked(u, queries, many=True)
        return self.normalization.at(queries).restore(self.respond(self._encode_many(u), queries))

    def jvp(self, u: InputValues, du: Numbers | MultiInput, y: Numbers) -> Float[Array, "P d_s"]:
        """DF(u)du = d/dt F(u + t du)(y) at t = 0, the derivative in the direction du.

        For many functions map with `jax.vmap`. It is computed in double precision and rounded, except in functions that
        JAX is compiling or mapping; so are the other derivatives.

        **Arguments:**

        - `u`, `y`: as in a call of the operator.
        - `du`: one value for each value of u: an array, or `MultiInput` with an array for each field. With
          `Measurements`, du has the values at their locations, which do not change.
        """
        u, queries = self._checked(u, y)
        return directional(self, u, as_direction(du, u), queries.points)

    def vjp(self, u: InputValues, ds: Numbers, y: Numbers) -> Direction:
        """DF(u)*ds, the adjoint of `jvp`: ⟨DF(u)du, ds⟩ = ⟨du, DF(u)*ds⟩ for all du.

        Inner products are plain sums, ⟨a, b⟩ = Σ a·b, over sensors or queries and channels. If both have quadrature
        weights w, then ds·w_y instead of ds, and a result divided by w_x, make the inner products those of L².

        **Arguments:**

        - `u`, `y`: as in a call of the operator.
        - `ds`: values (P, d_s) at the queries, or (P,) for one channel.
        """
        u, queries = self._checked(u, y)
        ds, channels = as_numbers(ds, "ds", "(P, d_s)", "(P,)"), len(self.normalization.s_shift)
        if ds.shape != (queries.count, channels):
            raise ValueError(
                f"ds has shape {ds.shape}, but there are {queries.count} queries and {channels} output channels; "
                "pass one value for each"
            )
        return adjoint(self, u, ds, queries.points)

    def gradient(self, functional: Functional) -> Callable[[InputValues], Direction]:
        """u ↦ ∇J(F(u)), the gradient with respect to the values of u of a functional J of the output function.

        `operator.gradient(lambda s: s(y).mean())(u)` is the gradient of the mean over the queries y.

        **Arguments:**

        - `functional`: J, from the function s to one number, with functions of `jax.numpy`. s(y) are values (P, d_s).
        """

        def gradient(u: InputValues) -> Direction:
            u = as_input(u, many=False)
            self.normalization.check_input(u, self.inputs)
            return gradient_of(self, u, functional)

        return gradient

    def dy(self, u: InputValues, y: Numbers) -> Float[Array, "P d_s d_y"]:
        """∂F(u)(y)/∂y: the derivative of each channel with respect to each coordinate of the location.

        Operators that interpolate on a grid, such as `FNO`, have the derivative of the interpolation.

        **Arguments:**

        - `u`, `y`: as in a call of the operator.
        """
        if not self.is_pointwise:
            raise ValueError(
                "the prediction of this operator at a query depends on the other queries, so it has no derivative with "
                "respect to y; use another rule than OwnQueries"
            )
        transforms = self.normalization.s_transforms
        parts = (part for each in transforms for part in (each.parts if isinstance(each, Chain) else (each,)))
        if any(isinstance(part, PerLocation) and part.shape is None for part in parts):
            raise ValueError(
                "the outputs are standardized by the mean and scale of the nearest location of the training data, so "
                "predictions have jumps between locations; use another transform than `per-location` for dF/dy"
            )
        u, queries = self._checked(u, y)
        found = location_derivative(self, u, queries.points)
        if not isinstance(found, Tracer) and not jnp.any(found):
            warnings.warn(
                f"∂F(u)/∂y is zero at all {queries.count} queries; {type(self).__name__} is constant near them, such "
                "as an operator that predicts the value at the nearest location of the training data",
                stacklevel=2,
            )
        return found

    def _checked(self, u: InputValues, y: Queries | Numbers, *, many: bool = False) -> tuple[Input, Queries]:
        u = as_input(u, many=many)
        queries = as_queries(y) if many else Shared(as_numbers(cast(Numbers, y), "y", "(P, d_y)", "(P,)"))
        self._warn_outside(queries.points)
        self.normalization.check_input(u, self.inputs)
        return u, queries

    def _warn_outside(self, y: Float[Array, "P d_y"]) -> None:
        """Warn if queries lie outside the domain, where both are known: not in a compiled function."""
        known = self.signature
        if known is not None and not any(isinstance(each, Tracer) for each in jax.tree.leaves((y, known.domain))):
            warn_outside(known.domain, y, known.query_coordinate_names)

    def _encode_many(self, u: Input) -> Float[Array, "N ..."]:
        return jax.vmap(self.encode)(u)

    def _respond_at(self, codes: Float[Array, "N ..."], y: Float[Array, "P d_y"]) -> Float[Array, "N P d_s"]:
        return self.normalization.at(Shared(y)).restore(self.respond(codes, Shared(y)))


class Wrapper(Operator):
    """An operator made of another one, with the same encoded inputs."""

    operator: eqx.AbstractVar[Operator]

    @property
    def recipe(self) -> Recipe:
        return self.operator.recipe

    @property
    def is_pointwise(self) -> bool:
        return self.operator.is_pointwise

    def encode(self, u: Input) -> Float[Array, "..."]:
        return self.operator.encode(u)


class AtQueries(Function):
    """u ↦ F(u)(y) for fixed queries: what depends on y alone is a constant."""

    of_functions: Callable[[Input], Array]
    together: Callable[[Array, PyTree], Array]
    of_queries: PyTree

    def __call__(self, u: Input) -> Float[Array, "P d_s"]:
        return self.together(self.of_functions(jax.tree.map(lambda array: array[None], u)), self.of_queries)[0]


class FieldOperator(Operator):
    """An operator that computes the output at locations of its own, from which it interpolates."""

    @abc.abstractmethod
    def fields(self, codes: Float[Array, "N ..."]) -> Float[Array, "N *grid d_s"]:
        """Standardized outputs at all locations of the operator."""

    @abc.abstractmethod
    def interpolation(self, y: Float[Array, "P d_y"]) -> Interpolation:
        """From the locations of the operator to the queries."""

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return interpolate(self.interpolation(queries.points), queries, self.fields(codes))

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        return Halves(self._fields_of_many, self._at, self._interpolate)

    def _fields_of_many(self, u: Input) -> Float[Array, "N *grid d_s"]:
        return self.fields(self._encode_many(u))

    def _at(self, y: Float[Array, "P d_y"]) -> tuple[Interpolation, OutputNormalization]:
        return self.interpolation(y), self.normalization.at(Shared(y))

    def _interpolate(
        self, fields: Float[Array, "N *grid d_s"], at: tuple[Interpolation, OutputNormalization]
    ) -> Float[Array, "N P d_s"]:
        interpolation, outputs = at
        return outputs.restore(jax.vmap(interpolation)(fields))


def interpolate(near: Interpolation, queries: Queries, fields: Float[Array, "N *grid d_s"]) -> Float[Array, "N P d_s"]:
    """The fields of N functions at their queries, by an interpolation to all stored locations."""
    index, weight = (jax.vmap(queries.gather)(part) for part in (near.index, near.weight))
    own = None if index.ndim == 2 else 1  # each function has its own queries
    return jax.vmap(lambda index, weight, field: Interpolation(index, weight)(field), (own, own, 0))(
        index, weight, fields
    )


def unchanged(y: Float[Array, "P d_y"]) -> Float[Array, "P d_y"]:
    """The queries themselves."""
    return y


class SeparableOperator(Operator):
    """F(u)(y) = Σᵢ φᵢ(y) ⊙ vᵢ(u): φ depends on y alone, v on u alone.

    So φ is computed once per distinct location and v once per function, whatever the form of the queries.
    """

    encoder: eqx.AbstractVar[Encoder]

    @abc.abstractmethod
    def basis(self, y: Float[Array, "P d_y"], nodes: PyTree) -> Channels:
        """φ at some of the queries; `nodes` is what the method of this name has returned for all of them."""

    @abc.abstractmethod
    def read(self, codes: Float[Array, "*N d"]) -> Float[Array, "*N d_s n"]:
        """v of encoded functions."""

    def nodes(self, y: Float[Array, "P d_y"]) -> PyTree:
        """All work for φ that does not depend on single queries, such as that at the nodes of an integral."""
        return None

    def weights(self, y: Float[Array, "P d_y"]) -> Channels:
        """φ(y)."""
        nodes = self.nodes(y)
        return self._in_blocks(lambda y: self.basis(y, nodes), y, axis=0)

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
                if not self.is_pointwise:
                    return jax.vmap(expectation)(jax.vmap(self.weights)(y), v)
                phi = self.weights(y.reshape(-1, y.shape[-1]))
                return jax.vmap(expectation)(tuple(phi_s.reshape(*y.shape[:2], -1) for phi_s in phi), v)

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        """v(u) and φ(y); all work at the nodes is done here, once."""
        of_queries = eqx.Partial(self._of_queries, self.nodes(y))
        return Halves(self._features_of_many, of_queries, self._expectation, HALVES_BLOCK)

    def _respond_shared(self, v: Float[Array, "N d_s n"], y: Float[Array, "P d_y"]) -> Float[Array, "N P d_s"]:
        nodes = self.nodes(y)
        return self._in_blocks(lambda y: expectation(self.basis(y, nodes), v), y, axis=1)

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

    def _of_queries(self, nodes: PyTree, y: Float[Array, "P d_y"]) -> tuple[Channels, OutputNormalization]:
        phi = self._in_blocks(lambda y: self.basis(y, nodes), y, axis=0)
        return phi, self.normalization.at(Shared(y))

    def _expectation(
        self, v: Float[Array, "N d_s n"], of_queries: tuple[Channels, OutputNormalization]
    ) -> Float[Array, "N P d_s"]:
        """E_φ[v], in the units of the data."""
        phi, outputs = of_queries
        return outputs.restore(expectation(phi, v))


def count_sensors(operator: Operator) -> int:
    """The number of sensors of an operator that does not know their locations: the only one that its encoder accepts.

    It has a single field. Raise `ValueError` if no number, or every one, is accepted.
    """

    def accepts(sensors: int) -> bool:
        try:
            jax.eval_shape(operator.encode, jax.ShapeDtypeStruct((sensors, len(operator.inputs)), jnp.float32))
        except (ValueError, TypeError):
            return False
        return True

    found = next(filter(accepts, range(1, 2**14)), None)
    if found is None or accepts(found + 1):
        raise ValueError("the model does not know its sensors; train it on data that has them, `Samples(..., x=...)`")
    return found


# ---- derivatives -----------------------------------------------------------------------------------------------------

# By automatic differentiation, with all transforms and the normalization inside. Derivatives with respect to u are
# those with respect to its values at the sensors. The operator is an argument of the compiled functions, so another
# operator of the same sizes needs no compilation.


def precise(function: Call) -> Call:
    """The compiled function, with products in full precision, which have a forward derivative as well.

    Arrays that JAX is not tracing are computed with in double precision: kernels with little noise amplify rounding
    errors a thousandfold. The result has the precision of the first array after the operator.
    """
    compiled = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        leaves = [leaf for leaf in jax.tree.leaves(arguments) if eqx.is_array(leaf)]
        with jax.default_matmul_precision("highest"):
            if any(isinstance(leaf, Tracer) for leaf in leaves):
                return compiled(*arguments)
            dtype = next(leaf.dtype for leaf in jax.tree.leaves(arguments[1:]) if eqx.is_array(leaf))
            with jax.enable_x64(True):
                found = compiled(*jax.tree.map(widened, arguments))
                return jax.tree.map(lambda array: array.astype(dtype), found)

    return cast(Call, call)


def widened(leaf: Any) -> Any:
    """A real or complex array in double precision; anything else as it is."""
    return leaf.astype(WIDER[leaf.dtype.name]) if eqx.is_array(leaf) and leaf.dtype.name in WIDER else leaf


@precise
def directional(operator: OutputOf, u: Input, du: tuple[Array, ...], y: Float[Array, "P d_y"]) -> Float[Array, "P d_s"]:
    """DF(u)du."""
    return jax.jvp(lambda values: operator(with_values(u, values), y), (values_of(u),), (du,))[1]


@precise
def adjoint(operator: OutputOf, u: Input, ds: Float[Array, "P d_s"], y: Float[Array, "P d_y"]) -> Direction:
    """DF(u)*ds."""
    s, transpose = jax.vjp(lambda values: operator(with_values(u, values), y), values_of(u))
    return direction_from(u, transpose(ds.astype(s.dtype))[0])


@precise
def gradient_of(operator: OutputOf, u: Input, functional: Functional) -> Direction:
    """∇J(F(u))."""

    def number(values: tuple[Array, ...]) -> Float[Array, ""]:
        found = functional(lambda y: operator(with_values(u, values), y))
        if not isinstance(found, jax.Array) or found.shape != ():
            given = f"shape {found.shape}" if isinstance(found, jax.Array) else type(found).__name__
            raise ValueError(
                f"expected a functional with one number as its result, got {given}; "
                "pass a function of s, such as lambda s: s(y).mean()"
            )
        return found

    return direction_from(u, jax.grad(number)(values_of(u)))


@precise
def location_derivative(operator: OutputOf, u: Input, y: Float[Array, "P d_y"]) -> Float[Array, "P d_s d_y"]:
    """∂F(u)(y)/∂y of a pointwise operator: all queries move at once, along one coordinate after the other."""

    def along(axis: Float[Array, " d_y"]) -> Float[Array, "P d_s"]:
        return jax.jvp(lambda y: operator(u, y), (y,), (jnp.broadcast_to(axis, y.shape),))[1]

    return jax.vmap(along, out_axes=-1)(jnp.eye(y.shape[-1], dtype=y.dtype))


def as_direction(du: Numbers | MultiInput, u: Input) -> tuple[Array, ...]:
    """The values of a direction in the order of `values_of`; raises unless there is one for each value of u."""
    if has_own_sensors(du):
        raise ValueError("expected du as an array of changes of the measured values, got Measurements; pass du.u")
    values, expected = values_of(as_input(du, many=False)), values_of(u)
    if [each.shape for each in values] != [each.shape for each in expected]:
        shapes = [", ".join(str(each.shape) for each in part) for part in (values, expected)]
        raise ValueError(f"du has shape {shapes[0]}, but u has {shapes[1]}; pass one value for each value of u")
    return tuple(each.astype(like.dtype) for each, like in zip(values, expected, strict=True))


def direction_from(u: Input, values: tuple[Array, ...]) -> Direction:
    """Values in the order of `values_of`, in the form of u, without locations of measurements."""
    if not isinstance(u, MultiInput):
        return values[0]
    return MultiInput(values[: len(u.fields)], None if u.scalars is None else values[-1])
