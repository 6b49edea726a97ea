"""What every input encoder is, checks of input functions, and the encoder that keeps the values at the sensors."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.parameters import Fixed
from loca.positions import check_even, octaves
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


class Sensors(Encoder):
    """𝒟(u) = (u, cos 2ʲπu, sin 2ʲπu) at m fixed sensors, j = 0 … H/2 − 1; the channels of a sensor are adjacent.

    **Arguments:**

    - `sensors`: m.
    - `channels`: d_u.
    - `num_frequencies`: H, cosines and sines together, per value; none by default. Features of the values, not of the
      locations. Good values: 2 to 10.
    """

    sensors: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    num_frequencies: int = eqx.field(static=True)

    def __init__(self, sensors: int, channels: int = 1, *, num_frequencies: int = 0):
        check_positive(sensors=sensors, channels=channels)
        check_even(num_frequencies)
        self.sensors, self.channels, self.num_frequencies = sensors, channels, num_frequencies

    @property
    def size(self) -> int:
        return self.sensors * self.channels * (1 + self.num_frequencies)

    def __call__(self, u: Input) -> Float[Array, " d"]:
        values = check_values(u, self.sensors, self.channels, "Sensors")
        if not self.num_frequencies:
            return values.reshape(-1)
        waves = octaves(values, math.pi, self.num_frequencies // 2, start=0)
        return jnp.concatenate([values.reshape(-1), waves.reshape(-1)])
