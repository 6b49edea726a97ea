"""`invert`: from observations of an output function to the input function."""

from __future__ import annotations

import dataclasses
import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Records, Samples
from loca.inversion.errors import Observations, Observed, as_observed, surrogate_covariance
from loca.inversion.posterior import Diagnostics, Posterior
from loca.inversion.prior import InversionWarning, Prior, as_prior, loaded, warn_outside_prior
from loca.inversion.target import (
    OPTIMIZERS,
    STEPS,
    Mode,
    Target,
    check_libraries,
    decode_many,
    find_mode,
    laplace_root,
    normal_numbers,
    predict_many,
    run_metropolis,
    run_nuts,
    whitening_of,
)
from loca.models import Operator
from loca.typing import Key, MultiInput, Numbers, values_of, with_values

METHODS = ("mcmc", "nuts", "laplace")
"""How the posterior is found."""

SHARE = 0.5
"""The smallest effective share of the Laplace approximation's proposals; NUTS takes over below."""

UNLIKELY = 1e-4
"""Observations with a smaller p-value are reported."""

LEAST_DRAWS = 4
"""Draws of a chain: its halves are compared, each of which needs two."""

FEW, LARGE = 100, 1.05
"""Effective sample sizes below, and potential scale reductions above, are reported."""


def invert(
    operator: Operator,
    observations: Observations | tuple[Any, ...],
    *,
    noise: Numbers,
    prior: Prior | Samples | Records | Numbers | MultiInput,
    held: Samples | Records | None = None,
    surrogate_error: Numbers | None = None,
    method: str = "mcmc",
    optimizer: str = "levenberg-marquardt",
    draws: int = 1000,
    chains: int = 1,
    warmup: int = 500,
    key: Key | None = None,
) -> Posterior:
    """The inputs u for which F(u) explains observations s: their distribution given s(yᵢ) = F(u)(yᵢ) + error + noise.

    u has normal coordinates ξ, see `Prior`. The noise is independent and normal, the error of the surrogate F is normal
    with the covariance that it has on held-out functions. First the most probable ξ is found, from the mean of the
    prior. `"laplace"` then takes the posterior of the linearized operator, which is exact for linear operators.
    `"mcmc"` takes it as the proposal of a Markov chain that draws from the posterior itself, or runs NUTS if that
    approximation is too far from the posterior. `"nuts"` always runs NUTS, which takes much longer.

    **Arguments:**

    - `operator`: any.
    - `observations`: `(y, s)`, or `Observations`: values at any locations of the domain, with NaN for what was not
      observed.
    - `noise`: the standard deviation of the noise in the units of the outputs: one number, one for each output, or one
      for each observation.
    - `prior`: input functions, such as the training data, of which u could have been one; or a `Prior`.
    - `held`: functions that were not used for training, for the error of the surrogate. It may be left out if the
      operator knows its error at several locations together, as Gaussian operators and ensembles do.
    - `surrogate_error`: the standard deviation of the surrogate's error, instead of `held`; like `noise`. 0.0 takes its
      predictions as exact, which makes the posterior too narrow.
    - `method`: `"mcmc"`, `"nuts"` or `"laplace"`; `diagnostics.method` is what was used.
    - `optimizer`: `"levenberg-marquardt"` or `"bfgs"`.
    - `draws`: the number of draws of each chain.
    - `chains`: several chains from different starts show whether they agree (`diagnostics.r_hat`).
    - `warmup`: steps of each chain before the first draw. NUTS adapts its step size and mass matrix in them.
    - `key`: for draws; `jax.random.key(0)` by default.
    """
    check_libraries()
    check_choices(method, optimizer, held, surrogate_error)
    check_counts(draws, chains, warmup)
    start = time.perf_counter()
    for_error, for_draws = jax.random.split(jax.random.key(0) if key is None else key)
    prior = as_prior(operator, prior)
    observed = as_observed(operator, observations)
    noise_std = observed.deviations(noise, "noise")
    error = error_covariance(operator, observed, prior, held, surrogate_error, for_error)
    outside = 0.0 if held is None else warn_outside_prior(prior, loaded(operator, held).u)

    target = target_of(operator, observed, prior, np.diag(noise_std.ravel() ** 2) + error)
    mode = find_mode(target, optimizer)
    if not bool(mode.converged):
        raise RuntimeError(
            f"{optimizer} did not find the most probable input within {STEPS} steps; check the noise and the units of "
            f"the observations, or try optimizer={OPTIMIZERS[OPTIMIZERS[0] == optimizer]!r}"
        )
    p_value = fit_p_value(mode)
    drawn = draw(target, mode, method, for_draws, chains, warmup, draws)
    diagnostics = Diagnostics(
        drawn.method, optimizer, p_value, outside, int(mode.steps), drawn.effective, drawn.r_hat, drawn.divergences, 0.0
    )
    warn_untrustworthy(diagnostics)
    return summarized(operator, target, observed, noise_std, error, mode, drawn.xi, draws * chains, diagnostics, start)


def check_choices(method: str, optimizer: str, held: Samples | Records | None, surrogate_error: Numbers | None) -> None:
    """Refuse unknown names, and two sources of the surrogate's error."""
    for name, given, known in (("method", method, METHODS), ("optimizer", optimizer, OPTIMIZERS)):
        if given not in known:
            raise ValueError(f"{name} must be {' or '.join(map(repr, known))}, got {given!r}")
    if held is not None and surrogate_error is not None:
        raise ValueError("the error of the surrogate was given twice; pass either held or surrogate_error")


def check_counts(draws: int, chains: int, warmup: int) -> None:
    """Refuse numbers of draws, chains and steps that are too small."""
    for name, given, least in (("draws", draws, LEAST_DRAWS), ("chains", chains, 1), ("warmup", warmup, 0)):
        if given < least:
            raise ValueError(f"{name} must be at least {least}, got {given}")


def error_covariance(
    operator: Operator,
    observed: Observed,
    prior: Prior,
    held: Samples | Records | None,
    surrogate_error: Numbers | None,
    key: Key,
) -> Float[np.ndarray, "n n"]:
    """The covariance of the surrogate's error at the locations of the observations, for all channels."""
    if surrogate_error is None:
        return surrogate_covariance(operator, observed.y, prior, held, key=key)
    std = observed.deviations(surrogate_error, "surrogate_error", positive=False)
    return np.diag(std.ravel() ** 2)


def target_of(operator: Operator, observed: Observed, prior: Prior, covariance: Float[np.ndarray, "n n"]) -> Target:
    """The posterior of ξ."""
    seen, dtype = np.flatnonzero(observed.seen), prior.mean.dtype
    whitening = whitening_of(covariance[np.ix_(seen, seen)])
    s = jnp.asarray(observed.s.ravel()[seen], dtype)
    return Target(prior, operator.at(observed.y), jnp.asarray(seen), s, jnp.asarray(whitening, dtype))


def fit_p_value(mode: Mode) -> float:
    """The probability of a worse fit: ‖ξ‖² + ‖W(s − F)‖² at the mode has a χ² distribution if F is linear."""
    from scipy.stats import chi2

    return float(chi2.sf(float(np.sum(mode.xi**2) + np.sum(mode.misfit**2)), len(mode.misfit)))


class Drawn(NamedTuple):
    """Draws of standardized coordinates, by which method, and how far to trust them."""

    xi: Float[np.ndarray, "S K"]
    method: str
    effective: float
    r_hat: float
    divergences: int


def draw(target: Target, mode: Mode, method: str, key: Key, chains: int, warmup: int, draws: int) -> Drawn:
    """Draws from the posterior, by one of `METHODS`."""
    root, size = laplace_root(mode.jacobian), len(mode.xi)
    if method == "laplace":
        xi = np.asarray(mode.xi, np.float64) + normal_numbers(key, max(draws, 4 * size), size) @ root.T
        return Drawn(xi, method, float(len(xi)), 1.0, 0)
    given = (target, mode.xi, jnp.asarray(root, mode.xi.dtype), key, chains, warmup, draws)
    proposed = run_metropolis(*given) if method == "mcmc" else None
    if proposed is not None and proposed.share >= SHARE:
        xi, divergences = proposed.xi, 0
    else:
        method, found = "nuts", run_nuts(*given)
        xi, divergences = found.xi, int(np.sum(found.is_divergent))
    effective, r_hat = chain_diagnostics(xi)
    return Drawn(np.asarray(xi).reshape(-1, size), method, float(effective), float(r_hat), divergences)


@jax.jit
def chain_diagnostics(xi: Float[Array, "C S K"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The smallest effective sample size and the largest potential scale reduction, over halves of chains."""
    from blackjax.diagnostics import effective_sample_size, potential_scale_reduction

    chains, draws, size = xi.shape
    halves = xi[:, : draws - draws % 2].reshape(2 * chains, draws // 2, size)
    return jnp.min(effective_sample_size(halves)), jnp.max(potential_scale_reduction(halves))


def warn_untrustworthy(found: Diagnostics) -> None:
    """Warn of observations that do not fit, and of chains that did not converge."""
    messages = []
    if found.p_value < UNLIKELY:
        messages.append(
            f"the observations do not fit (p = {found.p_value:.1g}): the noise, the surrogate's error or the prior is "
            "too narrow, or units differ"
        )
    if found.divergences:
        messages.append(
            f"NUTS diverged at {found.divergences} draws; draws may miss part of the posterior, compare several chains"
        )
    if found.method != "laplace" and not (found.effective >= FEW and found.r_hat <= LARGE):  # or NaN
        messages.append(
            f"the draws have an effective sample size of {found.effective:.0f} and r-hat {found.r_hat:.2f}; take more "
            "draws or a longer warmup"
        )
    for message in messages:
        warnings.warn(message, InversionWarning, stacklevel=3)


def summarized(
    operator: Operator,
    target: Target,
    observed: Observed,
    noise_std: Float[np.ndarray, "P d_s"],
    error: Float[np.ndarray, "n n"],
    mode: Mode,
    xi: Float[np.ndarray, "S K"],
    count: int,
    diagnostics: Diagnostics,
    start: float,
) -> Posterior:
    """The posterior from standardized coordinates; moments are over all of them, and `count` draws are kept."""
    prior, dtype = target.prior, mode.xi.dtype
    every, one = decode_many(prior, jnp.asarray(xi, dtype)), prior(mode.xi)
    outputs = np.asarray(predict_many(target, jnp.asarray(xi, dtype)), np.float64)

    def at_observations(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, "P d_s"]:
        full = np.full(np.shape(observed.s), np.nan)
        full[observed.seen] = values
        return full

    scales, mean = np.asarray(prior.scales, np.float64), np.asarray(prior.mean, np.float64)
    return Posterior(
        operator=operator,
        prior=prior,
        mode=mean + scales * np.asarray(mode.xi, np.float64),
        mode_input=one,
        coordinates=mean + scales * xi[:count],
        draws=jax.tree.map(lambda array: array[:count], every),
        mean=with_values(one, [jnp.mean(values, axis=0) for values in values_of(every)]),
        std=with_values(one, [jnp.std(values, axis=0) for values in values_of(every)]),
        y=observed.y,
        observed=observed.s,
        predicted=at_observations(outputs.mean(axis=0)),
        predicted_std=at_observations(outputs.std(axis=0)),
        noise_std=noise_std,
        surrogate_std=np.sqrt(np.diag(error)).reshape(np.shape(observed.s)),
        diagnostics=dataclasses.replace(diagnostics, seconds=time.perf_counter() - start),
    )
