"""∫_Y: nodes and weights on the output domain, and the default rule of a domain."""

import abc
import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from loca.domains import Domain, grid
from loca.parameters import Fixed
from loca.typing import Key

__all__ = [
    "CellRule",
    "FixedRule",
    "GaussLegendre",
    "MonteCarlo",
    "OwnQueries",
    "QuasiMonteCarlo",
    "Rule",
    "SphereProduct",
    "Trapezoid",
]


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
    """A rule whose nodes do not depend on the queries.

    **Arguments:**

    - `domain`: Y.
    - `z`, `w`: the nodes and their weights.
    """

    domain: Domain
    z: Float[Array, "Q d_y"]
    w: Float[Array, " Q"]

    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "Q d_y"], Float[Array, " Q"]]:
        return self.z, self.w


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
    t, w = grid(*nodes), grid(*weights).prod(axis=1)
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

    def __init__(self, domain: Domain, count: int):
        super().__init__(domain, *(jnp.asarray(each, dtype=float) for each in domain.partition(count)))


class GaussLegendre(FixedRule):
    """Tensor product of Gauss–Legendre rules: exact for polynomials of degree 2·counts − 1 in each coordinate of a box.

    **Arguments:**

    - `domain`: Y, in general a box; one to three dimensions are sensible, since the number of nodes Q is a product.
    - `counts`: nodes per dimension, one number for all or one each. Good values: 100 in 1-D, 14 to 20 in 2-D.
    """

    def __init__(self, domain: Domain, counts: int | Sequence[int]):
        super().__init__(domain, *product(domain, [gauss(c) for c in counts_per_dimension(counts, domain.dimension)]))


class Trapezoid(FixedRule):
    """Equal weights on a uniform periodic grid: exact for waves below the grid's frequency, hence of spectral order.

    **Arguments:**

    - `domain`: Y, a torus or another domain with only periodic coordinates.
    - `counts`: nodes per dimension, one number for all or one each.
    """

    def __init__(self, domain: Domain, counts: int | Sequence[int]):
        if None in domain.periods:
            raise ValueError(
                f"`Trapezoid` needs a domain with only periodic coordinates, got {domain}; use `GaussLegendre`"
            )
        super().__init__(domain, *product(domain, [uniform(c) for c in counts_per_dimension(counts, domain.dimension)]))


class SphereProduct(FixedRule):
    """Gauss–Legendre in sin(latitude) × trapezoid in longitude.

    Exact for spherical harmonics of degree below min(2·latitudes, longitudes); no node lies on a pole.

    **Arguments:**

    - `domain`: Y, the sphere or another domain of latitude and longitude that closes into a circle in longitude.
    - `latitudes`, `longitudes`: nodes along each; with twice as many longitudes as latitudes both limits are equal.
    """

    def __init__(self, domain: Domain, latitudes: int, longitudes: int | None = None):
        if not covers_all_longitudes(domain):
            raise ValueError(f"`SphereProduct` needs a domain such as `Sphere`, got {domain}; use `QuasiMonteCarlo`")
        super().__init__(domain, *product(domain, [gauss(latitudes), uniform(longitudes or 2 * latitudes)]))


def covers_all_longitudes(domain: Domain) -> bool:
    """Whether locations are (latitude, longitude) with periodic longitude."""
    return domain.is_geographic and domain.periods[1] is not None


class MonteCarlo(FixedRule):
    """Equal weights |Y|/Q on Q uniform random nodes, drawn once and kept; the error falls as Q^(−1/2).

    **Arguments:**

    - `domain`: Y, any domain.
    - `count`: Q.
    - `key`: randomness of the nodes.
    """

    def __init__(self, domain: Domain, count: int, *, key: Key):
        super().__init__(domain, domain.sample(key, count), jnp.full(count, domain.volume / count))


class QuasiMonteCarlo(FixedRule):
    """Equal weights |Y|/Q on a scrambled Sobol sequence; for smooth integrands the error falls faster than 1/Q.

    **Arguments:**

    - `domain`: Y, any domain.
    - `count`: Q, a power of two, for which the sequence is balanced.
    - `key`: randomness of the scrambling.
    """

    def __init__(self, domain: Domain, count: int, *, key: Key):
        z = domain.from_unit(jnp.asarray(sobol_points(domain.dimension, count, key), dtype=float))
        super().__init__(domain, z, jnp.full(count, domain.volume / count))


def sobol_points(dimension: int, count: int, key: Key, least: int = 1) -> Float[np.ndarray, "count dimension"]:
    """The first points of a scrambled Sobol sequence, at least some; raises unless their number is a power of two."""
    if count < least or count & (count - 1):
        below = max(least, 1 << max(0, count.bit_length() - 1))
        raise ValueError(f"a Sobol sequence needs a power of two, got count={count}; use {below} or {2 * below}")
    seed = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    return scipy.stats.qmc.Sobol(dimension, scramble=True, rng=seed).random(count)


class OwnQueries(Rule):
    """The paper's Monte Carlo option: the queries of a function are its nodes, with equal weights |Y|/P.

    The prediction at one location then depends on the other queries. Kept for comparison; prefer `MonteCarlo`.

    **Arguments:**

    - `domain`: Y, any domain.
    """

    domain: Domain
    follows_queries = True

    def __call__(self, y: Float[Array, "P d_y"]) -> tuple[Float[Array, "P d_y"], Float[Array, " P"]]:
        return y, jnp.full(y.shape[0], self.domain.volume, dtype=y.dtype) / y.shape[0]


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
