"""Tensor products of one-dimensional rules on the unit cube."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.domains import Domain

OneD = tuple[np.ndarray, np.ndarray]  # nodes in [0, 1], weights that sum to 1


def gauss(count: int) -> OneD:
    """Gauss–Legendre on [0, 1]: exact for polynomials of degree 2·count − 1."""
    t, w = np.polynomial.legendre.leggauss(count)
    return 0.5 * (t + 1.0), 0.5 * w


def uniform(count: int) -> OneD:
    """The trapezoid rule of periodic functions on [0, 1)."""
    return np.arange(count) / count, np.full(count, 1.0 / count)


def product(domain: Domain, factors: Sequence[OneD]) -> tuple[Float[Array, "Q d_y"], Float[Array, " Q"]]:
    """The product of one-dimensional rules, carried to a domain: the first coordinate varies slowest."""
    nodes, weights = zip(*factors, strict=True)
    t = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, len(factors))
    w = np.stack(np.meshgrid(*weights, indexing="ij"), axis=-1).reshape(-1, len(factors)).prod(axis=1)
    return domain.from_unit(jnp.asarray(t, dtype=float)), jnp.asarray(domain.volume * w, dtype=float)


def counts_per_dimension(counts: int | Sequence[int], dimension: int) -> tuple[int, ...]:
    """One number of nodes for each dimension, from one for all or from a list."""
    each = (counts,) * dimension if isinstance(counts, int) else tuple(counts)
    if len(each) != dimension or min(each) < 1:
        raise ValueError(
            f"expected one positive number of nodes, or {dimension} of them for a {dimension}-dimensional domain, "
            f"got {counts} ({math.prod(each)} nodes in all)"
        )
    return each
