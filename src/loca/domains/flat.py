"""Boxes and tori."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.domains.domain import Domain


class Box(Domain):
    """[a₁, b₁] × … × [a_d, b_d] with Lebesgue measure.

    **Arguments:**

    - `low`, `high`: the corners a and b, one number per dimension.
    """

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    is_flat = True

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        self.low = tuple(float(a) for a in low)
        self.high = tuple(float(b) for b in high)
        if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(
                f"expected corners with low < high in every dimension, got low={self.low}, high={self.high}; leave out "
                "coordinates that never vary"
            )

    @classmethod
    def unit(cls, dimension: int) -> "Box":
        """The unit cube."""
        return cls((0.0,) * dimension, (1.0,) * dimension)

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def volume(self) -> float:
        return math.prod(b - a for a, b in self.bounds)

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return tuple(zip(self.low, self.high, strict=True))

    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        a, b = jnp.asarray(self.low), jnp.asarray(self.high)
        return a + (b - a) * t

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        a, b = jnp.asarray(self.low), jnp.asarray(self.high)
        return (y - a) / (b - a)

    def contains(self, y: Float[np.ndarray, "P d_y"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        low, high = np.array(self.low), np.array(self.high)
        margin = tolerance * (high - low)
        return ~np.any((y < low - margin) | (y > high + margin), axis=-1)


class Torus(Box):
    """[a₁, b₁) × … × [a_d, b_d) with opposite faces identified: all of them, or those of some coordinates.

    **Arguments:**

    - `low`, `high`: the corners a and b; b − a is the period of a periodic coordinate.
    - `periodic`: which coordinates are periodic, such as (False, True) for a cylinder; by default all.
    """

    periodic: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, low: Sequence[float], high: Sequence[float], periodic: Sequence[bool] | None = None):
        super().__init__(low, high)
        self.periodic = (True,) * self.dimension if periodic is None else tuple(map(bool, periodic))
        if len(self.periodic) != self.dimension or not any(self.periodic):
            expected = f"True or False for each of {self.dimension} coordinates, at least one of them True"
            raise ValueError(f"expected periodic=({expected}), got {periodic}; otherwise use `Box`")

    @property
    def periods(self) -> tuple[float | None, ...]:
        return tuple(b - a if wraps else None for (a, b), wraps in zip(self.bounds, self.periodic, strict=True))

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        t = super().to_unit(y)
        return jnp.where(jnp.asarray(self.periodic), jnp.mod(t, 1.0), t)

    def contains(self, y: Float[np.ndarray, "P d_y"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        """Whether the other coordinates lie in their ranges: a periodic coordinate has no outside."""
        return super().contains(np.where(self.periodic, self.low, y), tolerance)
