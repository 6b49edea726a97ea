"""The values of one channel of all functions, for statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

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
        (u,) = values_of(part.u)
        counted, places, count = np.broadcast_to(True, u.shape[:2]), None, 0
        if isinstance(part.u, Measurements):
            counted = np.asarray(part.u.mask)
        else:
            places, count = np.broadcast_to(np.arange(u.shape[1]), u.shape[:2]), u.shape[1]
        for i, variable in enumerate(part.inputs):
            yield ChannelValues("input", variable, np.asarray(u[..., i], np.float64), counted, places, count)
    s, places, count = samples.s, None, 0
    match samples.y:
        case Shared(y):
            places, count = np.broadcast_to(np.arange(len(y)), s.shape[:2]), len(y)
        case Indexed(y, index):
            places, count = np.asarray(index), len(y)
    counted = np.broadcast_to(True, s.shape[:2])
    for i, variable in enumerate(samples.outputs):
        yield ChannelValues("output", variable, np.asarray(s[..., i], np.float64), counted, places, count)
