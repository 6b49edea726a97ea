"""Gauss–Legendre quadrature on boxes."""

from collections.abc import Sequence

from jaxtyping import Array, Float

from loca.domains import Box
from loca.rules.products import counts_per_dimension, gauss, product
from loca.rules.rule import FixedRule


class GaussLegendre(FixedRule):
    """Tensor product of Gauss–Legendre rules: exact for polynomials of degree 2·counts − 1 in each coordinate.

    **Arguments:**

    - `domain`: the box Y; one to three dimensions are sensible, since the number of nodes Q is a product.
    - `counts`: nodes per dimension, one number for all or one each. Good values: 100 in 1-D, 14 to 20 in 2-D.
    """

    domain: Box
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Box, counts: int | Sequence[int]):
        self.domain = domain
        self.z, self.w = product(domain, [gauss(c) for c in counts_per_dimension(counts, domain.dimension)])
