"""Codes of mean 0 and deviation 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder
from loca.typing import Input

FUNCTIONS = 1000
"""Number of functions whose codes determine shift and scale, unless there are fewer."""

FLOOR = 1e-3
"""The smallest deviation of a code relative to the largest: smaller ones are rounding errors, or noise of the fit."""


class Standardized(Encoder):
    """(𝒟(u) − a)/b, where a and b are the means and the standard deviations of the codes of training functions.

    The coefficients of a smooth function fall by orders of magnitude with the frequency. Standardized, all of them
    count. Build it with `Standardized.fit`.
    """

    encoder: Encoder
    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def fit(cls, encoder: Encoder, u: Input) -> Standardized:
        """Fit shift and scale; a code that hardly varies is not magnified.

        **Arguments:**

        - `encoder`: 𝒟.
        - `u`: training functions as the model passes them to the encoder, `normalization.standardize_input(data.u)`.
        """
        count = len(jax.tree.leaves(u)[0])
        rows = jnp.linspace(0, count - 1, min(count, FUNCTIONS)).round().astype(int)
        codes = jax.lax.map(encoder, jax.tree.map(lambda array: array[rows], u), batch_size=100)
        deviation = jnp.std(codes, axis=0)
        least = jnp.maximum(FLOOR * jnp.max(deviation), jnp.finfo(codes.dtype).tiny)
        scale = jnp.where(jnp.max(deviation) > 0.0, jnp.maximum(deviation, least), 1.0)
        return cls(encoder, jnp.mean(codes, axis=0), scale)

    @property
    def size(self) -> int:
        return self.encoder.size

    def __call__(self, u: Input) -> Float[Array, " d"]:
        return (self.encoder(u) - self.shift) / self.scale
