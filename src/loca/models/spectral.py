"""Spectral layers: linear maps of the lowest Fourier coefficients of a function on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.nets import MLP
from loca.products import matmul
from loca.typing import Key


class SpectralLayer(eqx.Module):
    """h ↦ F⁻¹(R · F h) + W h + b, where R is zero except at the lowest frequencies.

    These are −m … m − 1 along every axis but the last, and 0 … m − 1 along the last. R is stored as its real and
    imaginary parts, so that optimizers, checkpoints and meshes need not support complex numbers.
    """

    real: Float[Array, "*modes w w"]
    imag: Float[Array, "*modes w w"]
    weight: Float[Array, "w w"]
    bias: Float[Array, " w"]

    def __init__(self, modes: Sequence[int], width: int, *, key: Key):
        real_key, imag_key, weight_key = jax.random.split(key, 3)
        *others, last = modes
        shape = (*(2 * m for m in others), last, width, width)
        # entries uniform on [0, 1/w²) in both parts, as in the paper that introduced the layer (Li et al. 2021)
        self.real = jax.random.uniform(real_key, shape) / width**2
        self.imag = jax.random.uniform(imag_key, shape) / width**2
        self.weight = jax.nn.initializers.glorot_normal()(weight_key, (width, width))
        self.bias = jnp.zeros(width)

    def __call__(self, h: Float[Array, "w N *grid"]) -> Float[Array, "w N *grid"]:
        """For N functions at once; with channels first, sums over points and over channels are both matrix products."""
        modes = self.real.shape[:-2]
        smooth = to_grid(self.filter(to_frequencies(h, modes)), modes, h.shape[2:])
        return smooth + over_channels(self.weight, self.bias, h)

    def filter(self, spectrum: Float[Array, "w N K 2"]) -> Float[Array, "w N K 2"]:
        """R · F h at every frequency, as a product of real matrices on (Re, Im)."""
        width, count, frequencies, _ = spectrum.shape
        modes = self.real.ndim - 2
        # in the spectrum the last axis varies slowest
        order = (*reversed(range(modes)), modes, modes + 1)
        real, imag = (part.transpose(order).reshape(-1, width, width) for part in (self.real, self.imag))
        R = jnp.block([[real, imag], [-imag, real]])
        rows = spectrum.transpose(2, 1, 3, 0).reshape(frequencies, count, 2 * width)
        return (rows @ R).reshape(frequencies, count, 2, width).transpose(3, 1, 0, 2)


def over_channels(
    weight: Float[Array, "c_in c_out"], bias: Float[Array, " c_out"], h: Float[Array, "c_in N *grid"]
) -> Float[Array, "c_out N *grid"]:
    """W h + b at every grid point."""
    mixed = matmul(weight.T, h.reshape(len(h), -1)) + bias[:, None]
    return mixed.reshape(-1, *h.shape[1:])


def at_every_point(net: MLP, h: Float[Array, "c_in N *grid"]) -> Float[Array, "c_out N *grid"]:
    """The perceptron at every grid point, with channels first."""
    *hidden, last = zip(net.weights, net.biases, strict=True)
    for weight, bias in hidden:
        h = net.activation(over_channels(weight, bias, h))
    return over_channels(*last, h)


# The Fourier transforms are matrix products. A fast transform computes all frequencies, of which only the lowest are
# needed, and on most devices a product with the few rows that are kept is many times faster: 2·2m operations per number
# for m frequencies.


def to_frequencies(h: Float[Array, "w N *grid"], modes: Sequence[int]) -> Float[Array, "w N K 2"]:
    """ĥ(k) = Σₓ h(x) exp(−2πi k·x/n): real and imaginary parts at the kept frequencies.

    **Arguments:**

    - `h`: values on a grid.
    - `modes`: number of frequencies kept along each axis: 0 … m − 1 along the last, −m/2 … m/2 − 1 along the others, in
      the order of the FFT, 0 first. K is their product, with the last axis of the grid varying slowest.
    """
    lead, grid = h.shape[:2], h.shape[2:]
    *others, last = modes
    parts = product(h, half_matrix(grid[-1], last))
    done = last
    for n, kept in zip(reversed(grid[:-1]), reversed(others), strict=True):
        # (…, n, done, 2) → (…, done, n, 2), so that one product sums over the points and both parts
        parts = jnp.swapaxes(parts.reshape(-1, n, done, 2), 1, 2).reshape(-1, done, 2 * n)
        parts = product(parts, full_matrix(n, kept))
        done *= kept
    return parts.reshape(*lead, done, 2)


def to_grid(parts: Float[Array, "w N K 2"], modes: Sequence[int], grid: Sequence[int]) -> Float[Array, "w N *grid"]:
    """h(x) = 1/n Σₖ ĥ(k) exp(2πi k·x/n), real; all frequencies that are not kept are zero."""
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
    """From n real numbers to frequencies 0 … kept − 1, with real and imaginary parts interleaved."""
    angle = 2.0 * np.pi * np.outer(np.arange(n), np.arange(kept)) / n
    return np.stack([np.cos(angle), -np.sin(angle)], axis=-1).reshape(n, 2 * kept)


def full_matrix(n: int, kept: int) -> np.ndarray:
    """From n complex numbers to frequencies 0 … kept/2 − 1, −kept/2 … −1; its transpose is n times the inverse."""
    angle = 2.0 * np.pi * np.outer(np.arange(n), np.r_[: kept // 2, -(kept // 2) : 0]) / n
    cos, sin = np.cos(angle), np.sin(angle)
    rows = np.stack([np.stack([cos, -sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=1)
    return rows.reshape(2 * n, 2 * kept)


def product(a: Float[Array, "*rows p"], matrix: np.ndarray) -> Float[Array, "*rows q"]:
    """A matrix product in full precision on every device: unlike learned maps, a transform must be exact."""
    return jnp.matmul(a, jnp.asarray(matrix, a.dtype), precision=jax.lax.Precision.HIGHEST)
