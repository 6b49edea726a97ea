"""Periodic boxes."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.domains.box import Box
from loca.domains.domain import Domain


class Torus(Domain):
    """[a₁, b₁) × … × [a_d, b_d) with opposite faces glued together.

    **Arguments:**

    - `low`, `high`: the corners a and b; b − a is the period in each dimension.
    """

    cell: Box = eqx.field(static=True)

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        self.cell = Box(low, high)

    @classmethod
    def unit(cls, dimension: int) -> "Torus":
        """[0, 1)ᵈ."""
        return cls((0.0,) * dimension, (1.0,) * dimension)

    @property
    def dimension(self) -> int:
        return self.cell.dimension

    @property
    def volume(self) -> float:
        return self.cell.volume

    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        return self.cell.from_unit(t)

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        return jnp.mod(self.cell.to_unit(y), 1.0)
