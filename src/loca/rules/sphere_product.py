"""The product rule on the sphere."""

from jaxtyping import Array, Float

from loca.domains import Sphere
from loca.rules.products import gauss, product, uniform
from loca.rules.rule import FixedRule


class SphereProduct(FixedRule):
    """Gauss–Legendre in sin(latitude) × trapezoid in longitude.

    Exact for spherical harmonics of degree below min(2·latitudes, longitudes); no node sits on a pole.

    **Arguments:**

    - `domain`: the sphere Y.
    - `latitudes`, `longitudes`: nodes along each; twice as many longitudes as latitudes make both limits equal.
    """

    domain: Sphere
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Sphere, latitudes: int, longitudes: int | None = None):
        self.domain = domain
        self.z, self.w = product(domain, [gauss(latitudes), uniform(longitudes or 2 * latitudes)])
