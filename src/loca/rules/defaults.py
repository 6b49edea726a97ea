"""The default rule for a domain."""

import jax

from loca.domains import Domain
from loca.rules.monte_carlo import QuasiMonteCarlo
from loca.rules.product_rules import GaussLegendre, SphereProduct, Trapezoid, covers_all_longitudes
from loca.rules.rule import CellRule, Rule

PER_DIMENSION = {1: 100, 2: 14, 3: 8}
"""Nodes per dimension: the paper's 100 and 14², and about as many in three dimensions as it uses at most (20²)."""

CELL_NODES = 512
"""The least number of nodes on a mesh; there are at most twice as many."""

SOBOL_NODES = 1024
"""Nodes on a domain for which no product rule is known: more than those have, since the rule converges more slowly."""


def rule_on(domain: Domain) -> Rule:
    """The default rule for a domain, with a few hundred nodes, or about a thousand.

    The cells of a mesh; a product rule on the sphere and on boxes and tori of one to three dimensions; a quasi-Monte
    Carlo rule with `SOBOL_NODES` nodes on other domains, and in more dimensions.
    """
    count = PER_DIMENSION.get(domain.dimension)
    if domain.is_meshed:
        return CellRule(domain, CELL_NODES)
    if covers_all_longitudes(domain):
        return SphereProduct(domain, latitudes=10)
    if count is not None and domain.is_flat and None not in domain.periods:
        return Trapezoid(domain, count)
    if count is not None and domain.is_flat and not any(domain.periods):
        return GaussLegendre(domain, count)
    return QuasiMonteCarlo(domain, SOBOL_NODES, key=jax.random.key(0))
