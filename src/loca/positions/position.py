"""What every position encoding is."""

import abc

from jaxtyping import Array, Float

from loca.parameters import Fixed


class Position(Fixed):
    """e : Y → ℝᴱ, fixed features of a location that a network reads more easily than its coordinates."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """E, the number of features."""

    @abc.abstractmethod
    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        """e(y)."""
