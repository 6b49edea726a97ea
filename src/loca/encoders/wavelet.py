"""The discrete wavelet transform."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.encoders.daubechies import daubechies
from loca.encoders.encoder import Encoder
from loca.encoders.grid import check_positive, fields
from loca.typing import Input


class Wavelet(Encoder):
    """⟨u, φ_{J,i}⟩ and ⟨u, ψ_{j,i}⟩, j = J … 1, with Daubechies' orthonormal periodic wavelets.

    Coarse to fine, and at one level of an image the details along y, along x and along both. All coefficients together
    are a rotation of u; the coarse ones are a small code for smooth functions.

    Build it with `Wavelet.create`.
    """

    low: Float[Array, " taps"]  # h
    high: Float[Array, " taps"]  # g, its mirror
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
        - `levels`: J, how often the grid is halved.
        - `moments`: p, from 1 (Haar) to 10: polynomials of degree below p have no details. Good values: 2 to 4.
        - `keep`: how many of the coarsest levels of details are part of the code; all unless given.
        - `channels`: d_u, each transformed by itself.
        """
        shape = tuple(shape)
        keep = levels if keep is None else keep
        check_positive(levels=levels, channels=channels)
        if len(shape) not in (1, 2) or any(n % 2**levels for n in shape):
            raise ValueError(
                f"levels={levels} halves a grid of one or two dimensions {levels} time(s), so each must be a multiple "
                f"of {2**levels}, got {shape}; take fewer levels"
            )
        if not 1 <= moments <= 10:
            raise ValueError(f"`moments` must be from 1 to 10, got {moments}; longer filters lose digits and locality")
        if not 0 <= keep <= levels:
            raise ValueError(f"`keep` must be from 0 to levels={levels}, got {keep}")
        h = daubechies(moments)
        g = h[::-1].copy()
        g[1::2] *= -1
        return cls(jnp.asarray(h, dtype=float), jnp.asarray(g, dtype=float), shape, levels, keep, channels)

    @property
    def size(self) -> int:
        return self.channels * math.prod(self.shape) // 2 ** ((self.levels - self.keep) * len(self.shape))

    def transform(self, u: Float[Array, "..."]) -> tuple[Float[Array, "..."], ...]:
        """The coefficients of one field or of many: the average, then the details of each level that is kept."""
        details = []
        for level in range(self.levels):
            u, *fine = self._split(u)
            if level >= self.levels - self.keep:
                details[:0] = fine
        return u, *details

    def _split(self, u: Float[Array, "..."]) -> list[Float[Array, "..."]]:
        parts = [u]
        for axis in range(-len(self.shape), 0):
            parts = [_filter(part, f, axis) for part in parts for f in (self.low, self.high)]
        return parts

    def __call__(self, u: Input) -> Float[Array, " d"]:
        parts = self.transform(fields(u, self.shape, self.channels, "Wavelet"))
        return jnp.concatenate([part.reshape(self.channels, -1) for part in parts], axis=1).reshape(-1)


def _filter(u: Float[Array, "..."], f: Float[Array, " taps"], axis: int) -> Float[Array, "..."]:
    """Σ_k f_k u(2i + k), indices modulo the length of the axis."""
    u = jnp.moveaxis(u, axis, -1)
    halves = u[..., 0::2], u[..., 1::2]
    terms = [f[k] * jnp.roll(halves[k % 2], -(k // 2), axis=-1) for k in range(len(f))]
    return jnp.moveaxis(sum(terms[1:], start=terms[0]), -1, axis)
