"""The product rule on the sphere."""

from jaxtyping import Array, Float

from loca.domains import Domain
from loca.rules.rule import FixedRule, gauss, product, uniform


class SphereProduct(FixedRule):
    """Gauss–Legendre in sin(latitude) × trapezoid in longitude.

    Exact for spherical harmonics of degree below min(2·latitudes, longitudes); no node lies on a pole.

    **Arguments:**

    - `domain`: Y, the sphere or another domain of latitude and longitude that closes into a circle in longitude.
    - `latitudes`, `longitudes`: nodes along each; with twice as many longitudes as latitudes both limits are equal.
    """

    domain: Domain
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Domain, latitudes: int, longitudes: int | None = None):
        if not covers_all_longitudes(domain):
            raise ValueError(f"`SphereProduct` needs a domain such as `Sphere`, got {domain}; use `QuasiMonteCarlo`")
        self.domain = domain
        self.z, self.w = product(domain, [gauss(latitudes), uniform(longitudes or 2 * latitudes)])


def covers_all_longitudes(domain: Domain) -> bool:
    """Whether locations are (latitude, longitude) with periodic longitude."""
    return domain.is_geographic and domain.periods[1] is not None
