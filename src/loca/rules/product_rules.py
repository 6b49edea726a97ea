"""Product rules: Gauss–Legendre on boxes, the trapezoid rule on tori, and both on the sphere."""

from collections.abc import Sequence

from jaxtyping import Array, Float

from loca.domains import Domain
from loca.rules.rule import FixedRule, counts_per_dimension, gauss, product, uniform


class GaussLegendre(FixedRule):
    """Tensor product of Gauss–Legendre rules: exact for polynomials of degree 2·counts − 1 in each coordinate of a box.

    **Arguments:**

    - `domain`: Y, in general a box; one to three dimensions are sensible, since the number of nodes Q is a product.
    - `counts`: nodes per dimension, one number for all or one each. Good values: 100 in 1-D, 14 to 20 in 2-D.
    """

    domain: Domain
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Domain, counts: int | Sequence[int]):
        self.domain = domain
        self.z, self.w = product(domain, [gauss(c) for c in counts_per_dimension(counts, domain.dimension)])


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
