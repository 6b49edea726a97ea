"""Count, mean, spread and range of each channel, taken piece by piece and merged exactly."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """n, mean x̄, Σ(x − x̄)², min and max of each of d channels, in double precision."""

    count: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    squares: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, values: Float[np.ndarray, "*N d"], mask: Bool[np.ndarray, "*N"] | None = None) -> Moments:
        """Those of the finite values, where the mask, if any, is true."""
        kept = values.reshape(-1, values.shape[-1]) if mask is None else values[mask]
        channels = (channel[np.isfinite(channel)] for channel in kept.T.astype(np.float64, order="C"))
        return cls(*np.array([summary(channel) for channel in channels]).T)

    @property
    def table(self) -> Float[np.ndarray, "5 d"]:
        """All of them as one array: `Moments(*table)` is the way back."""
        return np.stack([self.count, self.mean, self.squares, self.low, self.high])

    def merge(self, other: Moments) -> Moments:
        """x̄ = x̄ₐ + δ n_b/n and Σ = Σₐ + Σ_b + δ² nₐn_b/n with δ = x̄_b − x̄ₐ (Chan, Golub & LeVeque 1979)."""
        count = self.count + other.count
        n = np.maximum(count, 1.0)
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + delta * other.count / n,
            self.squares + other.squares + delta**2 * self.count * other.count / n,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def summary(values: Float[np.ndarray, " n"]) -> tuple[float, float, float, float, float]:
    """n, x̄, Σ(x − x̄)², min and max of one channel."""
    if not len(values):
        return 0.0, 0.0, 0.0, np.inf, -np.inf
    mean = values.mean()
    squares = np.square(values - mean).sum()  # not a product of BLAS, whose sum depends on the number of threads
    return float(len(values)), mean, squares, values.min(), values.max()


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """What a channel-wise summary of values is: one number per channel, of the finite values that count."""

    count: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    std: Float[np.ndarray, " d"]
    min: Float[np.ndarray, " d"]
    max: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, pieces: Iterable[Moments]) -> Statistics:
        """Those of all pieces together, merged in the order given."""
        all_of_them = functools.reduce(Moments.merge, pieces)
        std = np.sqrt(all_of_them.squares / np.maximum(all_of_them.count, 1.0))
        return cls(all_of_them.count, all_of_them.mean, std, all_of_them.low, all_of_them.high)

    def to_json(self) -> dict[str, Any]:
        """Lists of numbers; null for the range of a channel without a finite value."""
        return {
            name: [float(value) if np.isfinite(value) else None for value in values]
            for name, values in vars(self).items()
        }

    @classmethod
    def from_json(cls, lists: dict[str, Any]) -> Statistics:
        """What `to_json` gave."""
        return cls(*(np.array(lists[name], dtype=np.float64) for name in cls.__dataclass_fields__))
