"""The encoders that models use unless given one."""

import itertools
import math

import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization, Samples, grid_shape
from loca.domains import Box
from loca.encoders import Encoder, Joined, Projection, Scattering1D, Scattering2D, Sensors, Standardized
from loca.typing import Field, Measurements, MultiInput

AVERAGES = 31
"""The least number of local averages of a curve: what the paper's 4 scales leave of its 500 sensors. Finer scales lose
their sign in the modulus, so fewer sensors need fewer scales."""

PROJECTION_MODES = {1: 32, 2: 64, 3: 125}
"""Cosines in total, per channel, where every function has its own sensors: 32, 8² and 5³."""

MANY_DIMENSIONS = 10
"""Dimensions up to which a projection has at least two cosines along each: 2¹⁰ = 1024 of them."""


def default_encoder(data: Samples, normalization: Normalization, *, of_sensors: bool = False) -> Encoder:
    """Scattering on a one- or two-dimensional grid, as in the paper, and the values at the sensors otherwise.

    A projection if every function has its own sensors. Several inputs have one encoder each, and codes are joined. The
    codes of projections and of several inputs are standardized. With `of_sensors` the values at the sensors and
    harmonic features of them take the place of scattering.
    """
    fields = [field_encoder(u, x, of_sensors) for u, x in data.fields]
    encoder = fields[0]
    if isinstance(data.u, MultiInput):
        encoder = Joined(fields, 0 if data.u.scalars is None else data.u.scalars.shape[-1])
    if isinstance(data.u, Measurements | MultiInput):
        return Standardized.fit(encoder, normalization.standardize_input(data.u))
    return encoder


def field_encoder(u: Field, x: Float[Array, "m d_x"] | None, of_sensors: bool) -> Encoder:
    """The encoder of one field."""
    if isinstance(u, Measurements):
        return projection(u)
    if of_sensors:
        return Sensors(u.shape[1], u.shape[-1], num_frequencies=2)
    shape = None if x is None else grid_shape(x)
    match shape:
        case (length,) if length >= 2 * AVERAGES:
            scales = min(4, int(math.log2(length / AVERAGES)))
            return Scattering1D.create(length=length, scales=scales, channels=u.shape[-1])
        case (_, _) if min(shape) >= 8:
            return Scattering2D.create(shape=shape, scales=1, angles=8, channels=u.shape[-1])
    return Sensors(u.shape[1], u.shape[-1])


def projection(u: Measurements) -> Projection:
    """A projection onto at most half as many cosines as a function has sensors."""
    mask = np.asarray(u.mask)
    points = np.asarray(u.x)[mask]
    low, high = points.min(axis=0), points.max(axis=0)
    flat = high <= low
    box = Box(np.where(flat, low - 0.5, low).tolist(), np.where(flat, high + 0.5, high).tolist())
    most = PROJECTION_MODES.get(box.dimension) or int(2 ** min(max(box.dimension, 7), MANY_DIMENSIONS))
    modes = modes_within(min(most, int(mask.sum(axis=-1).min()) // 2), box.dimension)
    return Projection.create(box, modes, channels=u.u.shape[-1])


def modes_within(most: int, dimension: int) -> tuple[int, ...]:
    """Cosines along each dimension, as equal as possible, whose product is at most `most`, but at least 1."""
    modes = [1] * dimension
    for i in itertools.cycle(range(dimension)):
        more = [modes[j] + (j == i) for j in range(dimension)]
        if math.prod(more) > most:
            return tuple(modes)
        modes = more
    return tuple(modes)
