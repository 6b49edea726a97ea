"""Periodic boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.domains.box import Box
from loca.domains.domain import Domain


class Torus(Domain):
    """[a₁, b₁) × … × [a_d, b_d) with opposite faces identified.

    **Arguments:**

    - `low`, `high`: the corners a and b; b − a is the period in each dimension.
    """

    cell: Box = eqx.field(static=True)
    is_flat = True

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        self.cell = Box(low, high)

    @classmethod
    def unit(cls, dimension: int) -> Torus:
        """[0, 1)ᵈ."""
        return cls((0.0,) * dimension, (1.0,) * dimension)

    @property
    def dimension(self) -> int:
        return self.cell.dimension

    @property
    def volume(self) -> float:
        return self.cell.volume

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return self.cell.bounds

    @property
    def periods(self) -> tuple[float | None, ...]:
        return tuple(b - a for a, b in self.bounds)

    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        return self.cell.from_unit(t)

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        return jnp.mod(self.cell.to_unit(y), 1.0)

    def contains(self, y: Float[np.ndarray, "P d_y"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        """True everywhere: a periodic coordinate has no outside."""
        return np.ones(len(y), bool)

    def to_json(self) -> dict[str, Any]:
        return self.cell.to_json() | {"type": "Torus"}

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> Torus:
        return cls(description["low"], description["high"])
