"""The trapezoid rule on tori."""

from collections.abc import Sequence

from jaxtyping import Array, Float

from loca.domains import Torus
from loca.rules.products import counts_per_dimension, product, uniform
from loca.rules.rule import FixedRule


class Trapezoid(FixedRule):
    """Equal weights on a uniform periodic grid: exact for waves below the grid's frequency, and so of spectral order.

    **Arguments:**

    - `domain`: the torus Y.
    - `counts`: nodes per dimension, one number for all or one each.
    """

    domain: Torus
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Torus, counts: int | Sequence[int]):
        self.domain = domain
        self.z, self.w = product(domain, [uniform(c) for c in counts_per_dimension(counts, domain.dimension)])
