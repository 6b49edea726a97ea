"""Encoders made of encoders: one for each of several inputs, and standardized codes."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder
from loca.typing import Input, MultiInput


class Joined(Encoder):
    """𝒟(u) = (𝒟₁(u₁), 𝒟₂(u₂), …, c): each field of a `MultiInput` has an encoder of its own, and codes are joined.

    The scalars c are as they are: a model has standardized them already.

    **Arguments:**

    - `encoders`: one for each field, in the order of the fields.
    - `scalars`: the number of scalars, 0 if there are none.
    """

    encoders: tuple[Encoder, ...]
    scalars: int = eqx.field(static=True)

    def __init__(self, encoders: Sequence[Encoder], scalars: int = 0):
        self.encoders, self.scalars = tuple(encoders), scalars

    @property
    def size(self) -> int:
        return sum(each.size for each in self.encoders) + self.scalars

    def __call__(self, u: Input) -> Float[Array, " d"]:
        if not isinstance(u, MultiInput) or len(u.fields) != len(self.encoders):
            given = f"{len(u.fields)} fields" if isinstance(u, MultiInput) else type(u).__name__
            raise ValueError(f"Joined encodes a MultiInput with {len(self.encoders)} fields, got {given}")
        shape = (0,) if u.scalars is None else u.scalars.shape
        if shape != (self.scalars,):
            raise ValueError(
                f"Joined was built for {self.scalars} scalars per function, got scalars of shape {shape}; pass "
                "`MultiInput(fields, scalars)`, and map over functions with `jax.vmap`"
            )
        codes = [encoder(field) for encoder, field in zip(self.encoders, u.fields, strict=True)]
        return jnp.concatenate(codes if u.scalars is None else [*codes, u.scalars])


FUNCTIONS = 1000
"""Number of functions whose codes determine shift and scale, unless there are fewer."""

FLOOR = 1e-3
"""The smallest deviation of a code relative to the largest: smaller ones are rounding errors, or noise of the fit."""


class Standardized(Encoder):
    """(𝒟(u) − a)/b, where a and b are the means and the standard deviations of the codes of training functions.

    The coefficients of a smooth function fall by orders of magnitude with the frequency. Standardized, all of them
    count.

    Build it with `Standardized.fit`.
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
