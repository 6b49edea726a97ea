"""The rule made for a domain."""

from loca.domains import Box, Domain, Sphere, Torus
from loca.rules.gauss_legendre import GaussLegendre
from loca.rules.rule import Rule
from loca.rules.sphere_product import SphereProduct
from loca.rules.trapezoid import Trapezoid

PER_DIMENSION = {1: 100, 2: 14, 3: 8}
"""Nodes per dimension: the paper's 100 and 14², and about as many in three dimensions as it uses at most (20²)."""


def rule_on(domain: Domain) -> Rule:
    """The product rule made for a domain, with a few hundred nodes."""
    match domain:
        case Sphere():
            return SphereProduct(domain, latitudes=10)
        case Box() if domain.dimension in PER_DIMENSION:
            return GaussLegendre(domain, PER_DIMENSION[domain.dimension])
        case Torus() if domain.dimension in PER_DIMENSION:
            return Trapezoid(domain, PER_DIMENSION[domain.dimension])
    raise TypeError(f"no product rule is made for {domain}; pass `rule=QuasiMonteCarlo(domain, 1024, key=key)`")
