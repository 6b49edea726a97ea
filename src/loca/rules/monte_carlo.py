"""Monte Carlo integration."""

import jax.numpy as jnp
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


class OwnQueries(Rule):
    """The paper's Monte Carlo option: the queries of a function are its nodes, with equal weights |Y|/P.

    The answer at one location then depends on the others it is asked with. Kept for comparison; prefer `MonteCarlo`.

    **Arguments:**

    - `domain`: Y, any domain.
    """

    domain: Domain
    follows_queries = True

    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "P d_y"], Float[Array, " P"]]:
        return y, jnp.full(len(y), self.domain.volume / len(y), dtype=y.dtype)
