"""Least-squares projection, for sensors at arbitrary locations."""

import functools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.domains import Box
from loca.encoders.encoder import Encoder, check_positive
from loca.typing import Input, Measurements, MultiInput

RIDGE = 1e-4  # relative to the Gram matrix of evenly spread sensors, the identity; far above its rounding in 32 bits
PASSES = 3


class Projection(Encoder):
    """c(u) = argmin_c 1/m Σᵢ (u(xᵢ) − Σ_k c_k b_k(xᵢ))² + λ‖c‖²,  b_k(x) = Π_d √2 cos(π k_d t_d),  k_d < K_d.

    t is x mapped to the unit cube, where b is orthonormal (without the √2 for k_d = 0). Each function may have its own
    sensors and its own number of them: two samplings of one function have the same code as far as they determine it.

    λ makes the problem solvable for any sensors, and its bias is removed by solving again for the residual: after three
    passes a direction in which the sensors capture the fraction σ² of what evenly spread ones would capture is damped
    by (λ/(λ + σ²))³, λ = 10⁻⁴. The normal equations suffice because the residual is computed from the data (J. Riley,
    MTAC 1955; Å. Björck, 1987).

    Build it with `Projection.create`.
    """

    domain: Box
    modes: tuple[int, ...] = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    @classmethod
    def create(cls, domain: Box, modes: int | Sequence[int], *, channels: int = 1) -> "Projection":
        """**Arguments:**

        - `domain`: the box of the input locations. Locations outside it are reflected into it.
        - `modes`: K, cosines per dimension, one number for all or one each. Good values: 32 in 1-D, 8 in 2-D, and at
            most half as many in total as a function has sensors.
        - `channels`: d_u, each projected separately.
        """
        modes = (modes,) * domain.dimension if isinstance(modes, int) else tuple(modes)
        check_positive(channels=channels, **{f"modes[{i}]": K for i, K in enumerate(modes)})
        if len(modes) != domain.dimension:
            raise ValueError(f"expected one number of modes, or {domain.dimension} for {domain}, got {modes}")
        return cls(domain, modes, channels)

    @property
    def size(self) -> int:
        return self.channels * math.prod(self.modes)

    def __call__(self, u: Input) -> Float[Array, " d"]:
        measured = self._measurements(u)
        # A masked location may hold anything, even NaN: replace it before the cosines.
        x = jnp.where(measured.mask[:, None], measured.x, jnp.asarray(self.domain.low))
        values = jnp.where(measured.mask[:, None], measured.u, 0.0)
        dot = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
        b = jnp.where(measured.mask[:, None], self.basis(x), 0.0)
        weighted = b.T / jnp.maximum(measured.mask.sum(), 1)
        gram = dot(weighted, b) + RIDGE * jnp.eye(b.shape[1], dtype=b.dtype)
        factor = jax.scipy.linalg.cho_factor(gram, lower=True)
        c = jnp.zeros((b.shape[1], values.shape[1]), dtype=values.dtype)
        for _ in range(PASSES):
            c = c + jax.scipy.linalg.cho_solve(factor, dot(weighted, values - dot(b, c)))
        return c.T.reshape(-1)

    def basis(self, x: Float[Array, "P d_x"]) -> Float[Array, "P K"]:
        """b(x): the basis functions at the given locations, k in row-major order."""
        t = self.domain.to_unit(x)
        factors = []
        for i, K in enumerate(self.modes):
            k = jnp.arange(K)
            factors.append(jnp.where(k == 0, 1.0, math.sqrt(2)) * jnp.cos(math.pi * k * t[:, i : i + 1]))
        return functools.reduce(lambda b, b_: (b[:, :, None] * b_[:, None, :]).reshape(x.shape[0], -1), factors)

    def _measurements(self, u: Input) -> Measurements:
        if not isinstance(u, Measurements):
            given = "several inputs" if isinstance(u, MultiInput) else f"values of shape {u.shape}"
            raise ValueError(f"Projection needs the locations of values, got {given}; pass Measurements")
        if u.u.ndim != 2 or u.u.shape[1] != self.channels:
            raise ValueError(
                f"Projection was built for {self.channels} channel(s), that is u of shape (m, {self.channels}), got "
                f"{u.u.shape}; put channels last, and map over functions with `jax.vmap`"
            )
        self.domain.check(u.x, "x")
        return u
