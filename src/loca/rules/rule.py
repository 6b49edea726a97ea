"""What every quadrature rule is, tensor products of one-dimensional rules, and the rule on cells."""

import abc
import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.domains import Domain
from loca.parameters import Fixed


class Rule(Fixed):
    """∫_Y h(y) dy ≈ Σⱼ wⱼ h(zⱼ) on the domain of the rule.

    Nodes are constructed on the unit cube and mapped to Y when the rule is created, so none can lie outside Y.
    """

    domain: eqx.AbstractVar[Domain]

    follows_queries: ClassVar[bool] = False
    """Whether the nodes are the queries themselves, so that a prediction depends on the other queries."""

    @abc.abstractmethod
    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "Q d_y"], Float[Array, " Q"]]:
        """Nodes z and weights w for predictions at the queries y."""


class FixedRule(Rule):
    """A rule whose nodes do not depend on the queries."""

    z: eqx.AbstractVar[Float[Array, "Q d_y"]]
    w: eqx.AbstractVar[Float[Array, " Q"]]

    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "Q d_y"], Float[Array, " Q"]]:
        return self.z, self.w

    def integrate(self, values: Float[Array, "Q *d"]) -> Float[Array, "*d"]:
        """Σⱼ wⱼ hⱼ for values of h at the nodes."""
        return (self.w @ values.reshape(len(self.w), -1)).reshape(values.shape[1:])


OneD = tuple[np.ndarray, np.ndarray]  # nodes in [0, 1], weights that sum to 1


def gauss(count: int) -> OneD:
    """Gauss–Legendre on [0, 1]: exact for polynomials of degree 2·count − 1."""
    t, w = np.polynomial.legendre.leggauss(count)
    return 0.5 * (t + 1.0), 0.5 * w


def uniform(count: int) -> OneD:
    """The trapezoid rule for periodic functions on [0, 1)."""
    return np.arange(count) / count, np.full(count, 1.0 / count)


def product(domain: Domain, factors: Sequence[OneD]) -> tuple[Float[Array, "Q d_y"], Float[Array, " Q"]]:
    """The tensor product of one-dimensional rules, mapped to a domain; the first coordinate varies slowest."""
    nodes, weights = zip(*factors, strict=True)
    t = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, len(factors))
    w = np.stack(np.meshgrid(*weights, indexing="ij"), axis=-1).reshape(-1, len(factors)).prod(axis=1)
    return domain.from_unit(jnp.asarray(t, dtype=float)), jnp.asarray(domain.volume * w, dtype=float)


def counts_per_dimension(counts: int | Sequence[int], dimension: int) -> tuple[int, ...]:
    """The number of nodes along each dimension, from one number for all or a sequence."""
    each = (counts,) * dimension if isinstance(counts, int) else tuple(counts)
    if len(each) != dimension or min(each) < 1:
        raise ValueError(
            f"expected one positive number of nodes, or {dimension} of them for a {dimension}-dimensional domain, "
            f"got {counts} ({math.prod(each)} nodes in total)"
        )
    return each


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
