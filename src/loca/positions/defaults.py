"""The encoding made for a domain."""

from loca.domains import Box, Domain, Sphere, Torus
from loca.positions.harmonic import Harmonic
from loca.positions.periodic import Periodic
from loca.positions.position import Position
from loca.positions.spherical import Spherical


def position_on(domain: Domain) -> Position:
    """The encoding made for a domain, at its default size."""
    match domain:
        case Box():
            return Harmonic(domain)
        case Torus():
            return Periodic(domain)
        case Sphere():
            return Spherical(domain)
    raise TypeError(f"no position encoding is known for {domain}; pass one of your own that subclasses `Position`")
