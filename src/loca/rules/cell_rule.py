"""Quadrature on domains that consist of cells."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.domains import Domain
from loca.rules.rule import FixedRule


class CellRule(FixedRule):
    """Σ_k |C_k| h(c_k): the centroids of cells with the measures of the cells, so no weight lies outside of Y.

    Exact for linear functions and of order two for smooth ones; see `Mesh.partition` for meshes with many cells.

    **Arguments:**

    - `domain`: Y, such as a `Mesh`.
    - `count`: larger cells than |Y|/count are bisected, and many small ones are combined, so that there are `count` to
        2·`count` nodes. Good values: 256 to 1024.
    """

    domain: Domain
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __init__(self, domain: Domain, count: int):
        nodes, weights = domain.partition(count)
        self.domain = domain
        self.z, self.w = jnp.asarray(nodes, dtype=float), jnp.asarray(weights, dtype=float)
