"""The channels of some data, one at a time, as every check reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float

from loca.data import Samples, Variable
from loca.typing import Measurements


@dataclasses.dataclass(frozen=True)
class Channel:
    """The values of one channel of all functions, and which of them count."""

    side: str
    variable: Variable
    values: Float[np.ndarray, "N m"]
    counted: Bool[np.ndarray, "N m"]

    def __str__(self) -> str:
        return f"{self.side} `{self.variable.name}`"

    def finite(self) -> Channel:
        """The functions without NaN or Inf."""
        fine = np.isfinite(np.where(self.counted, self.values, 0.0)).all(axis=1)
        if fine.all():
            return self
        return dataclasses.replace(self, values=self.values[fine], counted=self.counted[fine])

    def mean(self) -> float:
        """Over all values that count."""
        return float(np.mean(self.values, where=self.counted, dtype=np.float64)) if self.counted.any() else 0.0

    def deviation(self) -> float:
        """The standard deviation of all values that count."""
        return float(np.std(self.values, where=self.counted, dtype=np.float64)) if self.counted.any() else 0.0

    def sizes(self) -> Float[np.ndarray, " N"]:
        """The root mean square of each function about the mean of all."""
        squares = (self.values - self.mean()) ** 2
        return np.sqrt(np.mean(squares, axis=1, where=self.counted, dtype=np.float64))


def inputs_of(samples: Samples) -> list[Channel]:
    """The channels of u."""
    if isinstance(samples.u, Measurements):
        return channels("input", samples.inputs, np.asarray(samples.u.u), np.asarray(samples.u.mask))
    return channels("input", samples.inputs, np.asarray(samples.u), None)


def outputs_of(samples: Samples) -> list[Channel]:
    """The channels of s."""
    return channels("output", samples.outputs, np.asarray(samples.s), None)


def channels(
    side: str, variables: Iterable[Variable], values: Float[np.ndarray, "N m d"], mask: Bool[np.ndarray, "N m"] | None
) -> list[Channel]:
    """One for each name."""
    counted = np.broadcast_to(True, values.shape[:2]) if mask is None else mask
    # in double precision, so that no check finds its own round-off
    return [Channel(side, variable, values[..., i].astype(np.float64), counted) for i, variable in enumerate(variables)]


def rows(wrong: Bool[np.ndarray, " N"]) -> str:
    """`3 of 100 functions (the first is number 17)`."""
    return f"{int(wrong.sum())} of {len(wrong)} functions (the first is number {int(np.argmax(wrong))})"
