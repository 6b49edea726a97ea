"""Discrete Fourier transforms to and from a few low frequencies, as matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Of a fast transform all but the lowest frequencies would be thrown away, and on most devices a matrix product with
# the few rows that are kept runs at many times its rate: 2·2m operations per number for m frequencies.


def to_frequencies(h: Float[Array, "w N *grid"], modes: Sequence[int]) -> Float[Array, "w N K 2"]:
    """ĥ(k) = Σₓ h(x) exp(−2πi k·x/n): real and imaginary parts at the frequencies kept.

    **Arguments:**

    - `h`: values on a grid.
    - `modes`: how many frequencies are kept along each axis: 0 … m − 1 along the last, −m/2 … m/2 − 1 along the others,
      in the order of the transform, 0 first. K is their product, the last axis of the grid varying slowest.
    """
    lead, grid = h.shape[:2], h.shape[2:]
    *others, last = modes
    parts = product(h, half_matrix(grid[-1], last))
    done = last
    for n, kept in zip(reversed(grid[:-1]), reversed(others), strict=True):
        # (…, n, done, 2) → (…, done, n, 2), so that one product sums over the places and both parts
        parts = jnp.swapaxes(parts.reshape(-1, n, done, 2), 1, 2).reshape(-1, done, 2 * n)
        parts = product(parts, full_matrix(n, kept))
        done *= kept
    return parts.reshape(*lead, done, 2)


def to_grid(parts: Float[Array, "w N K 2"], modes: Sequence[int], grid: Sequence[int]) -> Float[Array, "w N *grid"]:
    """h(x) = 1/n Σₖ ĥ(k) exp(2πi k·x/n), real, with zeros at all frequencies but those kept."""
    lead = parts.shape[:2]
    *others, last = modes
    done = last * math.prod(others)
    for n, kept in zip(grid[:-1], others, strict=True):
        done //= kept
        parts = product(parts.reshape(-1, done, 2 * kept), full_matrix(n, kept).T / n)
        parts = jnp.swapaxes(parts.reshape(-1, done, n, 2), 1, 2)
    n = grid[-1]
    k = np.arange(last)
    times = np.where((k == 0) | (2 * k == n), 1.0, 2.0)  # for −k, which is not stored
    inverse = half_matrix(n, last).T * np.repeat(times, 2)[:, None] / n
    return product(parts.reshape(-1, 2 * last), inverse).reshape(*lead, *grid)


def half_matrix(n: int, kept: int) -> np.ndarray:
    """From n real numbers to frequencies 0 … kept − 1, real and imaginary part of each next to each other."""
    angle = 2.0 * np.pi * np.outer(np.arange(n), np.arange(kept)) / n
    return np.stack([np.cos(angle), -np.sin(angle)], axis=-1).reshape(n, 2 * kept)


def full_matrix(n: int, kept: int) -> np.ndarray:
    """From n complex numbers to frequencies 0 … kept/2 − 1, −kept/2 … −1; its transpose is n times the way back."""
    angle = 2.0 * np.pi * np.outer(np.arange(n), np.r_[: kept // 2, -(kept // 2) : 0]) / n
    cos, sin = np.cos(angle), np.sin(angle)
    rows = np.stack([np.stack([cos, -sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=1)
    return rows.reshape(2 * n, 2 * kept)


def product(a: Float[Array, "*rows p"], matrix: np.ndarray) -> Float[Array, "*rows q"]:
    """In full precision also where matrix products are rounded by default: a transform is no learned map."""
    return jnp.matmul(a, jnp.asarray(matrix, a.dtype), precision=jax.lax.Precision.HIGHEST)
