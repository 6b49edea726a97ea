"""`design`: where to observe an output function next."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.data import Records, Samples
from loca.inversion.errors import as_deviations, as_locations, surrogate_covariance
from loca.inversion.prior import Prior, as_prior
from loca.models import Operator
from loca.typing import Key, MultiInput, Numbers, PyTree


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
    draws: int = 32,
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
    - `draws`: the number of inputs from the prior. More average better; a linear operator needs one.
    - `key`: for draws; `jax.random.key(0)` by default.
    """
    prior = as_prior(operator, prior)
    y = as_locations(operator, candidates)
    if not 0 < count <= len(y):
        raise ValueError(f"cannot choose {count} of {len(y)} candidates; pass a count from 1 to {len(y)}")
    first = 0
    if existing is not None:
        before = as_locations(operator, existing)
        y, first = jnp.concatenate([before, y]), len(before)
    for_error, for_draws = jax.random.split(jax.random.key(0) if key is None else key)
    channels = len(operator.outputs)
    std = as_deviations(noise, "noise", np.ones((len(y), channels), bool))
    covariance = np.diag(std.ravel() ** 2)
    if surrogate_error is None:
        covariance += surrogate_covariance(operator, y, prior, held, key=for_error)
    else:
        every = np.ones((len(y), channels), bool)
        covariance += np.diag(as_deviations(surrogate_error, "surrogate_error", every, positive=False).ravel() ** 2)
    xi = jax.random.normal(for_draws, (draws, prior.size))
    sensitivity = np.asarray(jacobians(prior, operator.at(y), xi), np.float64)
    rows, gains = greedy(sensitivity.reshape(draws, len(y), channels, -1), covariance, list(range(first)), count)
    return Design(np.asarray(y)[rows], rows - first, gains)


@eqx.filter_jit
def jacobians(prior: Prior, fixed: PyTree, xi: Float[Array, "B K"]) -> Float[Array, "B C d_s K"]:
    """∂F(u(ξ))(y)/∂ξ at several ξ."""
    return jax.lax.map(jax.jacfwd(lambda one: fixed(prior(one))), xi)


def greedy(
    sensitivity: Float[np.ndarray, "B C d_s K"],
    covariance: Float[np.ndarray, "n n"],
    given: list[int],
    count: int,
) -> tuple[Int[np.ndarray, " count"], Float[np.ndarray, " count"]]:
    """The locations with the largest gains after those that are given, and their gains.

    After each choice, the noise of the others that it explains is removed from them, together with what it explains of
    their sensitivity; so noise stays independent between choices, and the posterior of ξ is updated as by a Kalman
    filter.

    **Arguments:**

    - `sensitivity`: G for B inputs.
    - `covariance`: Σ of all locations and channels.
    - `given`: locations that come first.
    - `count`: the number of others.
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
        gain = 0.5 * np.mean(log_det(own + explained) - log_det(own), axis=0)
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


def log_det(matrices: Float[np.ndarray, "*B d d"]) -> Float[np.ndarray, "*B"]:
    """log det of positive definite matrices."""
    return np.linalg.slogdet(matrices)[1]
