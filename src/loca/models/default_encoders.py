"""The encoders that models use unless given one."""

import math

from loca.data import Samples, grid_shape
from loca.domains import Box
from loca.encoders import Encoder, HarmonicSensors, Projection, Scattering1D, Scattering2D, Sensors
from loca.typing import Measurements

AVERAGES = 31
"""The least number of local averages of a curve: what the paper's 4 scales leave of its 500 sensors. Finer scales lose
their sign in the modulus, so fewer sensors need fewer scales."""

PROJECTION_MODES = {1: 32, 2: 8, 3: 5}
"""Cosines per dimension where every function has its own sensors: 32, 64 and 125 coefficients per channel."""


def default_encoder(data: Samples) -> Encoder:
    """Scattering on a one- or two-dimensional grid, as in the paper.

    A projection if every function has its own sensors; the values at the sensors otherwise.
    """
    if isinstance(data.u, Measurements):
        x = data.u.x.reshape(-1, data.u.x.shape[-1])
        box = Box(x.min(axis=0).tolist(), x.max(axis=0).tolist())
        return Projection.create(box, PROJECTION_MODES[box.dimension], channels=data.input_size)
    shape = None if data.x is None else grid_shape(data.x)
    match shape:
        case (length,) if length >= 2 * AVERAGES:
            scales = min(4, int(math.log2(length / AVERAGES)))
            return Scattering1D.create(length=length, scales=scales, channels=data.input_size)
        case (_, _) if min(shape) >= 8:
            return Scattering2D.create(shape=shape, scales=1, angles=8, channels=data.input_size)
    return default_sensors(data, num_frequencies=0)


def default_sensors(data: Samples, num_frequencies: int = 2) -> Encoder:
    """The values at the sensors, with `num_frequencies` harmonic features of each."""
    if isinstance(data.u, Measurements):
        raise ValueError(
            "point sensors need the same locations for every function, but every function of this data has its own; "
            "pass `encoder=Projection.create(...)`"
        )
    sensors = data.u.shape[1]
    if num_frequencies == 0:
        return Sensors(sensors, data.input_size)
    return HarmonicSensors(sensors, data.input_size, num_frequencies=num_frequencies)
