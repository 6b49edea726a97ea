"""Sobol indices: which components of the input explain the variance of the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Shared, as_input, as_numbers
from loca.domains import warn_outside
from loca.models import Operator, Predictor
from loca.typing import Input, Key, Numbers, PyTree

BLOCK = 256
"""Functions at a time."""


@runtime_checkable
class Distribution(Protocol):
    """A distribution of a number, such as those of `scipy.stats`."""

    def ppf(self, q: Float[np.ndarray, " n"], /) -> Float[np.ndarray, " n"]:
        """Quantiles."""
        ...


class SobolIndices(NamedTuple):
    """Shares of the variance of F(u)(y) at every query, for each component of the input.

    **Arguments:**

    - `first`: S_k = Var E[F | ξ_k]/Var F, what component k explains alone.
    - `total`: T_k = E Var[F | all but ξ_k]/Var F, what would remain unexplained without it, interactions included.
    - `variance`: Var F, in the units of the data. Where it is 0, so are the indices.
    """

    first: Float[np.ndarray, "k P d_s"]
    total: Float[np.ndarray, "k P d_s"]
    variance: Float[np.ndarray, "P d_s"]

    def overall(
        self, weights: Float[Array | np.ndarray, " P"] | None = None
    ) -> tuple[Float[np.ndarray, "k d_s"], Float[np.ndarray, "k d_s"]]:
        """First-order and total indices of the output function: shares of the variance integrated over y.

        **Arguments:**

        - `weights`: of the queries, such as `loca.domains.area_weights(domain, y)`; equal unless given.
        """
        w = np.ones(len(self.variance)) if weights is None else np.asarray(weights, np.float64)
        share = w[:, None] * self.variance
        total = share.sum(axis=0)
        share = share / np.where(total > 0.0, total, 1.0)
        return np.sum(share * self.first, axis=1), np.sum(share * self.total, axis=1)


def sobol(
    operator: Operator,
    inputs: Callable[[Float[Array, " k"]], Input],
    y: Numbers,
    *,
    distributions: Sequence[Distribution] | None = None,
    count: int = 1024,
    key: Key,
) -> SobolIndices:
    """Sobol indices of F(u(ξ))(y) for independent components ξ of the input.

    S by the estimator of Saltelli et al. (2010), T by that of Jansen (1999), with a scrambled Sobol sequence. Their
    errors fall somewhat faster than 1/√count; compare two keys. Estimates of small indices may be negative. Indices are
    those of the operator: where it is wrong, so are they.

    **Arguments:**

    - `operator`: any.
    - `inputs`: ξ ↦ u, a `loca.inversion.Prior`, such as that of principal components of the training inputs, or a
      function of your own that JAX can map, from k numbers to an input.
    - `y`: queries (P, d_y), or (P,) for one coordinate.
    - `distributions`: of each component, such as `scipy.stats.uniform(0, 1)`; standard normal unless given, for as many
      components as `inputs.size`.
    - `count`: n, a power of two. The operator is evaluated for n (k + 2) functions.
    - `key`: of the random numbers.
    """
    from scipy.stats import norm, qmc  # slow to import

    if distributions is None:
        if not isinstance(size := getattr(inputs, "size", None), int):
            raise ValueError("expected a distribution for each component; pass distributions=[scipy.stats.norm(), …]")
        distributions = [norm()] * size
    if count < 2 or count & (count - 1):
        below = 2 ** max(1, count.bit_length() - 1)
        raise ValueError(f"a Sobol sequence needs a power of two, got count={count}; use {below} or {2 * below}")
    k = len(distributions)
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    uniform = qmc.Sobol(2 * k, scramble=True, rng=generator).random(count)
    xi = np.stack([distributions[i % k].ppf(uniform[:, i]) for i in range(2 * k)], axis=1)
    a, b = xi[:, :k], xi[:, k:]
    queries = Shared(as_numbers(y, "y", "(P, d_y)", "(P,)"))
    if operator.signature is not None:
        warn_outside(operator.signature.domain, queries.y, operator.signature.query_coordinate_names)
    predictor = Predictor(operator, queries, min(count, BLOCK))

    def outputs(xi: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n P d_s"]:
        blocks = [xi[i : i + BLOCK] for i in range(0, count, BLOCK)]
        found = [predictor(as_input(parametrized(inputs, jnp.asarray(x, float)), many=True), queries) for x in blocks]
        return np.concatenate(found, dtype=np.float64)

    f_a, f_b = outputs(a), outputs(b)
    mean = 0.5 * (f_a + f_b).mean(axis=0)
    f_a, f_b = f_a - mean, f_b - mean
    variance = 0.5 * np.mean(f_a**2 + f_b**2, axis=0)
    first, total = [], []
    for i in range(k):
        changed = a.copy()
        changed[:, i] = b[:, i]
        f_ab = outputs(changed) - mean
        first.append(np.mean(f_b * (f_ab - f_a), axis=0))
        total.append(0.5 * np.mean((f_ab - f_a) ** 2, axis=0))
    scale = np.where(variance > 0.0, variance, 1.0)
    return SobolIndices(np.stack(first) / scale, np.stack(total) / scale, variance)


@eqx.filter_jit
def parametrized(inputs: Callable[[Float[Array, " k"]], Input], xi: Float[Array, "n k"]) -> PyTree:
    """u(ξ) for many ξ."""
    return jax.vmap(inputs)(xi)
