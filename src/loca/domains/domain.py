"""What every domain is."""

import abc

import jax
from jaxtyping import Array, Float

from loca.parameters import Fixed
from loca.typing import Key


class Domain(Fixed):
    """Y: a set of locations with a measure, and a map [0, 1]ᵈ → Y of constant Jacobian.

    Because that map spreads the unit cube evenly over Y, uniform points, low-discrepancy points and product rules
    are all made on the cube once and carried to any domain with the same weights times `volume`.
    """

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """d_y, the number of coordinates of a location."""

    @property
    @abc.abstractmethod
    def volume(self) -> float:
        """The measure of the whole of Y."""

    @abc.abstractmethod
    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        """The location of a point of the unit cube."""

    @abc.abstractmethod
    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        """The point of the unit cube that `from_unit` takes to y."""

    def sample(self, key: Key, count: int) -> Float[Array, "P d_y"]:
        """Locations drawn uniformly with respect to the measure of Y."""
        return self.from_unit(jax.random.uniform(key, (count, self.dimension)))

    def check(self, y: Float[Array, "..."], name: str = "y") -> None:
        """Raise unless the last axis of `y` holds the coordinates of a location."""
        given = y.shape[-1] if y.ndim else 0
        if given != self.dimension:
            raise ValueError(
                f"`{name}` has {given} columns but {self} is {self.dimension}-dimensional; "
                f"pass locations as an array of shape (P, {self.dimension})"
            )
