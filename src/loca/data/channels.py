"""The values of one channel of all functions, for statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from loca.data.queries import Indexed, Shared
from loca.data.samples import Samples, Variable
from loca.data.transforms import is_round_off
from loca.typing import Measurements, values_of


@dataclasses.dataclass(frozen=True)
class ChannelValues:
    """The values of one channel of all functions in double precision, so that no statistic finds its own round-off.

    **Arguments:**

    - `side`, `variable`: whether the channel is one of u or of s, and its name.
    - `values`: at all sensors or queries of every function.
    - `counted`: which of them count.
    - `places`: the number of the location of each value, out of `locations`; None if functions share no locations.
    """

    side: Literal["input", "output"]
    variable: Variable
    values: Float[np.ndarray, "N m"]
    counted: Bool[np.ndarray, "N m"]
    places: Int[np.ndarray, "N m"] | None = None
    locations: int = 0

    def __str__(self) -> str:
        return f"{self.side} `{self.variable.name}`"

    def flat(self) -> Float[np.ndarray, " n"]:
        """The values that count."""
        return self.values[self.counted]

    def finite(self) -> ChannelValues:
        """The channel without the functions that contain NaN or Inf."""
        fine = np.isfinite(np.where(self.counted, self.values, 0.0)).all(axis=1)
        if fine.all():
            return self
        places = None if self.places is None else self.places[fine]
        return dataclasses.replace(self, values=self.values[fine], counted=self.counted[fine], places=places)

    def mean(self) -> float:
        """The mean of all values that count."""
        return float(np.mean(self.values, where=self.counted)) if self.counted.any() else 0.0

    def deviation(self) -> float:
        """The standard deviation of all values that count."""
        return float(np.std(self.values, where=self.counted)) if self.counted.any() else 0.0

    def is_constant(self) -> bool:
        """Whether all values are equal, up to the rounding of single precision."""
        return bool(is_round_off(self.deviation(), self.mean()))


def channels(samples: Samples) -> Iterator[ChannelValues]:
    """The channels of u, then those of s."""
    for part in samples.parts:
        (values,) = values_of(part.u)
        for i, variable in enumerate(part.inputs):
            if isinstance(part.u, Measurements):
                yield of_channel("input", variable, values[..., i], np.asarray(part.u.mask))
            else:
                yield of_channel("input", variable, values[..., i], None, np.arange(values.shape[1]), values.shape[1])
    places, count = None, 0
    match samples.y:
        case Shared(y):
            places, count = np.arange(len(y)), len(y)
        case Indexed(y, index):
            places, count = np.asarray(index), len(y)
    for i, variable in enumerate(samples.outputs):
        yield of_channel("output", variable, samples.s[..., i], None, places, count)


def of_channel(
    side: Literal["input", "output"],
    variable: Variable,
    values: Float[Array, "N m"],
    counted: np.ndarray | None,
    places: np.ndarray | None = None,
    locations: int = 0,
) -> ChannelValues:
    """The values of a channel, all of which count unless `counted` is given."""
    counted = np.broadcast_to(True, values.shape) if counted is None else counted
    places = None if places is None else np.broadcast_to(places, values.shape)
    return ChannelValues(side, variable, np.asarray(values, np.float64), counted, places, locations)
