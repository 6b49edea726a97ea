"""Point sensors."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder, check_positive, check_values
from loca.positions import check_even, octaves
from loca.typing import Input


class Sensors(Encoder):
    """𝒟(u) = (u(x₁), …, u(x_m)), the values at m fixed sensors; the channels of a sensor are adjacent.

    **Arguments:**

    - `sensors`: m.
    - `channels`: d_u.
    """

    sensors: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    def __init__(self, sensors: int, channels: int = 1):
        check_positive(sensors=sensors, channels=channels)
        self.sensors, self.channels = sensors, channels

    @property
    def size(self) -> int:
        return self.sensors * self.channels

    def __call__(self, u: Input) -> Float[Array, " d"]:
        return check_values(u, self.sensors, self.channels, "Sensors").reshape(-1)


class HarmonicSensors(Encoder):
    """𝒟(u) = (u, cos 2ʲπu, sin 2ʲπu) at m fixed sensors, j = 0 … H/2 − 1: features of the values, not the locations.

    **Arguments:**

    - `sensors`: m.
    - `channels`: d_u.
    - `num_frequencies`: H, cosines and sines together, per value. Good values: 2 to 10.
    """

    sensors: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    num_frequencies: int = eqx.field(static=True)

    def __init__(self, sensors: int, channels: int = 1, *, num_frequencies: int = 2):
        check_even(num_frequencies)
        self.sensors, self.channels, self.num_frequencies = sensors, channels, num_frequencies

    @property
    def size(self) -> int:
        return self.sensors * self.channels * (1 + self.num_frequencies)

    def __call__(self, u: Input) -> Float[Array, " d"]:
        values = check_values(u, self.sensors, self.channels, "HarmonicSensors")
        waves = octaves(values, math.pi, self.num_frequencies // 2, start=0)
        return jnp.concatenate([values.reshape(-1), waves.reshape(-1)])
