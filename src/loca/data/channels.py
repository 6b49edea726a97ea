"""The values of one channel of all functions, for statistics, and those that are not finite."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float, Int

from loca.data.queries import Indexed, Shared
from loca.data.samples import Samples, Variable
from loca.data.transforms import is_round_off
from loca.typing import Measurements, values_of


@dataclasses.dataclass(frozen=True)
class ChannelValues:
    """The values of one channel of all functions in double precision, so that no statistic finds its own round-off."""

    side: Literal["input", "output"]
    variable: Variable
    values: Float[np.ndarray, "N m"]  # at all sensors or queries of every function
    counted: Bool[np.ndarray, "N m"]  # which of them count
    places: Int[np.ndarray, "N m"] | None = None  # the number of each value's location; None if functions share none
    locations: int = 0  # the number of all locations

    def __str__(self) -> str:
        return f"{self.side} `{self.variable.name}`"

    def flat(self) -> Float[np.ndarray, " n"]:
        """The values that count."""
        return self.values[self.counted]

    def finite(self) -> "ChannelValues":
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


def channels(samples: Samples, precision: type = np.float64) -> Iterator[ChannelValues]:
    """The channels of u, then those of s."""
    for part in samples.parts:
        u = np.asarray(values_of(part.u)[0])
        counted, places, count = np.broadcast_to(True, u.shape[:2]), None, 0
        if isinstance(part.u, Measurements):
            counted = np.asarray(part.u.mask)
        else:
            places, count = np.broadcast_to(np.arange(u.shape[1]), u.shape[:2]), u.shape[1]
        for i, variable in enumerate(part.inputs):
            yield ChannelValues("input", variable, u[..., i].astype(precision, copy=False), counted, places, count)
    s, places, count = np.asarray(samples.s), None, 0
    match samples.y:
        case Shared(y):
            places, count = np.broadcast_to(np.arange(len(y)), s.shape[:2]), len(y)
        case Indexed(y, index):
            places, count = np.asarray(index), len(y)
    counted = np.broadcast_to(True, s.shape[:2])
    for i, variable in enumerate(samples.outputs):
        yield ChannelValues("output", variable, s[..., i].astype(precision, copy=False), counted, places, count)


def check_finite(samples: Samples, what: str = "the data", numbers: Sequence[int] | np.ndarray | None = None) -> None:
    """Raise `ValueError` with functions and channels if a value is NaN or infinite; for arguments see `not_finite`."""
    if found := not_finite(samples, numbers):
        raise ValueError(f"{what} has values that are not finite: {found}; fill them, or leave these functions out")


def not_finite(samples: Samples, numbers: Sequence[int] | np.ndarray | None = None) -> str:
    """The first functions and channels with NaN or infinite values, in words; empty if there are none.

    Functions are not checked while JAX traces a program. Messages call them by `numbers`, from 0 on unless given.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(samples)):
        return ""
    listed = []
    for column in channels(samples, np.float32):
        wrong = ~np.isfinite(column.values) & column.counted
        for row in np.flatnonzero(wrong.any(axis=1)):
            kind = "NaN" if np.isnan(column.values[row][wrong[row]]).any() else "infinite"
            count = f"{int(wrong[row].sum())} of {wrong.shape[1]} values {kind}"
            text = f"{column.side} {column.variable.name!r}: {count}"
            listed.append((int(row) if numbers is None else int(numbers[int(row)]), text))
    texts = [f"function {number}, {text}" for number, text in sorted(listed)]
    return "; ".join(texts[:4] + ([f"and {len(texts) - 4} more"] if len(texts) > 4 else []))
