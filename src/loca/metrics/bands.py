"""Errors by the fineness of what is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from loca.metrics.squares import Errors, Values

EDGES = (5, 13)
"""Waves across the grid at which the middle and the high band begin, as in PDEBench (Takamoto et al. 2022)."""


class Bands(NamedTuple):
    """Errors of waves with |k| < 5, 5 ≤ |k| < 13 and 13 ≤ |k|, where k counts periods across the grid."""

    low: Errors
    mid: Errors
    high: Errors


def rmse_bands(prediction: Values, truth: Values, shape: Sequence[int]) -> Bands:
    """(Σ_{|k| ∈ band} |ê(k)|²)^½ with the Fourier coefficients ê of e = s* − s, in the units of the data.

    By Parseval's identity the squares of the three add up to that of `rmse`, so each is the part of it that waves of
    this fineness have. PDEBench divides by the number of radii in a band instead, which has no such meaning. A grid
    with fewer than 26 points across has little or nothing in the high band. An error that does not continue from one
    edge of the grid to the other counts as a jump, which all bands see.

    **Arguments:**

    - `prediction`, `truth`: values on an evenly spaced grid of any dimension, in row-major order.
    - `shape`: of that grid.
    """
    N, M, d_s = truth.shape
    if math.prod(shape) != M:
        raise ValueError(
            f"bands need values on a grid, but {M} values per function were given for the shape {tuple(shape)}"
        )
    error = (prediction - truth).reshape(N, *shape, d_s)
    spectrum = error.__array_namespace__().fft.fftn(error, axes=tuple(range(1, len(shape) + 1))) / M
    power = (abs(spectrum) ** 2).reshape(N, M, d_s)
    k = radius(shape)
    low, high = EDGES
    inside = (k < low, (low <= k) & (k < high), high <= k)
    return Bands(*((band.astype(power.dtype)[:, None] * power).sum(axis=1) ** 0.5 for band in inside))


def radius(shape: Sequence[int]) -> Float[np.ndarray, " M"]:
    """|k| of every coefficient of a Fourier transform over a grid."""
    axes = np.meshgrid(*(np.fft.fftfreq(n, 1.0 / n) for n in shape), indexing="ij")
    return np.linalg.norm([axis.ravel() for axis in axes], axis=0)
