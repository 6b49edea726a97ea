"""Quasi-Monte Carlo integration."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.domains import Domain
from loca.rules.rule import FixedRule
from loca.typing import Key


class QuasiMonteCarlo(FixedRule):
    """Equal weights |Y|/Q on a scrambled Sobol sequence; for smooth integrands the error falls faster than 1/Q.

    **Arguments:**

    - `domain`: Y, any domain.
    - `count`: Q, a power of two, for which the sequence is balanced.
    - `key`: randomness of the scrambling.
    """

    domain: Domain
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Domain, count: int, *, key: Key):
        from scipy.stats import qmc  # slow to import, and only needed here

        if count < 1 or count & (count - 1):
            below = 1 << max(0, count.bit_length() - 1)
            raise ValueError(f"a Sobol sequence needs a power of two, got count={count}; use {below} or {2 * below}")
        seed = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        t = qmc.Sobol(domain.dimension, scramble=True, rng=seed).random(count)
        self.domain = domain
        self.z = domain.from_unit(jnp.asarray(t, dtype=float))
        self.w = jnp.full(count, domain.volume / count)
