"""Monte Carlo and quasi-Monte Carlo integration."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.domains import Domain
from loca.rules.rule import FixedRule, Rule
from loca.typing import Key


class MonteCarlo(FixedRule):
    """Equal weights |Y|/Q on Q uniform random nodes, drawn once and kept; the error falls as Q^(−1/2).

    **Arguments:**

    - `domain`: Y, any domain.
    - `count`: Q.
    - `key`: randomness of the nodes.
    """

    domain: Domain
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Domain, count: int, *, key: Key):
        self.domain = domain
        self.z = domain.sample(key, count)
        self.w = jnp.full(count, domain.volume / count)


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


class OwnQueries(Rule):
    """The paper's Monte Carlo option: the queries of a function are its nodes, with equal weights |Y|/P.

    The prediction at one location then depends on the other queries. Kept for comparison; prefer `MonteCarlo`.

    **Arguments:**

    - `domain`: Y, any domain.
    """

    domain: Domain
    follows_queries = True

    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "P d_y"], Float[Array, " P"]]:
        return y, jnp.full(y.shape[0], self.domain.volume, dtype=y.dtype) / y.shape[0]
