"""`acquire`: which inputs to simulate next."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.data import Samples, Shared, as_input, as_numbers
from loca.domains import area_weights
from loca.inversion.errors import inner_of, knows_correlations
from loca.inversion.prior import loaded
from loca.models import GaussianOperator, Operator, Uncertain, encode_functions
from loca.typing import Input, MultiInput, Numbers
from loca.uncertainty import Ensemble

QUERIES = 256
"""Locations over which the variance is integrated, at most, unless given."""


@dataclasses.dataclass(frozen=True, eq=False)
class Acquisition:
    """Which inputs to simulate, in the order of choice.

    **Arguments:**

    - `rows`: their numbers among the candidates.
    - `variances`: the variance that is left after each of them: the mean of σ² over candidates, locations and outputs,
      in standardized units.
    - `before`: the same before the first.
    """

    rows: Int[np.ndarray, " count"]
    variances: Float[np.ndarray, " count"]
    before: float

    def __str__(self) -> str:
        left = 100.0 * self.variances[-1] / self.before
        numbers = ", ".join(map(str, self.rows[:10])) + (", …" if len(self.rows) > 10 else "")
        return f"inputs {numbers}: {left:.0f} % of the variance is left after {len(self.rows)} simulations"


def acquire(
    operator: Operator,
    candidates: Samples | Numbers | MultiInput,
    *,
    count: int,
    y: Numbers | None = None,
) -> Acquisition:
    """Choose inputs one after another, each of which reduces the variance of all predictions most.

    C_ij = ∫ Cov(F(u_i)(y), F(u_j)(y)) dy is the posterior covariance of the operator between candidates, integrated
    over y and summed over outputs in standardized units. A simulation of u_i leaves C − C_{·i} C_{i·}/C_ii; the choice
    minimizes the trace of that, the variance that is left on average over the candidates. So candidates should be draws
    from the distribution of inputs on which the operator will be used.

    **Arguments:**

    - `operator`: knows its error: a `GaussianOperator`, an `Ensemble`, or one of them after `calibrate`.
    - `candidates`: input functions that could be simulated; `Samples` may have outputs, which are ignored.
    - `count`: the number of inputs to choose; none is chosen twice.
    - `y`: where errors count; by default some of the locations of the training data, weighted by area.
    """
    if isinstance(candidates, Samples):
        u = loaded(operator, candidates).u
    else:
        u = as_input(candidates, many=True)
    total = len(jax.tree.leaves(u)[0])
    if not 0 < count <= total:
        raise ValueError(f"cannot choose {count} of {total} candidates; pass a count from 1 to {total}")
    if not isinstance(operator, Uncertain) or not knows_correlations(operator):
        raise ValueError(
            f"{type(operator).__name__} does not know how its errors for different inputs are correlated; pass a "
            "Gaussian operator from `loca.solve`, or an `Ensemble`"
        )
    points = locations_of(operator) if y is None else as_numbers(y, "y", "(P, d_y)", "(P,)")
    weights = np.ones(len(points))
    if operator.domain is not None and y is None:
        weights = np.asarray(area_weights(operator.domain, np.asarray(points)))
    weights = jnp.asarray(weights / weights.sum(), jnp.float32)
    return greedy(np.asarray(covariance(operator, u, points, weights), np.float64), count)


def covariance(
    operator: Uncertain, u: Input, y: Float[Array, "P d_y"], weights: Float[Array, " P"]
) -> Float[np.ndarray, "N N"]:
    """C, in standardized units."""
    codes, queries, inner = encode_functions(operator, u), Shared(y), inner_of(operator)
    variances = jnp.einsum("npc,p->n", operator.spread(codes, queries) ** 2, weights)
    if isinstance(inner, GaussianOperator):
        found = inner.input_covariance(codes, y, weights)
    else:
        assert isinstance(inner, Ensemble)
        each = jnp.stack([inner.member(i).respond(codes, queries) for i in range(inner.size)])
        rows = (each - jnp.mean(each, axis=0)) * jnp.sqrt(weights)[:, None]
        rows = jnp.moveaxis(rows, 1, 0).reshape(len(codes), -1)
        found = rows @ rows.T
    found, variances = np.asarray(found, np.float64), np.asarray(variances, np.float64)
    found = found * (variances.sum() / np.trace(found))  # calibration changes the scale
    return found + np.diag(np.maximum(variances - np.diag(found), 0.0))  # inputs that are known have round-off only


def locations_of(operator: Operator) -> Float[Array, "P d_y"]:
    """Some of the locations of an operator's training data."""
    known = None if operator.signature is None else operator.signature.y
    if known is None:
        raise ValueError("the operator does not know the locations of its training data; pass y, where errors count")
    rows = np.random.default_rng(0).permutation(len(known))[:QUERIES]
    return known[np.sort(rows)]


def greedy(covariance: Float[np.ndarray, "N N"], count: int) -> Acquisition:
    """The candidates that leave the smallest trace, and the mean variance that is left after each."""
    left, before = covariance.copy(), float(np.trace(covariance)) / len(covariance)
    least = 1e-9 * before
    rows: list[int] = []
    variances = []
    for _ in range(count):
        diagonal = np.diag(left)
        gain = np.where(diagonal > least, np.sum(left**2, axis=0) / np.maximum(diagonal, least), 0.0)
        gain[rows] = -1.0
        best = int(np.argmax(gain))
        if diagonal[best] > least:
            left = left - np.outer(left[:, best], left[best]) / left[best, best]
        rows.append(best)
        variances.append(max(float(np.trace(left)), 0.0) / len(left))
    return Acquisition(np.asarray(rows), np.asarray(variances), before)
