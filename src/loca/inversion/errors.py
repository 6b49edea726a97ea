"""How far observations may be from predictions: noise, and the surrogate's own error at the observed locations."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.data import Records, Samples, Shared, as_numbers, shared_array
from loca.gaussian import GaussianOperator
from loca.inversion.prior import Prior, loaded
from loca.local import Corrected
from loca.models import Operator, Uncertain, interpolation_between, predict, predict_error_bars
from loca.symmetries import Symmetric
from loca.typing import Input, Key, Numbers
from loca.uncertainty import Calibrated, Ensemble

FEWEST, BLOCK, INPUTS = 10, 100, 64
"""Held-out functions at least, and at once; inputs from the prior, for an operator that knows its own error."""


class Observed(NamedTuple):
    """Checked observations, without locations at which nothing is observed; `noise` is its standard deviation."""

    y: Float[Array, "P d_y"]
    s: Float[np.ndarray, "P d_s"]  # NaN where nothing is observed
    noise: Float[np.ndarray, "P d_s"]
    error: Float[np.ndarray, "P d_s"] | None  # the standard deviation of the surrogate's error, if it is given
    seen: Bool[np.ndarray, "P d_s"]


def as_observed(
    operator: Operator, observations: tuple[Numbers, Numbers], noise: Numbers, surrogate_error: Numbers | None
) -> Observed:
    """Observations of an operator's outputs, checked."""
    y = as_locations(operator, observations[0])
    s = np.asarray(as_numbers(observations[1], "observed values", "(P, d_s)", "(P,)"), np.float64)
    channels = len(operator.outputs)
    if s.shape != (len(y), channels):
        names = ", ".join(variable.name for variable in operator.outputs)
        raise ValueError(
            f"observed values have shape {s.shape}, but there are {len(y)} locations and {channels} outputs ({names}); "
            f"pass values of shape {(len(y), channels)}, with NaN where an output was not measured"
        )
    if np.isinf(s).any():
        raise ValueError("observed values are infinite; pass NaN for what was not observed")
    seen = ~np.isnan(s)
    rows = seen.any(axis=1)
    if not rows.any():
        raise ValueError("nothing is observed: all values are NaN; pass at least one value")
    std, error = as_deviations(noise, "noise", seen)[rows], None
    if surrogate_error is not None:
        error = as_deviations(surrogate_error, "surrogate_error", seen, zero=True)[rows]
    return Observed(y[jnp.asarray(rows)], s[rows], std, error, seen[rows])


def as_locations(operator: Operator, y: Numbers) -> Float[Array, "P d_y"]:
    """Locations for an operator; a warning if they are outside of its domain."""
    y = as_numbers(y, "y", "(P, d_y)", "(P,)")
    operator._warn_outside(y)
    return y


def as_deviations(
    given: Numbers, what: str, seen: Bool[np.ndarray, "P d_s"], *, zero: bool = False
) -> Float[np.ndarray, "P d_s"]:
    """Standard deviations: one for all, for each channel, or for each observation, of which those that are seen count.

    Messages call them `what`; they are positive, or may be zero if `zero`.
    """
    P, channels = seen.shape
    values = np.asarray(shared_array(given), np.float64)
    if channels == 1 and values.shape == (P,):
        values = values[:, None]
    if values.shape not in ((), (channels,), seen.shape):
        raise ValueError(
            f"expected {what} as a number, {channels} numbers for the outputs, or an array of shape {seen.shape} for "
            f"the observations, got shape {values.shape}"
        )
    values = np.broadcast_to(values, seen.shape)
    wrong = seen & ~(np.isfinite(values) & ((values > 0.0) | (zero & (values == 0.0))))
    if wrong.any():
        kind = "standard deviations" if zero else "positive standard deviations"
        raise ValueError(f"expected {what} as {kind} in the units of the outputs, got {values[wrong][0]:.3g}")
    return values


def error_covariance(
    operator: Operator,
    y: Float[Array, "P d_y"],
    prior: Prior,
    held: Samples | Records | None,
    std: Float[np.ndarray, "P d_s"] | None,
    key: Key,
) -> Float[np.ndarray, "n n"]:
    """The covariance of the surrogate's error, from given standard deviations or from `surrogate_covariance`."""
    if std is None:
        return surrogate_covariance(operator, y, prior, held, key=key)
    if held is not None:
        raise ValueError("the error of the surrogate was given twice; pass either held or surrogate_error")
    return np.diag(std.ravel() ** 2)


def surrogate_covariance(
    operator: Operator,
    y: Float[Array, "P d_y"],
    prior: Prior,
    held: Samples | Records | None = None,
    *,
    key: Key,
) -> Float[np.ndarray, "n n"]:
    """The covariance of s(y) − F(u)(y) over functions, for all channels at each location in turn (n = P·d_s).

    It is about zero, so a bias counts. Its correlations are shrunk towards zero as Schäfer and Strimmer (2005) do,
    since a few functions determine them badly; its variances are not.

    With held-out functions u is replaced by what the prior can represent of it, so that variation of the inputs outside
    of the prior counts as an error. Between the labels of held-out functions errors are interpolated linearly. Without
    them the operator must know its error, as Gaussian operators and ensembles do: their covariance is then the mean
    over inputs from the prior.

    **Arguments:**

    - `operator`, `y`, `prior`: of the inversion.
    - `held`: functions that were not used to train or choose the operator, labeled at the same locations.
    - `key`: for inputs from the prior.
    """
    if held is None:
        return own_covariance(operator, y, prior, key)
    errors = held_out_errors(operator, y, prior, held)
    return shrunk_covariance(errors.reshape(len(errors), -1))


def held_out_errors(
    operator: Operator, y: Float[Array, "P d_y"], prior: Prior, held: Samples | Records
) -> Float[np.ndarray, "N P d_s"]:
    """s(y) − F(u)(y) of held-out functions, interpolated between their labels."""
    held = loaded(operator, held)
    if len(held) < FEWEST or not held.y.count:
        found = f"{len(held)} functions" if held.y.count else "functions without outputs"
        raise ValueError(f"the surrogate's error needs at least {FEWEST} held-out functions with outputs, got {found}")
    if not isinstance(held.y, Shared):
        raise ValueError(
            "the surrogate's error needs held-out functions that are all labeled at the same locations, but every "
            "function has its own; pass others, or a standard deviation as surrogate_error"
        )
    labels = np.asarray(held.y.points, np.float64)
    try:
        between = interpolation_between(labels, np.asarray(y, np.float64), held.domain.periods)
    except ValueError as problem:
        raise ValueError(
            f"the held-out functions are not labeled around all given locations ({problem}); pass others, or a "
            "standard deviation as surrogate_error"
        ) from None
    index, weight = np.asarray(between.index), np.asarray(between.weight, np.float64)
    used, place = np.unique(index, return_inverse=True)
    if not operator.is_pointwise:
        used, place = np.arange(held.y.count), index
    errors = []
    for start in range(0, len(held), BLOCK):
        block = held.take(jnp.arange(start, min(start + BLOCK, len(held))))
        predicted = predict(operator, projected(prior, block.u), Shared(held.y.points[used]))
        error = np.asarray(block.s)[:, used] - np.asarray(predicted)
        errors.append(np.einsum("cp,ncps->nps", weight, error[:, place.reshape(index.shape)]))
    return np.concatenate(errors)


@eqx.filter_jit
def projected(prior: Prior, u: Input) -> Input:
    """What the prior can represent of many functions."""
    return jax.lax.map(prior.project, u, batch_size=BLOCK)


def own_covariance(operator: Operator, y: Float[Array, "P d_y"], prior: Prior, key: Key) -> Float[np.ndarray, "n n"]:
    """The covariance of the error as the operator knows it, on average over inputs from the prior."""
    inner = correlated(operator)
    if inner is None or not isinstance(operator, Uncertain):
        raise ValueError(
            f"the error of the surrogate belongs to the noise, but {type(operator).__name__} does not know how its "
            "errors at different locations are correlated; pass held-out functions, held=..., or surrogate_error=0.0 "
            "to take its predictions as exact"
        )
    u = jax.vmap(prior)(jax.random.normal(key, (INPUTS, prior.size)))
    channels = len(operator.outputs)
    bars = predict_error_bars(operator, u, Shared(y), jnp.zeros(channels))
    if isinstance(inner, GaussianOperator):
        shared = np.asarray(inner.location_covariance(jax.vmap(inner.encode)(u), y), np.float64)
        found = np.kron(shared, np.eye(channels))
    else:
        each = [np.asarray(predict(inner.member(i), u, Shared(y))) for i in range(inner.size)]
        found = shrunk_covariance((np.stack(each) - np.asarray(bars.mean)).reshape(inner.size * INPUTS, -1))
    variances, size = np.mean(np.asarray(bars.std, np.float64) ** 2, axis=0).ravel(), np.sqrt(np.diag(found))
    factor = np.sqrt(variances) / np.where(size > 0.0, size, 1.0)  # the same correlations with these variances
    return found * np.outer(factor, factor) + np.diag(np.where(size > 0.0, 0.0, variances))


def correlated(operator: Operator) -> GaussianOperator | Ensemble | None:
    """The operator, or what it calibrates, averages or corrects, if that knows the correlations of its errors.

    The average of a Gaussian operator over a group has the same errors: it was solved for with all images.
    """
    inner = operator
    while isinstance(inner, Calibrated | Symmetric | Corrected):
        inner = inner.operator
    return inner if isinstance(inner, GaussianOperator | Ensemble) else None


def shrunk_covariance(rows: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "n n"]:
    """The mean of r rᵀ with correlations shrunk by the factor that minimizes their expected squared error."""
    count = len(rows)
    rows = np.asarray(rows, np.float64)
    std = np.sqrt(np.mean(rows**2, axis=0))
    z = rows / np.where(std > 0.0, std, 1.0)
    correlation = z.T @ z / count
    variance = ((z**2).T @ z**2 / count - correlation**2) / count
    apart = ~np.eye(len(std), dtype=bool)
    squares = float(np.sum(correlation[apart] ** 2))
    factor = 1.0 - min(1.0, float(np.sum(variance[apart])) / squares) if squares > 0.0 else 0.0
    return np.outer(std, std) * np.where(apart, factor * correlation, 1.0)
