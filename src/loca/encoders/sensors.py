"""Point sensors."""

import equinox as eqx
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder
from loca.encoders.grid import check_positive, check_values
from loca.typing import Input


class Sensors(Encoder):
    """𝒟(u) = (u(x₁), …, u(x_m)), the values at m fixed sensors, channels of a sensor next to each other.

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
