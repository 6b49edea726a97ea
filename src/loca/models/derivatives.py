"""Derivatives of operators, by automatic differentiation, with all transforms and the normalization inside.

Derivatives with respect to u are those with respect to its values at the sensors. They are computed in double precision
and rounded, except in functions that JAX is compiling or mapping.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from loca.data import Chain, PerLocation, Transform, as_input
from loca.typing import Input, MultiInput, Numbers, has_own_sensors, values_of, with_values

Direction = Float[Array, "m d_u"] | MultiInput
"""A change of the values of u: an array, or a `MultiInput` of arrays. `Measurements` change their values only."""

OutputFunction = Callable[[Numbers], Float[Array, "P d_s"]]
"""s = F(u), as a function of the queries (P, d_y)."""

Functional = Callable[[OutputFunction], Float[Array, ""]]
"""A number from an output function, such as `lambda s: s(y).mean()`."""


F = Callable[..., Array]
"""An operator."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
WIDER = {"float32": "float64", "complex64": "complex128"}


def precise(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The compiled function, with products in full precision, which have a forward derivative as well.

    Arrays that JAX is not tracing are computed with in double precision: kernels with little noise amplify rounding
    errors a thousandfold. The result has the precision of the first array after the operator.
    """
    compiled = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        leaves = [leaf for leaf in jax.tree.leaves(arguments) if eqx.is_array(leaf)]
        with jax.default_matmul_precision("highest"):
            if any(isinstance(leaf, Tracer) for leaf in leaves):
                return compiled(*arguments, **named)
            dtype = next(leaf.dtype for leaf in jax.tree.leaves(arguments[1:]) if eqx.is_array(leaf))
            with jax.enable_x64(True):
                found = compiled(*jax.tree.map(widened, arguments), **named)
                return jax.tree.map(lambda array: array.astype(dtype), found)

    return call


def widened(leaf: Any) -> Any:
    """A real or complex array in double precision; anything else as it is."""
    return leaf.astype(WIDER[leaf.dtype.name]) if eqx.is_array(leaf) and leaf.dtype.name in WIDER else leaf


# The operator is an argument of these functions, so another operator of the same sizes needs no compilation.


@precise
def directional(operator: F, u: Input, du: tuple[Array, ...], y: Float[Array, "P d_y"]) -> Float[Array, "P d_s"]:
    """DF(u)du."""
    return jax.jvp(lambda values: operator(with_values(u, values), y), (values_of(u),), (du,))[1]


@precise
def adjoint(operator: F, u: Input, ds: Float[Array, "P d_s"], y: Float[Array, "P d_y"]) -> Direction:
    """DF(u)*ds."""
    s, transpose = jax.vjp(lambda values: operator(with_values(u, values), y), values_of(u))
    return direction_from(u, transpose(ds.astype(s.dtype))[0])


@precise
def gradient_of(operator: F, u: Input, functional: Functional) -> Direction:
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
def location_derivative(operator: F, u: Input, y: Float[Array, "P d_y"]) -> Float[Array, "P d_s d_y"]:
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


def has_jumps(transform: Transform) -> bool:
    """Whether a transform of outputs takes its parameters from the nearest location."""
    parts = transform.parts if isinstance(transform, Chain) else (transform,)
    return any(isinstance(part, PerLocation) and part.shape is None for part in parts)
