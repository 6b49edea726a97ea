"""Transforms of variables: invertible maps of their values, pointwise or different at each location."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from loca.data.grids import axes_of, grid_shape, multilinear, nearest
from loca.data.queries import Indexed, Queries, Shared
from loca.domains import Domain, embed
from loca.parameters import Fixed

SCALE_FLOOR = 1e-2
"""The least scale of a location, relative to the root mean square over all locations. Where a boundary condition fixes
the values, the scale would otherwise be zero."""


class Transform(Fixed):
    """v ↦ ṽ: an invertible map of the values of one variable."""

    name: ClassVar[str] = ""
    """The name by which users choose the transform, if it has one."""

    @abc.abstractmethod
    def apply(self, v: Float[Array, "*N"]) -> Float[Array, "*N"]:
        """ṽ from v."""

    @abc.abstractmethod
    def invert(self, v: Float[Any, "*N"]) -> Float[Any, "*N"]:
        """v from ṽ."""

    def at(self, queries: Queries) -> "Transform":
        """The transform of values at some queries: itself, unless it depends on the location."""
        return self

    def check(self, v: Float[np.ndarray, "N m"], name: str) -> None:
        """Raise unless all these values of the variable `name` can be transformed; by default all can."""


class Identity(Transform):
    """ṽ = v."""

    name: ClassVar[str] = "standardize"

    def apply(self, v: Float[Array, "*N"]) -> Float[Array, "*N"]:
        return v

    def invert(self, v: Float[Any, "*N"]) -> Float[Any, "*N"]:
        return v


class Log(Transform):
    """ṽ = log v, for positive variables that vary over decades, such as permeability."""

    name: ClassVar[str] = "log"

    def apply(self, v: Float[Array, "*N"]) -> Float[Array, "*N"]:
        return jnp.log(v)

    def invert(self, v: Float[Any, "*N"]) -> Float[Any, "*N"]:
        return jnp.exp(v)

    def check(self, v: Float[np.ndarray, "N m"], name: str) -> None:
        wrong = ~(v > 0.0)
        if wrong.any():
            function, place = np.unravel_index(int(np.argmax(wrong)), v.shape)
            raise ValueError(
                f"{name} is {v[function, place]:.6g} in function {function} (value {place}; {int(wrong.sum())} values "
                "in all are not positive), but log needs positive values; use asinh, or remove these functions"
            )


class Asinh(Transform):
    """ṽ = asinh(v/w): linear for |v| ≪ w, logarithmic for |v| ≫ w. For heavy tails of both signs."""

    name: ClassVar[str] = "asinh"
    width: Float[Array, ""]  # w; `fit` takes the mean of |v|

    @classmethod
    def fit(cls, v: Float[np.ndarray, " n"]) -> "Asinh":
        """Fit the width to some values."""
        return cls(jnp.asarray(float(np.mean(np.abs(v), dtype=np.float64)) or 1.0, jnp.float32))

    def apply(self, v: Float[Array, "*N"]) -> Float[Array, "*N"]:
        return jnp.arcsinh(v / self.width)

    def invert(self, v: Float[Any, "*N"]) -> Float[Any, "*N"]:
        return self.width * jnp.sinh(v)


class Affine(Transform):
    """ṽ = (v − a)/b at fixed locations, in their order: sensors, or queries for which it was evaluated."""

    name: ClassVar[str] = "per-location"
    shift: Float[Array, "*N m"]  # a, one for each location
    scale: Float[Array, "*N m"]  # b

    def apply(self, v: Float[Array, "*N m"]) -> Float[Array, "*N m"]:
        self._check_size(v)
        return (v - self.shift) / self.scale

    def invert(self, v: Float[Any, "*N m"]) -> Float[Any, "*N m"]:
        self._check_size(v)
        return self.shift + self.scale * v

    def _check_size(self, v: Float[Any, "*N m"]) -> None:
        if v.shape[-1] != self.shift.shape[-1]:  # otherwise the message would be one of broadcasting
            raise ValueError(
                f"values at {v.shape[-1]} locations were given, but their means and scales are known at "
                f"{self.shift.shape[-1]}; pass values at the locations of the training data"
            )


class PerLocation(Transform):
    """ṽ = (v − a(y))/b(y), with the mean a and the standard deviation b of all functions at y.

    Between the locations of the training data, a and b are interpolated: linearly if these form a grid, and from the
    nearest location otherwise. Evaluate it `at` queries first.
    """

    name: ClassVar[str] = "per-location"
    shift: Float[Array, " M"]  # a at the locations
    scale: Float[Array, " M"]  # b
    y: Float[Array, "M d_y"]  # the locations of the training data
    shape: tuple[int, ...] | None = eqx.field(static=True)  # of the grid that they form; None if they form none
    periods: tuple[float | None, ...] = eqx.field(static=True)  # of the domain
    is_geographic: bool = eqx.field(static=True)

    @classmethod
    def on(cls, moments: Affine, y: Float[Array, "M d_y"], domain: Domain) -> "PerLocation":
        """The transform with these means and scales at these locations of a domain."""
        return cls(moments.shift, moments.scale, y, grid_shape(y), tuple(domain.periods), domain.is_geographic)

    def at(self, queries: Queries) -> Affine:
        """Means and scales at some queries."""
        known = not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((self, queries)))
        if known and isinstance(queries, Shared | Indexed) and np.array_equal(queries.points, self.y):
            index = np.asarray(queries.index) if isinstance(queries, Indexed) else slice(None)
            return Affine(*(jnp.asarray(np.asarray(each)[index]) for each in (self.shift, self.scale)))
        return self._interpolated(queries)

    @eqx.filter_jit
    def _interpolated(self, queries: Queries) -> Affine:
        if self.shape is not None:
            near = multilinear(axes_of(self.y, self.shape), self.periods, queries.points)
        else:
            near = nearest(*(embed(y, self.periods, self.is_geographic) for y in (queries.points, self.y)))
        return Affine(*(queries.gather(each) for each in near(jnp.stack([self.shift, self.scale], axis=-1)).T))

    def apply(self, v: Float[Array, "*N"]) -> Float[Array, "*N"]:
        raise ValueError("this transform depends on the location; evaluate it first: `transform.at(queries)`")

    invert = apply


class Chain(Transform):
    """One transform after another: ṽ = T₂(T₁(v))."""

    parts: tuple[Transform, ...]

    @property
    def name(self) -> str:
        return "+".join(part.name for part in self.parts)

    def apply(self, v: Float[Array, "*N"]) -> Float[Array, "*N"]:
        for part in self.parts:
            v = part.apply(v)
        return v

    def invert(self, v: Float[Any, "*N"]) -> Float[Any, "*N"]:
        for part in reversed(self.parts):
            v = part.invert(v)
        return v

    def at(self, queries: Queries) -> "Chain":
        return Chain(tuple(part.at(queries) for part in self.parts))

    def check(self, v: Float[np.ndarray, "N m"], name: str) -> None:
        self.parts[0].check(v, name)


def location_moments(
    v: Float[np.ndarray, "N m"], places: Int[np.ndarray, "N m"], count: int
) -> tuple[Affine, Float[np.ndarray, " M"]]:
    """Mean and standard deviation of the values at each of `count` locations, and the number of values there."""
    where, v = places.reshape(-1), v.reshape(-1)
    number = np.bincount(where, minlength=count).astype(np.float64)
    known = np.maximum(number, 1.0)
    mean = np.bincount(where, v, count) / known
    deviation = np.sqrt(np.bincount(where, (v - mean[where]) ** 2, count) / known)
    typical = float(np.sqrt(np.mean(deviation**2)))
    constant = is_round_off(typical, float(np.abs(mean).max()))
    scale = np.ones(count) if constant else np.maximum(deviation, SCALE_FLOOR * typical)
    return Affine(jnp.asarray(mean, jnp.float32), jnp.asarray(scale, jnp.float32)), number


def is_round_off(deviation: Any, mean: Any) -> Any:
    """Whether a standard deviation is only the rounding error of a constant, in single precision.

    Dividing by it would turn rounding error into a signal. Takes numbers, or arrays of NumPy or JAX.
    """
    return deviation <= 10.0 * float(np.finfo(np.float32).eps) * abs(mean)
