"""Which measurements and which simulations to make next."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.data import Records, Samples, Shared, as_input, as_numbers
from loca.domains import area_weights
from loca.gaussian import GaussianOperator
from loca.inversion.errors import as_deviations, as_locations, correlated, error_covariance
from loca.inversion.prior import Prior, as_prior, loaded
from loca.models import Operator, Uncertain, encode_functions
from loca.typing import Input, Key, MultiInput, Numbers, PyTree
from loca.uncertainty import Ensemble

DRAWS, QUERIES = 32, 256
"""Inputs from the prior over which information is averaged, and locations over which variance is, at most."""


@dataclasses.dataclass(frozen=True, eq=False)
class Design:
    """Where to observe, in the order of choice; prints as a table.

    **Arguments:**

    - `y`: the chosen locations.
    - `rows`: their numbers among the candidates.
    - `gains`: the expected information about the input that each adds to those before it, in nats.
    """

    y: Float[np.ndarray, "count d_y"]
    rows: Int[np.ndarray, " count"]
    gains: Float[np.ndarray, " count"]

    def __str__(self) -> str:
        lines = [f"{'location':<28} {'gain':>7} {'total':>7}  (expected information, nats)"]
        for y, gain, total in zip(self.y, self.gains, np.cumsum(self.gains), strict=True):
            lines.append(f"{', '.join(f'{value:.4g}' for value in y):<28} {gain:7.3f} {total:7.3f}")
        return "\n".join(lines)


def design(
    operator: Operator,
    candidates: Numbers,
    *,
    count: int,
    noise: Numbers,
    prior: Prior | Samples | Records | Numbers | MultiInput,
    existing: Numbers | None = None,
    held: Samples | Records | None = None,
    surrogate_error: Numbers | None = None,
    key: Key | None = None,
) -> Design:
    """Choose locations one after another, each with the largest expected information about the input u.

    The information of observations s is E[½ log det(1 + Σ⁻¹ G Gᵀ)], with the Jacobian G of F(u)(y) with respect to the
    standardized coordinates of the prior, and the covariance Σ of noise and surrogate error. The mean is over inputs
    from the prior. For linear operators this is the mutual information of u and s; for others it is that of the Laplace
    approximation. All outputs are observed at a location.

    **Arguments:**

    - `operator`, `prior`, `held`, `surrogate_error`: as in `loca.invert`.
    - `candidates`: locations (C, d_y), or (C,) for one coordinate. A thousand take seconds.
    - `count`: the number of locations to choose; none is chosen twice.
    - `noise`: the standard deviation of the noise: one number, or one for each output.
    - `existing`: locations that are observed anyway.
    - `key`: for draws; `jax.random.key(0)` by default.
    """
    prior = as_prior(operator, prior)
    y = as_locations(operator, candidates)
    if not 0 < count <= len(y):
        raise ValueError(f"cannot choose {count} of {len(y)} candidates; pass a count from 1 to {len(y)}")
    before = y[:0] if existing is None else as_locations(operator, existing)
    y, first = jnp.concatenate([before, y]), len(before)
    for_error, for_draws = jax.random.split(jax.random.key(0) if key is None else key)
    every = np.ones((len(y), len(operator.outputs)), bool)
    std = as_deviations(noise, "noise", every)
    error = None if surrogate_error is None else as_deviations(surrogate_error, "surrogate_error", every, zero=True)
    covariance = np.diag(std.ravel() ** 2) + error_covariance(operator, y, prior, held, error, for_error)
    xi = jax.random.normal(for_draws, (DRAWS, prior.size))
    sensitivity = np.asarray(jacobians(prior, operator.at(y), xi), np.float64)
    rows, gains = greedy_locations(sensitivity, covariance, list(range(first)), count)
    return Design(np.asarray(y)[rows], rows - first, gains)


@eqx.filter_jit
def jacobians(prior: Prior, fixed: PyTree, xi: Float[Array, "B K"]) -> Float[Array, "B C d_s K"]:
    """∂F(u(ξ))(y)/∂ξ at several ξ."""
    return jax.lax.map(jax.jacfwd(lambda one: fixed(prior(one))), xi)


def greedy_locations(
    sensitivity: Float[np.ndarray, "B C d_s K"],
    covariance: Float[np.ndarray, "n n"],
    given: list[int],
    count: int,
) -> tuple[Int[np.ndarray, " count"], Float[np.ndarray, " count"]]:
    """The locations with the largest gains after those that are given, and their gains, from G for B inputs and Σ.

    After each choice, the noise of the others that it explains is removed from them, together with what it explains of
    their sensitivity; so noise stays independent between choices, and the posterior of ξ is updated as by a Kalman
    filter.
    """
    inputs, C, channels, size = sensitivity.shape
    g = sensitivity.copy()
    noise = covariance.reshape(C, channels, C, channels).copy()
    posterior = np.broadcast_to(np.eye(size), (inputs, size, size)).copy()
    free = np.ones(C, bool)
    rows, gains = [], []
    for step in range(len(given) + count):
        own = noise[np.arange(C), :, np.arange(C)]  # Σ of each location alone
        explained = np.einsum("bcsk,bkl,bctl->bcst", g, posterior, g)
        gain = 0.5 * np.mean(np.linalg.slogdet(own + explained)[1] - np.linalg.slogdet(own)[1], axis=0)
        best = given[step] if step < len(given) else int(np.argmax(np.where(free, gain, -np.inf)))
        if step >= len(given):
            rows.append(best)
            gains.append(float(gain[best]))
        free[best] = False
        cross = np.einsum("bkl,bsl->bks", posterior, g[:, best])
        kalman = cross @ np.linalg.inv(own[best] + explained[:, best])
        posterior -= kalman @ np.swapaxes(cross, 1, 2)
        others = np.einsum("csd,de->cse", noise[:, :, best], np.linalg.inv(own[best]))
        g -= np.einsum("cse,bek->bcsk", others, g[:, best])
        noise -= np.einsum("cse,edt->csdt", others, noise[best])
        noise[best], noise[:, :, best] = 0.0, 0.0
        noise[best, :, best] = np.eye(channels)  # not used any more
        g[:, best] = 0.0
    return np.asarray(rows), np.asarray(gains)


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

    - `operator`: knows its error: a `GaussianOperator`, also with symmetries, an `Ensemble`, or one of them after
      `calibrate`.
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
    if correlated(operator) is None or not isinstance(operator, Uncertain):
        raise ValueError(
            f"{type(operator).__name__} does not know how its errors for different inputs are correlated; pass a "
            "Gaussian operator from `loca.solve` without the symmetry 'scale', or an `Ensemble`"
        )
    known = operator.signature
    if y is not None:
        points = as_numbers(y, "y", "(P, d_y)", "(P,)")
        weights = np.full(len(points), 1.0 / len(points))
    elif known is None or known.y is None:
        raise ValueError("the operator does not know the locations of its training data; pass y, where errors count")
    else:
        points = known.y[np.sort(np.random.default_rng(0).permutation(len(known.y))[:QUERIES])]
        weights = area_weights(known.domain, np.asarray(points))
    weights = jnp.asarray(weights / weights.sum(), jnp.float32)
    return greedy_inputs(np.asarray(covariance(operator, u, points, weights), np.float64), count)


def covariance(
    operator: Uncertain, u: Input, y: Float[Array, "P d_y"], weights: Float[Array, " P"]
) -> Float[np.ndarray, "N N"]:
    """C, in standardized units."""
    codes, queries, inner = encode_functions(operator, u), Shared(y), correlated(operator)
    variances = jnp.einsum("npc,p->n", operator.spread(codes, queries) ** 2, weights)
    if isinstance(inner, GaussianOperator):
        found = inner.input_covariance(encode_functions(inner, u), y, weights)
    else:
        assert isinstance(inner, Ensemble)
        codes = encode_functions(inner, u)
        each = jnp.stack([inner.member(i).respond(codes, queries) for i in range(inner.size)])
        rows = (each - jnp.mean(each, axis=0)) * jnp.sqrt(weights)[:, None]
        rows = jnp.moveaxis(rows, 1, 0).reshape(len(codes), -1)
        found = rows @ rows.T
    found, variances = np.asarray(found, np.float64), np.asarray(variances, np.float64)
    found = found * (variances.sum() / np.trace(found))  # calibration changes the scale
    return found + np.diag(np.maximum(variances - np.diag(found), 0.0))  # inputs that are known have round-off only


def greedy_inputs(covariance: Float[np.ndarray, "N N"], count: int) -> Acquisition:
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
