"""Distances between predictions and the truth, per function and output channel, in the units of the data.

All metrics accept JAX or NumPy arrays, compute in their precision, and can be compiled. Weights, where accepted, state
how much of Y each query represents (`loca.domains.area_weights`); a common factor does not matter.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Float

__all__ = ["crps", "max_absolute", "relative_l2", "relative_l2_squared", "rmse", "skill", "spectral"]

Values: TypeAlias = Float[Array, "N P d_s"] | Float[np.ndarray, "N P d_s"]
"""Output functions at their queries."""

Errors: TypeAlias = Float[Array, "N d_s"] | Float[np.ndarray, "N d_s"]
"""One number per function and output channel."""

Weights: TypeAlias = Float[Array, "*N P"] | Float[np.ndarray, "*N P"]
"""How much of Y each query represents, the same for all functions or one row for each."""

BAND_EDGES = (5, 13)
"""Waves across the grid at which the middle and the high band begin, as in PDEBench (Takamoto et al. 2022)."""


def mean(values: Values, weights: Weights | None = None) -> Errors:
    """Σ w s / Σ w over the queries; equal weights unless given."""
    if weights is None:
        return values.mean(axis=1)
    return (weights[..., None] * values).sum(axis=1) / weights.sum(axis=-1)[..., None]


def ratio(a: Errors, b: Errors) -> Errors:
    """a/b; infinite or NaN where b is zero, since there is nothing to be relative to."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


# relative to the truth


def relative_l2(prediction: Values, truth: Values, weights: Weights | None = None) -> Errors:
    """‖s* − s‖₂ / ‖s‖₂ over all queries: the Euclidean norm of the values as one vector, not squared.

    On a grid this is the Frobenius norm of the field, not the spectral norm of a matrix. With weights,
    (Σ w (s* − s)² / Σ w s²)^½.
    """
    return relative_l2_squared(prediction, truth, weights) ** 0.5


def relative_l2_squared(prediction: Values, truth: Values, weights: Weights | None = None) -> Errors:
    """‖s* − s‖₂² / ‖s‖₂², the formula printed in the paper; its tables report the square root."""
    return ratio(mean((prediction - truth) ** 2, weights), mean(truth**2, weights))


def spectral(prediction: Values, truth: Values, shape: Sequence[int]) -> Errors:
    """‖S* − S‖ / ‖S‖ with the largest singular values of the fields as matrices; the paper's scripts use it for Darcy.

    Only the strongest pattern of an error counts: an error spread over r equal singular values is √r times smaller
    than its Euclidean norm. Use it to compare with numbers computed this way, and `relative_l2` otherwise.

    **Arguments:**

    - `prediction`, `truth`: values on a two-dimensional grid in row-major order.
    - `shape`: the shape of that grid.
    """
    if len(shape) != 2 or shape[0] * shape[1] != truth.shape[1]:
        raise ValueError(
            f"a spectral norm needs values on a two-dimensional grid, got {truth.shape[1]} values per function for the "
            f"shape {tuple(shape)}; use `relative_l2`, which needs no grid"
        )

    def size(values: Values) -> Errors:
        numbers = values.__array_namespace__()
        return numbers.linalg.norm(values.reshape(len(values), *shape, -1), ord=2, axis=(1, 2))

    return ratio(size(prediction - truth), size(truth))


# in the units of the data


def rmse(prediction: Values, truth: Values, weights: Weights | None = None) -> Errors:
    """(Σ w (s* − s)² / Σ w)^½: the root of the mean squared error."""
    return mean((prediction - truth) ** 2, weights) ** 0.5


def max_absolute(prediction: Values, truth: Values) -> Errors:
    """max |s* − s| over all queries."""
    return abs(prediction - truth).max(axis=1)


def crps(prediction: Values, std: Values, truth: Values, weights: Weights | None = None) -> Errors:
    """The mean of σ [z (2Φ(z) − 1) + 2φ(z) − 1/√π], z = (s − s*)/σ: the continuous ranked probability score.

    It is the error of a normal distribution as a prediction, and equals |s* − s| for σ = 0.
    """
    from scipy.stats import norm

    s, m, sigma = (np.asarray(each) for each in (truth, prediction, std))
    z = (s - m) / np.maximum(sigma, np.finfo(sigma.dtype).tiny)
    scores = sigma * (z * (2.0 * norm.cdf(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / math.sqrt(math.pi))
    return mean(scores, None if weights is None else np.asarray(weights))


class Bands(NamedTuple):
    """Errors of waves with |k| < 5, 5 ≤ |k| < 13 and 13 ≤ |k|, where k counts periods across the grid."""

    low: Errors
    mid: Errors
    high: Errors


def rmse_bands(prediction: Values, truth: Values, shape: Sequence[int]) -> Bands:
    """(Σ_{|k| ∈ band} |ê(k)|²)^½ with the Fourier coefficients ê of e = s* − s, in the units of the data.

    By Parseval's identity the squares of the three bands add up to the square of `rmse`, so each band is the part of
    the error in its wavenumbers. PDEBench divides by the number of radii in a band instead, which has no such meaning.
    A grid with fewer than 26 points per axis has little or nothing in the high band. An error that differs between
    opposite edges of the grid counts as a jump, which contributes to all bands.

    **Arguments:**

    - `prediction`, `truth`: values on an evenly spaced grid of any dimension, in row-major order.
    - `shape`: the shape of that grid.
    """
    N, M, d_s = truth.shape
    if math.prod(shape) != M:
        raise ValueError(
            f"bands need values on a grid, got {M} values per function for the shape {tuple(shape)}; pass the shape of "
            "the grid of the queries"
        )
    error = (prediction - truth).reshape(N, *shape, d_s)
    spectrum = error.__array_namespace__().fft.fftn(error, axes=tuple(range(1, len(shape) + 1))) / M
    power = (abs(spectrum) ** 2).reshape(N, M, d_s)
    k = wavenumbers(shape)
    low, high = BAND_EDGES
    inside = (k < low, (low <= k) & (k < high), high <= k)
    return Bands(*((band.astype(power.dtype)[:, None] * power).sum(axis=1) ** 0.5 for band in inside))


def wavenumbers(shape: Sequence[int]) -> Float[np.ndarray, " M"]:
    """|k| of every coefficient of the discrete Fourier transform on a grid."""
    axes = np.meshgrid(*(np.fft.fftfreq(n, 1.0 / n) for n in shape), indexing="ij")
    return np.linalg.norm([axis.ravel() for axis in axes], axis=0)


# relative to a reference, such as the mean field or climatology


def skill(prediction: Values, truth: Values, reference: Values, weights: Weights | None = None) -> Errors:
    """1 − Σ w (s* − s)² / Σ w (s̄ − s)² for every function: 1 is perfect, 0 no better than the reference s̄."""
    return 1.0 - ratio(mean((prediction - truth) ** 2, weights), mean((reference - truth) ** 2, weights))
