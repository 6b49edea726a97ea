"""The findings that checks report, and the channels that they examine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from loca.data import Samples, Variable
from loca.typing import Measurements, values_of

Level: TypeAlias = Literal["error", "warning", "note"]
"""error: training on this data is wasted; warning: look before you train; note: nothing to do."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding: its level, the name of the check, and a message with the place, the problem and what to do."""

    level: Level
    name: str
    message: str


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """All findings, the most serious first."""

    findings: tuple[Finding, ...]

    @property
    def is_fine(self) -> bool:
        """Whether all findings are notes."""
        return all(finding.level == "note" for finding in self.findings)

    def names(self, *levels: Level) -> set[str]:
        """The names of the checks with findings of these levels, by default of any level."""
        return {finding.name for finding in self.findings if not levels or finding.level in levels}


def sort(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    """The most serious findings first, otherwise in the given order."""
    order: tuple[Level, ...] = ("error", "warning", "note")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))


@dataclasses.dataclass(frozen=True)
class Channel:
    """The values of one channel of all functions, and a mask of those that count."""

    side: str
    variable: Variable
    values: Float[np.ndarray, "N m"]
    counted: Bool[np.ndarray, "N m"]

    def __str__(self) -> str:
        return f"{self.side} `{self.variable.name}`"

    def finite(self) -> Channel:
        """The channel without the functions that contain NaN or Inf."""
        fine = np.isfinite(np.where(self.counted, self.values, 0.0)).all(axis=1)
        if fine.all():
            return self
        return dataclasses.replace(self, values=self.values[fine], counted=self.counted[fine])

    def mean(self) -> float:
        """The mean of all values that count."""
        return float(np.mean(self.values, where=self.counted, dtype=np.float64)) if self.counted.any() else 0.0

    def deviation(self) -> float:
        """The standard deviation of all values that count."""
        return float(np.std(self.values, where=self.counted, dtype=np.float64)) if self.counted.any() else 0.0

    def sizes(self) -> Float[np.ndarray, " N"]:
        """The root mean square of each function about the mean of all functions."""
        squares = (self.values - self.mean()) ** 2
        return np.sqrt(np.mean(squares, axis=1, where=self.counted, dtype=np.float64))


def inputs_of(samples: Samples) -> list[Channel]:
    """The channels of u."""
    found = []
    for part in samples.parts:
        mask = np.asarray(part.u.mask) if isinstance(part.u, Measurements) else None
        found += channels("input", part.inputs, np.asarray(values_of(part.u)[0]), mask)
    return found


def outputs_of(samples: Samples) -> list[Channel]:
    """The channels of s."""
    return channels("output", samples.outputs, np.asarray(samples.s), None)


def channels(
    side: str, variables: Iterable[Variable], values: Float[np.ndarray, "N m d"], mask: Bool[np.ndarray, "N m"] | None
) -> list[Channel]:
    """One channel for each variable."""
    counted = np.broadcast_to(True, values.shape[:2]) if mask is None else mask
    # in double precision, so that no check finds its own rounding errors
    return [Channel(side, variable, values[..., i].astype(np.float64), counted) for i, variable in enumerate(variables)]


def rows(wrong: Bool[np.ndarray, " N"]) -> str:
    """`3 of 100 functions (the first is number 17)`."""
    return f"{int(wrong.sum())} of {len(wrong)} functions (the first is number {int(np.argmax(wrong))})"
