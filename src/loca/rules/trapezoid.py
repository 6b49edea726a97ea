"""The trapezoid rule on tori."""

from collections.abc import Sequence

from jaxtyping import Array, Float

from loca.domains import Domain
from loca.rules.rule import FixedRule, counts_per_dimension, product, uniform


class Trapezoid(FixedRule):
    """Equal weights on a uniform periodic grid: exact for waves below the grid's frequency, hence of spectral order.

    **Arguments:**

    - `domain`: Y, a torus or another domain with only periodic coordinates.
    - `counts`: nodes per dimension, one number for all or one each.
    """

    domain: Domain
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Domain, counts: int | Sequence[int]):
        if None in domain.periods:
            raise ValueError(
                f"`Trapezoid` needs a domain with only periodic coordinates, got {domain}; use `GaussLegendre`"
            )
        self.domain = domain
        self.z, self.w = product(domain, [uniform(c) for c in counts_per_dimension(counts, domain.dimension)])
