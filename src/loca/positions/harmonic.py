"""Harmonic features on a box."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.domains import Box
from loca.positions.position import Position
from loca.positions.waves import check_even, octaves


class Harmonic(Position):
    """e(y) = (t, cos 2ʲπtⁱ, sin 2ʲπtⁱ), j = 0 … H/2 − 1, with t = y carried to the unit cube.

    The paper prints j = 1 … H/2 and no coordinates; then every feature has period 1 and the two ends of the domain
    look the same. `start=1, include_raw=False` gives that version.

    **Arguments:**

    - `domain`: the box Y.
    - `num_frequencies`: H, cosines and sines together, per dimension. Good values: 6 to 10.
    - `start`: the first j.
    - `include_raw`: whether the coordinates themselves come first.
    """

    domain: Box
    num_frequencies: int = eqx.field(static=True)
    start: int = eqx.field(static=True)
    include_raw: bool = eqx.field(static=True)

    def __init__(self, domain: Box, num_frequencies: int = 10, *, start: int = 0, include_raw: bool = True):
        check_even(num_frequencies)
        self.domain = domain
        self.num_frequencies = num_frequencies
        self.start = start
        self.include_raw = include_raw

    @property
    def size(self) -> int:
        return self.domain.dimension * (self.num_frequencies + self.include_raw)

    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        self.domain.check(y)
        t = self.domain.to_unit(y)
        waves = octaves(t, math.pi, self.num_frequencies // 2, self.start)
        return jnp.concatenate([t, waves], axis=-1) if self.include_raw else waves
