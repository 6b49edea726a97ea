"""Axis-aligned boxes."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.domains.domain import Domain


class Box(Domain):
    """[a₁, b₁] × … × [a_d, b_d] with Lebesgue measure.

    **Arguments:**

    - `low`, `high`: the corners a and b, one number per dimension.
    """

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        self.low = tuple(float(a) for a in low)
        self.high = tuple(float(b) for b in high)
        if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(
                f"expected corners with low < high in every dimension, got low={self.low}, high={self.high}; "
                "a coordinate that never varies is not a dimension: leave it out"
            )

    @classmethod
    def unit(cls, dimension: int) -> "Box":
        """[0, 1]ᵈ."""
        return cls((0.0,) * dimension, (1.0,) * dimension)

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def volume(self) -> float:
        return math.prod(b - a for a, b in zip(self.low, self.high, strict=True))

    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        a, b = jnp.asarray(self.low), jnp.asarray(self.high)
        return a + (b - a) * t

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        a, b = jnp.asarray(self.low), jnp.asarray(self.high)
        return (y - a) / (b - a)
