"""The discrete wavelet transform."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder, check_positive, fields
from loca.typing import Input


class Wavelet(Encoder):
    """⟨u, φ_{J,i}⟩ and ⟨u, ψ_{j,i}⟩, j = J … 1, with Daubechies' orthonormal periodic wavelets.

    Ordered from coarse to fine, and at each level of an image the details along y, along x and along both. All
    coefficients together are a rotation of u; the coarse ones are a small code for smooth functions.

    Build it with `Wavelet.create`.
    """

    filters: Float[Array, "2 taps"]  # h, and its mirror image g with alternating signs
    shape: tuple[int, ...] = eqx.field(static=True)
    levels: int = eqx.field(static=True)
    keep: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, shape: Sequence[int], *, levels: int, moments: int = 4, keep: int | None = None, channels: int = 1
    ) -> "Wavelet":
        """**Arguments:**

        - `shape`: the grid of u, one or two dimensions, each a multiple of 2^levels; m is its product.
        - `levels`: J, the number of times the grid is halved.
        - `moments`: p, from 1 (Haar) to 10: polynomials of degree below p have no details. Good values: 2 to 4.
        - `keep`: the number of coarsest levels of details to include in the code; all unless given.
        - `channels`: d_u, each transformed separately.
        """
        shape = tuple(shape)
        keep = levels if keep is None else keep
        check_positive(levels=levels, channels=channels)
        if len(shape) not in (1, 2) or any(n % 2**levels for n in shape):
            raise ValueError(
                f"levels={levels} halves a grid of one or two dimensions {levels} time(s), so each must be a multiple "
                f"of {2**levels}, got {shape}; use fewer levels"
            )
        if not 1 <= moments <= 10:
            raise ValueError(
                f"`moments` must be from 1 to 10, got {moments}; longer filters lose precision and locality"
            )
        if not 0 <= keep <= levels:
            raise ValueError(f"`keep` must be from 0 to levels={levels}, got {keep}")
        h = daubechies(moments)
        g = (-1) ** np.arange(len(h)) * h[::-1]
        return cls(jnp.asarray(np.stack([h, g]), dtype=float), shape, levels, keep, channels)

    @property
    def size(self) -> int:
        return self.channels * math.prod(self.shape) // 2 ** ((self.levels - self.keep) * len(self.shape))

    def transform(self, u: Float[Array, "..."]) -> tuple[Float[Array, "..."], ...]:
        """The coefficients of one field or a batch: the average, then the details of each level kept."""
        details = []
        for level in range(self.levels):
            u, *fine = self._split(u)
            if level >= self.levels - self.keep:
                details[:0] = fine
        return u, *details

    def _split(self, u: Float[Array, "..."]) -> list[Float[Array, "..."]]:
        parts = [u]
        for axis in range(-len(self.shape), 0):
            parts = [half for part in parts for half in _halves(part, self.filters, axis)]
        return parts

    def __call__(self, u: Input) -> Float[Array, " d"]:
        parts = self.transform(fields(u, self.shape, self.channels, "Wavelet"))
        return jnp.concatenate([part.reshape(self.channels, -1) for part in parts], axis=1).reshape(-1)


def _halves(u: Float[Array, "..."], filters: Float[Array, "2 taps"], axis: int) -> Float[Array, "2 ..."]:
    """Σ_k f_k u(2i + k) for f = h, g, indices modulo the length of the axis."""
    u = jnp.moveaxis(u, axis, -1)
    n, taps = u.shape[-1], filters.shape[1]
    windows = u[..., (2 * np.arange(n // 2)[:, None] + np.arange(taps)) % n]
    halves = jnp.matmul(windows, filters.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.moveaxis(jnp.moveaxis(halves, -1, 0), -1, axis)


def daubechies(moments: int) -> Float[np.ndarray, " taps"]:
    """The orthonormal low-pass filter h of length 2p whose wavelet has p vanishing moments, ∑h = √2.

    h(z) = √2 ((1 + z)/2)ᵖ q(z), where |q|² = Σ_{k<p} C(p−1+k, k) yᵏ at y = (2 − z − 1/z)/4. Each root y corresponds to
    a pair z, 1/z; the one inside the unit circle gives the filter of minimal phase (I. Daubechies, CPAM 1988).
    """
    roots = np.roots([math.comb(moments - 1 + k, k) for k in reversed(range(moments))])
    middle = 1 - 2 * roots  # (z + 1/z)/2
    z = middle + np.sqrt(middle**2 - 1 + 0j)
    z = np.where(np.abs(z) < 1, z, 1 / z)
    h = np.real(np.poly(np.concatenate([-np.ones(moments), z])))
    return h * (math.sqrt(2) / h.sum())
