"""The default rule for a domain."""

import jax

from loca.domains import Domain
from loca.rules.gauss_legendre import GaussLegendre
from loca.rules.monte_carlo import QuasiMonteCarlo
from loca.rules.rule import Rule
from loca.rules.sphere_product import SphereProduct, covers_all_longitudes
from loca.rules.trapezoid import Trapezoid

PER_DIMENSION = {1: 100, 2: 14, 3: 8}
"""Nodes per dimension: the paper's 100 and 14², and about as many in three dimensions as it uses at most (20²)."""

SOBOL_NODES = 1024
"""Nodes on a domain for which no product rule is known: more than those have, since the rule converges more slowly."""


def rule_on(domain: Domain) -> Rule:
    """The default rule for a domain of one to three dimensions, with a few hundred nodes.

    A product rule on boxes, tori and the sphere; a quasi-Monte Carlo rule with `SOBOL_NODES` nodes on other domains.
    """
    count = PER_DIMENSION.get(domain.dimension)
    if count is None:
        raise TypeError(
            f"there is no default rule for {domain} with {domain.dimension} dimensions; pass "
            f"`rule=QuasiMonteCarlo(domain, {SOBOL_NODES}, key=key)`"
        )
    if covers_all_longitudes(domain):
        return SphereProduct(domain, latitudes=10)
    if domain.is_flat and None not in domain.periods:
        return Trapezoid(domain, count)
    if domain.is_flat and not any(domain.periods):
        return GaussLegendre(domain, count)
    return QuasiMonteCarlo(domain, SOBOL_NODES, key=jax.random.key(0))
