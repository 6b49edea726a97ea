"""What every input encoder is."""

import abc

from jaxtyping import Array, Float

from loca.parameters import Fixed
from loca.typing import Input


class Encoder(Fixed):
    """𝒟 : u ↦ ℝᵈ, from one input function to a vector of fixed length.

    Written for one function; use `jax.vmap` for many.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """d, the length of the vector."""

    @abc.abstractmethod
    def __call__(self, u: Input) -> Float[Array, " d"]:
        """𝒟(u)."""
