"""What every input encoder is, and checks of the input functions."""

import abc
import math

from jaxtyping import Array, Float

from loca.parameters import Fixed
from loca.typing import Input, Measurements, MultiInput


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


def check_values(u: Input, sensors: int, channels: int, name: str) -> Float[Array, "m d_u"]:
    """Return u, or raise unless it holds values at the m sensors of the encoder called `name`."""
    if isinstance(u, Measurements):
        raise TypeError(
            f"{name} needs values at the same sensors for every function, got Measurements, which have their own "
            "locations; encode those with `Projection`"
        )
    if isinstance(u, MultiInput):
        raise TypeError(
            f"{name} encodes one field, got a MultiInput with {len(u.fields)} fields and "
            f"{0 if u.scalars is None else u.scalars.shape[-1]} scalars; encode each of them, with `Joined`"
        )
    if u.shape != (sensors, channels):
        raise ValueError(
            f"{name} was built for {sensors} sensors and {channels} channel(s), that is u of shape "
            f"{(sensors, channels)}, got {u.shape}; put channels last, and map over functions with `jax.vmap`"
        )
    return u


def fields(u: Input, shape: tuple[int, ...], channels: int, name: str) -> Float[Array, "d_u *grid"]:
    """The values u, given in row-major order of the grid, as one field per channel."""
    return check_values(u, math.prod(shape), channels, name).T.reshape(channels, *shape)


def check_positive(**sizes: int) -> None:
    """Raise unless every size is at least one."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1, got {size}")
