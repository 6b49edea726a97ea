"""Types of the arrays in public interfaces, in the paper's letters.

Sizes in the annotations are the paper's: `N` functions, `m` sensors, `P` queries, `Q` nodes, `n` features,
`l` the lifted dimension, `d_x`, `d_y`, `d_u`, `d_s` the dimensions of locations and values.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jaxtyping
import numpy as np
from jaxtyping import Array as Array
from jaxtyping import Bool, Float, PRNGKeyArray
from jaxtyping import PyTree as PyTree

__all__ = ["Input", "Key", "Measurements", "MultiInput"]

Key = PRNGKeyArray
"""A typed random key, from `jax.random.key`."""

Keys = jaxtyping.Key[Array, " N"]
"""A key for each of N functions."""


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of any library that can share its memory, such as `torch.Tensor` and `cupy.ndarray`."""

    def __dlpack__(self, **options: Any) -> Any: ...


Numbers = Array | np.ndarray | SupportsDLPack | Sequence[Any] | float
"""Numbers as users have them: an array of any library and precision, or nested lists; converted where they are used."""

Rows = int | slice | Sequence[int] | Array | np.ndarray
"""Numbers of functions among many."""


Functions = TypeVar("Functions", bound=eqx.Module)


class _Functions(eqx.Module):
    """Input functions that are indexed as an array of them would be: `u[0]` is the first."""

    def __getitem__(self: Functions, rows: Rows) -> Functions:
        """One of many functions, or several of them."""
        count = len(jax.tree.leaves(self)[0])
        if isinstance(rows, int) and not -count <= rows < count:
            raise IndexError(f"there are {count} input functions, numbered from 0, got {rows}")
        return jax.tree.map(lambda array: array[np.asarray(rows) if isinstance(rows, Sequence) else rows], self)


class Measurements(_Functions):
    """u(x) measured at arbitrary locations: values, their locations, and a mask.

    Functions with different numbers of sensors are padded to one array: a row whose `mask` is false is ignored.
    """

    u: Float[Array, "*N m d_u"]
    x: Float[Array, "*N m d_x"]
    mask: Bool[Array, "*N m"]


Field = Float[Array, "*N _ _"] | Measurements
"""A field: values at the sensors a model was built for, or measurements with their own locations."""


class MultiInput(_Functions):
    """Several inputs of one operator: fields, each with sensors of its own, and numbers such as a viscosity.

    Its channels are those of the fields in their order, and then the scalars.

    **Arguments:**

    - `fields`: one or more, each of them values at its sensors or `Measurements`.
    - `scalars`: k numbers per function; None if there are none.
    """

    fields: tuple[Field, ...]
    scalars: Float[Array, "*N k"] | None = None

    def __check_init__(self):
        if not self.fields:
            raise ValueError("a MultiInput needs at least one field; pass numbers alone as u of shape (N, 1, k)")


Input = Float[Array, "*N m d_u"] | Measurements | MultiInput
"""An input function: values at the sensors a model was built for, measurements with their own locations, or several."""

SensorLocations = Float[Array, "_ _"] | None | tuple[Float[Array, "_ _"] | None, ...]
"""Locations of sensors; None if unknown or different for every function, a tuple of these for each field of several."""


def has_own_sensors(u: Any) -> bool:
    """Whether any field of an input has sensors that differ between functions."""
    return any(isinstance(field, Measurements) for field in (u.fields if isinstance(u, MultiInput) else (u,)))


def values_of(u: Input) -> tuple[Array, ...]:
    """The values of an input: one array with channels last, or one for each field of several, and their scalars."""
    if isinstance(u, MultiInput):
        fields = tuple(values for field in u.fields for values in values_of(field))
        return fields if u.scalars is None else (*fields, u.scalars)
    return (u.u if isinstance(u, Measurements) else u,)


def with_values(u: Input, values: Sequence[Array]) -> Input:
    """The same input with other values, in the order of `values_of`."""
    if isinstance(u, MultiInput):
        fields = tuple(with_values(field, [new]) for field, new in zip(u.fields, values, strict=False))
        return MultiInput(fields, None if u.scalars is None else values[-1])  # pyright: ignore[reportArgumentType]
    return dataclasses.replace(u, u=values[0]) if isinstance(u, Measurements) else values[0]
