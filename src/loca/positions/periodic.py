"""Harmonic features on a torus."""

import math

import equinox as eqx
from jaxtyping import Array, Float

from loca.domains import Torus
from loca.positions.position import Position
from loca.positions.waves import check_even, octaves


class Periodic(Position):
    """e(y) = (cos 2ʲ·2πtⁱ, sin 2ʲ·2πtⁱ), j = 0 … H/2 − 1: the same on glued faces, with every derivative.

    **Arguments:**

    - `domain`: the torus Y.
    - `num_frequencies`: H, cosines and sines together, per dimension. Good values: 6 to 10.
    """

    domain: Torus
    num_frequencies: int = eqx.field(static=True)

    def __init__(self, domain: Torus, num_frequencies: int = 10):
        if not check_even(num_frequencies):
            raise ValueError("num_frequencies must be at least 2 on a torus: it has no other features")
        self.domain = domain
        self.num_frequencies = num_frequencies

    @property
    def size(self) -> int:
        return self.domain.dimension * self.num_frequencies

    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        self.domain.check(y)
        return octaves(self.domain.to_unit(y), 2.0 * math.pi, self.num_frequencies // 2, start=0)
