"""The log-density of the posterior in standardized coordinates, its mode, and draws from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.inversion.prior import Prior
from loca.typing import Key, PyTree

TOLERANCE = 1e-5
"""Of the mode, relative to the standard deviation of the prior."""

STEPS = 256
"""Of an optimizer, at most."""

OPTIMIZERS = ("levenberg-marquardt", "bfgs")
"""How the mode is found."""

HEAVY, DEGREES = 0.1, 5
"""The share of proposals with heavy tails, and the degrees of freedom of their t distribution."""

PROPOSALS = 4
"""Proposals for each draw that is kept."""


class Target(eqx.Module):
    """−½ ‖ξ‖² − ½ ‖W(s − F(u(ξ))(y))‖², the log-density of the posterior up to a constant; WᵀW = (covariance)⁻¹.

    **Arguments:**

    - `prior`: u(ξ), with independent standard normal ξ.
    - `fixed`: the operator at the observed locations.
    - `seen`: which of its values, flattened, are observed.
    - `s`: the observed values.
    - `whitening`: W.
    """

    prior: Prior
    fixed: PyTree
    seen: Int[Array, " n"]
    s: Float[Array, " n"]
    whitening: Float[Array, "n n"]

    def predict(self, xi: Float[Array, " K"]) -> Float[Array, " n"]:
        """F(u(ξ))(y) at what is observed."""
        return self.fixed(self.prior(xi)).ravel()[self.seen]

    def misfit(self, xi: Float[Array, " K"]) -> Float[Array, " n"]:
        """W(s − F(u(ξ))(y)): independent standard normal numbers at the true ξ."""
        return self.whitening @ (self.s - self.predict(xi))

    def __call__(self, xi: Float[Array, " K"]) -> Float[Array, ""]:
        return -0.5 * (jnp.sum(xi**2) + jnp.sum(self.misfit(xi) ** 2))


def whitening_of(covariance: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """W with W covariance Wᵀ = 1, in double precision."""
    from scipy.linalg import solve_triangular

    return solve_triangular(np.linalg.cholesky(covariance), np.eye(len(covariance)), lower=True)


class Mode(NamedTuple):
    """The mode, the Jacobian of the misfit there, the number of steps, and whether the optimizer converged."""

    xi: Float[Array, " K"]
    misfit: Float[Array, " n"]
    jacobian: Float[Array, "n K"]
    steps: Int[Array, ""]
    converged: Array


@eqx.filter_jit
def find_mode(target: Target, optimizer: str) -> Mode:
    """The most probable ξ, from ξ = 0, with a library for least squares."""
    import optimistix

    solver = {
        "levenberg-marquardt": optimistix.LevenbergMarquardt(rtol=TOLERANCE, atol=TOLERANCE),
        "bfgs": optimistix.BFGS(rtol=TOLERANCE, atol=TOLERANCE),
    }[optimizer]
    start = jnp.zeros_like(target.prior.mean)
    found = optimistix.least_squares(
        lambda xi, target: (xi, target.misfit(xi)), solver, start, target, max_steps=STEPS, throw=False
    )
    xi = found.value
    converged = found.result == optimistix.RESULTS.successful
    return Mode(xi, target.misfit(xi), jax.jacfwd(target.misfit)(xi), found.stats["num_steps"], converged)


def laplace_root(jacobian: Float[Array, "n K"]) -> Float[np.ndarray, "K K"]:
    """R with R Rᵀ = (1 + JᵀJ)⁻¹, the covariance of ξ if the misfit were linear; in double precision."""
    _, sizes, rows = np.linalg.svd(np.asarray(jacobian, np.float64))
    sizes = np.concatenate([sizes, np.zeros(len(rows) - len(sizes))]) if len(sizes) < len(rows) else sizes
    return rows.T / np.sqrt(1.0 + sizes**2)


def normal_numbers(key: Key, count: int, size: int) -> Float[np.ndarray, "S K"]:
    """Standard normal numbers whose mean is exactly 0 and whose covariance is exactly 1; count > size."""
    eta = np.asarray(jax.random.normal(key, (count, size)), np.float64)
    eta -= eta.mean(axis=0)
    return np.linalg.solve(np.linalg.cholesky(eta.T @ eta / count), eta.T).T


class Proposals(NamedTuple):
    """Proposals η and log(posterior/proposal density) of each, up to a constant."""

    eta: Float[Array, "C n K"]
    log_ratio: Float[Array, "C n"]


def propose(
    target: Target, mode: Float[Array, " K"], root: Float[Array, "K K"], key: Key, chains: int, count: int
) -> Proposals:
    """Independent proposals ξ = mode + R η with η from a mixture of a standard normal and a t distribution.

    The prior and the misfit bound the posterior by a normal density, and that of t has heavier tails. So the ratio is
    bounded, and Metropolis's rule converges to the posterior from every start.
    """
    size = len(mode)
    for_normal, for_kind = jax.random.split(key)
    normal = jax.random.normal(for_normal, (chains, count, size + DEGREES), mode.dtype)
    eta, rest = normal[..., :size], normal[..., size:]
    is_heavy = jax.random.uniform(for_kind, (chains, count, 1)) < HEAVY
    eta = eta * jnp.where(is_heavy, jax.lax.rsqrt(jnp.mean(rest**2, axis=-1, keepdims=True)), 1.0)
    square = jnp.sum(eta**2, axis=-1)
    gammas = jax.scipy.special.gammaln(0.5 * (DEGREES + size)) - jax.scipy.special.gammaln(0.5 * DEGREES)
    log_t = gammas - 0.5 * size * np.log(0.5 * DEGREES) - 0.5 * (DEGREES + size) * jnp.log1p(square / DEGREES)
    log_density = jnp.logaddexp(np.log1p(-HEAVY) - 0.5 * square, np.log(HEAVY) + log_t)
    log_target = jax.lax.map(lambda each: target(mode + root @ each), eta.reshape(-1, size), batch_size=64)
    log_ratio = log_target.reshape(chains, count) - log_density
    return Proposals(eta, jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio))


class Accepted(NamedTuple):
    """Draws of several chains, and the effective share of their proposals.

    The share is (Σ w)²/(n Σ w²), with the ratios w of posterior and proposal density. It is small if the posterior has
    parts that are rarely proposed; the share of accepted proposals does not show that.
    """

    xi: Float[Array, "C S K"]
    share: Float[Array, ""]


@eqx.filter_jit
def run_metropolis(
    target: Target, mode: Float[Array, " K"], root: Float[Array, "K K"], key: Key, chains: int, warmup: int, draws: int
) -> Accepted:
    """Draws from proposals of the Laplace approximation by Metropolis's rule."""
    for_proposals, for_rule = jax.random.split(key)
    count = warmup + PROPOSALS * draws
    proposals = propose(target, mode, root, for_proposals, chains, count)
    log_uniform = jnp.log(jax.random.uniform(for_rule, (count, chains)))
    one_of_each = jnp.arange(chains)

    def step(current: Int[Array, " C"], given: tuple[Array, Array]) -> tuple[Array, Array]:
        number, log_uniform = given
        log_ratio = proposals.log_ratio[:, number] - proposals.log_ratio[one_of_each, current]
        current = jnp.where(log_uniform < log_ratio, number, current)
        return current, current

    start = jnp.zeros(chains, int)
    _, kept = jax.lax.scan(step, start, (jnp.arange(count), log_uniform))
    kept = kept[warmup + PROPOSALS - 1 :: PROPOSALS].T
    eta = jnp.take_along_axis(proposals.eta, kept[..., None], axis=1)
    weights = jnp.exp(proposals.log_ratio - jnp.max(proposals.log_ratio))
    return Accepted(mode + eta @ root.T, jnp.mean(weights) ** 2 / jnp.mean(weights**2))


class Chains(NamedTuple):
    """Draws of several chains, which of them diverged, and the number of gradients of each."""

    xi: Float[Array, "C S K"]
    is_divergent: Array
    gradients: Int[Array, "C S"]


@eqx.filter_jit
def run_nuts(
    target: Target, mode: Float[Array, " K"], root: Float[Array, "K K"], key: Key, chains: int, warmup: int, draws: int
) -> Chains:
    """NUTS in the coordinates η with ξ = mode + R η, in which the Laplace approximation is a standard normal.

    Every chain starts at a draw from that approximation, and adapts its step size and its mass matrix.
    """
    import blackjax

    def density(eta: Float[Array, " K"]) -> Float[Array, ""]:
        return target(mode + root @ eta)

    def chain(key: Key) -> Chains:
        start, warming, sampling = jax.random.split(key, 3)
        adaptation: Any = blackjax.window_adaptation(blackjax.nuts, density, adaptation_info_fn=lambda *_: None)
        (state, parameters), _ = adaptation.run(warming, jax.random.normal(start, mode.shape), num_steps=warmup)
        kernel: Any = blackjax.nuts(density, **parameters)

        def step(state: Any, key: Key) -> tuple[Any, tuple[Array, ...]]:
            state, info = kernel.step(key, state)
            return state, (state.position, info.is_divergent, info.num_integration_steps)

        _, (eta, is_divergent, gradients) = jax.lax.scan(step, state, jax.random.split(sampling, draws))
        return Chains(mode + eta @ root.T, is_divergent, gradients)

    return jax.vmap(chain)(jax.random.split(key, chains))


@eqx.filter_jit
def decode_many(prior: Prior, xi: Float[Array, "S K"]) -> PyTree:
    """u of many coordinates."""
    return jax.lax.map(prior, xi, batch_size=64)


@eqx.filter_jit
def predict_many(target: Target, xi: Float[Array, "S K"]) -> Float[Array, "S n"]:
    """F(u)(y) of many coordinates."""
    return jax.lax.map(target.predict, xi, batch_size=64)


def check_libraries() -> None:
    """Raise if a library of the extra is missing."""
    try:
        import blackjax  # noqa: F401
        import optimistix  # noqa: F401
    except ImportError as error:
        raise ImportError("inversion needs additional libraries: pip install loca-jax[inversion]") from error
