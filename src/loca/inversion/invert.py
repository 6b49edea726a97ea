"""`invert`: from observations of an output function to the input function, and its result."""

import dataclasses
import itertools
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from loca.data import Records, Samples, Variable, grid_axes
from loca.inversion.errors import Observed, as_observed, error_covariance
from loca.inversion.prior import InversionWarning, Prior, as_prior, loaded, warn_outside_prior
from loca.models import Operator, Signature
from loca.typing import Input, Key, MultiInput, Numbers, PyTree, values_of, with_values

if TYPE_CHECKING:
    import xarray

# ---- the result -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """How far to trust a posterior.

    The p-value of the observations is the probability of a worse fit, if noise, surrogate error and prior are as given.
    It is exact for linear operators. A very small value means that one of them is wrong.
    """

    method: str  # how it was found
    p_value: float
    steps: int  # of the search for the mode
    effective: float  # the smallest effective sample size of a coordinate; the number of draws for Laplace
    r_hat: float  # the largest potential scale reduction, over halves of chains; near 1 if they agree
    divergences: int  # draws at which NUTS diverged
    outside: float = 0.0  # the share of the variance of held-out inputs outside of the prior; 0 if unknown


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior:
    """Inputs that explain observations; prints as a summary.

    Inputs have the units and the form of the operator's inputs: values (m, d_u) at its sensors.

    **Arguments:**

    - `operator`, `prior`: those of the inversion.
    - `mode`: the most probable coordinates z, and `mode_input` their u.
    - `coordinates`: draws of z.
    - `draws`: draws of u.
    - `mean`, `std`: of u, over draws.
    - `y`: where outputs were observed.
    - `observed`: the observations; NaN where nothing was observed.
    - `predicted`, `predicted_std`: F(u)(y), its mean and its standard deviation over draws; NaN like `observed`.
    - `noise_std`, `surrogate_std`: standard deviations of the noise and of the surrogate's error.
    - `diagnostics`: how far to trust it.
    """

    operator: Operator
    prior: Prior
    mode: Float[np.ndarray, " K"]
    mode_input: Input
    coordinates: Float[np.ndarray, "S K"]
    draws: PyTree
    mean: Input
    std: Input
    y: Float[Array, "P d_y"]
    observed: Float[np.ndarray, "P d_s"]
    predicted: Float[np.ndarray, "P d_s"]
    predicted_std: Float[np.ndarray, "P d_s"]
    noise_std: Float[np.ndarray, "P d_s"]
    surrogate_std: Float[np.ndarray, "P d_s"]
    diagnostics: Diagnostics

    def __str__(self) -> str:
        found, seen = self.diagnostics, ~np.isnan(self.observed)
        reduced = 1.0 - self.coordinates.var(axis=0) / np.asarray(self.prior.scales, np.float64) ** 2
        determined = np.clip(reduced, 0.0, None).sum()
        inputs = ", ".join(variable.name for variable in self.operator.inputs)
        noise, error = (np.sqrt(np.mean(std[seen] ** 2)) for std in (self.noise_std, self.surrogate_std))
        outside = f"  prior         {100 * found.outside:.2g} % of the variance of held-out inputs is outside"
        lines = [
            f"posterior of {inputs} given {int(seen.sum())} observations, by {found.method}",
            f"  coordinates   {self.prior.size} of the prior, {determined:.1f} of them determined",
            *([outside] if found.outside > 0.001 else []),
            f"  observations  p = {found.p_value:.2g}; noise {noise:.3g}, surrogate error {error:.3g}",
            f"  draws         {len(self.coordinates)}, effective {found.effective:.0f}, r-hat {found.r_hat:.3f}, "
            f"{found.divergences} divergences",
            f"  mode          found in {found.steps} steps",
        ]
        return "\n".join(lines)

    def to_dataset(self) -> "xarray.Dataset":
        """Mean, std, mode and draws of every input, and the observations with their predictions, with coordinates.

        Inputs at sensors on a grid have the coordinates of the grid as dimensions, others the dimension `sensor`.
        """
        import xarray

        variables: dict[str, Any] = {}
        coordinates: dict[str, Any] = {}
        kinds = {
            "": (self.mean, "posterior mean"), "_std": (self.std, "posterior standard deviation"),
            "_mode": (self.mode_input, "most probable"), "_draws": (self.draws, "draws of"),
        }  # fmt: skip
        signature = self.operator.signature
        names = iter(self.operator.inputs)
        for i, part in enumerate(values_of(self.mean)):
            dims, shape, axes = sensor_axes(part, signature, i)
            coordinates |= axes
            for c, variable in enumerate(itertools.islice(names, part.shape[-1])):
                for ending, (u, title) in kinds.items():
                    values = np.asarray(values_of(u)[i][..., c])
                    first = ("draw",) if u is self.draws else ()
                    attributes = {**variable.attributes, "long_name": f"{title} {variable.name}"}
                    array = values.reshape(*values.shape[: len(first)], *shape)
                    variables[variable.name + ending] = ((*first, *dims), array, attributes)
        for c, variable in enumerate(self.operator.outputs):
            for kind in ("observed", "predicted", "predicted_std", "noise_std", "surrogate_std"):
                variables[f"{variable.name}_{kind}"] = ("observation", getattr(self, kind)[:, c], variable.attributes)
        queries = () if signature is None else signature.query_coordinates
        for i, column in enumerate(np.asarray(self.y).T):
            coordinate = queries[i] if queries else Variable(f"y{i + 1}")
            coordinates[f"observed_{coordinate.name}"] = ("observation", column, coordinate.attributes)
        variables["coordinate"] = (("draw", "component"), self.coordinates)
        return xarray.Dataset(variables, coordinates, attrs=dataclasses.asdict(self.diagnostics))


def sensor_axes(
    values: Array, signature: Signature | None, number: int
) -> tuple[tuple[str, ...], tuple[int, ...], dict[str, Any]]:
    """Dimensions, sizes and coordinates of an input's values: those of the grid of its sensors, or their number."""
    if values.ndim == 1:  # numbers beside fields
        return (), (), {}
    after = str(number + 1) if number else ""
    dim = f"sensor{after}"
    field = None if signature is None else signature.fields[number]
    if field is None or field.x is None:
        return (dim,), (len(values),), {}
    x = np.asarray(field.x)
    named = field.coordinates or [Variable(f"x{i + 1}{'_' + after if after else ''}") for i in range(x.shape[1])]
    axes = grid_axes(x)
    if axes is None:
        return (dim,), (len(x),), {v.name: (dim, column, v.attributes) for v, column in zip(named, x.T, strict=True)}
    grid = {each.name: (each.name, axis, each.attributes) for each, axis in zip(named, axes, strict=True)}
    return tuple(grid), tuple(map(len, axes)), grid


# ---- from observations to inputs -------------------------------------------------------------------------------------

TOLERANCE, STEPS = 1e-5, 256
"""Of the mode, relative to the standard deviation of the prior; of the optimizer, at most."""

WARMUP = 500
"""Steps of each chain before the first draw; NUTS adapts its step size and mass matrix in them."""

HEAVY, DEGREES = 0.1, 5
"""The share of proposals with heavy tails, and the degrees of freedom of their t distribution."""

PROPOSALS = 4
"""Proposals for each draw that is kept."""

SHARE = 0.5
"""The smallest effective share of the Laplace approximation's proposals; NUTS takes over below."""

UNLIKELY, FEW, LARGE = 1e-4, 100, 1.05
"""p-values and effective sample sizes below, and potential scale reductions above, are reported."""


def invert(
    operator: Operator,
    observations: tuple[Numbers, Numbers],
    *,
    noise: Numbers,
    prior: Prior | Samples | Records | Numbers | MultiInput,
    held: Samples | Records | None = None,
    surrogate_error: Numbers | None = None,
    method: str = "mcmc",
    draws: int = 1000,
    chains: int = 1,
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
    - `observations`: `(y, s)`, the values s at locations y of the domain, with NaN for what was not observed.
    - `noise`: the standard deviation of the noise in the units of the outputs: one number, one for each output, or one
      for each observation.
    - `prior`: input functions, such as the training data, of which u could have been one; or a `Prior`.
    - `held`: functions that were not used for training, for the error of the surrogate. It may be left out if the
      operator knows its error at several locations together, as Gaussian operators and ensembles do.
    - `surrogate_error`: the standard deviation of the surrogate's error, instead of `held`; like `noise`. 0.0 takes its
      predictions as exact, which makes the posterior too narrow.
    - `method`: `"mcmc"`, `"nuts"` or `"laplace"`; `diagnostics.method` is what was used.
    - `draws`: the number of draws of each chain.
    - `chains`: several chains from different starts show whether they agree (`diagnostics.r_hat`).
    - `key`: for draws; `jax.random.key(0)` by default.
    """
    try:
        import blackjax  # noqa: F401
        import optimistix  # noqa: F401
    except ImportError as error:
        raise ImportError("inversion needs additional libraries: pip install loca-jax[inversion]") from error
    if method not in ("mcmc", "nuts", "laplace"):
        raise ValueError(f"method must be 'mcmc' or 'nuts' or 'laplace', got {method!r}")
    if draws < 4 or chains < 1:  # halves of chains are compared, each of which needs two draws
        raise ValueError(f"expected at least 4 draws of at least one chain, got {draws} and {chains}")
    for_error, for_draws = jax.random.split(jax.random.key(0) if key is None else key)
    prior = as_prior(operator, prior)
    observed = as_observed(operator, observations, noise, surrogate_error)
    error = error_covariance(operator, observed.y, prior, held, observed.error, for_error)
    outside = 0.0 if held is None else warn_outside_prior(prior, loaded(operator, held).u)

    target = target_of(operator, observed, prior, np.diag(observed.noise.ravel() ** 2) + error)
    mode = find_mode(target)
    if not bool(mode.converged):
        raise RuntimeError(
            f"the most probable input was not found within {STEPS} steps; check the noise and the units of the "
            "observations"
        )
    xi, diagnostics = draw(target, mode, method, for_draws, chains, draws)
    diagnostics = dataclasses.replace(diagnostics, outside=outside)
    warn_untrustworthy(diagnostics)
    return posterior_of(operator, target, observed, error, mode, xi, draws * chains, diagnostics)


# ---- the density and its mode ---------------------------------------------------------------------------------------


class Target(eqx.Module):
    """−½ ‖ξ‖² − ½ ‖W(s − F(u(ξ))(y))‖², the log-density of the posterior up to a constant; WᵀW = (covariance)⁻¹."""

    prior: Prior  # u(ξ), with independent standard normal ξ
    fixed: PyTree  # the operator at the observed locations
    seen: Int[Array, " n"]  # which of its values, flattened, are observed
    s: Float[Array, " n"]
    whitening: Float[Array, "n n"]  # W

    def predict(self, xi: Float[Array, " K"]) -> Float[Array, " n"]:
        """F(u(ξ))(y) at what is observed."""
        return self.fixed(self.prior(xi)).ravel()[self.seen]

    def misfit(self, xi: Float[Array, " K"]) -> Float[Array, " n"]:
        """W(s − F(u(ξ))(y)): independent standard normal numbers at the true ξ."""
        return self.whitening @ (self.s - self.predict(xi))

    def __call__(self, xi: Float[Array, " K"]) -> Float[Array, ""]:
        return -0.5 * (jnp.sum(xi**2) + jnp.sum(self.misfit(xi) ** 2))


def target_of(operator: Operator, observed: Observed, prior: Prior, covariance: Float[np.ndarray, "n n"]) -> Target:
    """The posterior of ξ."""
    from scipy.linalg import solve_triangular

    seen, dtype = np.flatnonzero(observed.seen), prior.mean.dtype
    covariance = covariance[np.ix_(seen, seen)]
    whitening = solve_triangular(np.linalg.cholesky(covariance), np.eye(len(seen)), lower=True)  # in double precision
    s = jnp.asarray(observed.s.ravel()[seen], dtype)
    return Target(prior, operator.at(observed.y), jnp.asarray(seen), s, jnp.asarray(whitening, dtype))


class Mode(NamedTuple):
    """The mode, the Jacobian of the misfit there, the number of steps, and whether the optimizer converged."""

    xi: Float[Array, " K"]
    misfit: Float[Array, " n"]
    jacobian: Float[Array, "n K"]
    steps: Int[Array, ""]
    converged: Array


@eqx.filter_jit
def find_mode(target: Target) -> Mode:
    """The most probable ξ, from ξ = 0, by the method of Levenberg and Marquardt."""
    import optimistix

    solver = optimistix.LevenbergMarquardt(rtol=TOLERANCE, atol=TOLERANCE)
    start = jnp.zeros_like(target.prior.mean)
    found = optimistix.least_squares(
        lambda xi, target: (xi, target.misfit(xi)), solver, start, target, max_steps=STEPS, throw=False
    )
    xi = found.value
    converged = found.result == optimistix.RESULTS.successful
    return Mode(xi, target.misfit(xi), jax.jacfwd(target.misfit)(xi), found.stats["num_steps"], converged)


# ---- draws ----------------------------------------------------------------------------------------------------------


def draw(
    target: Target, mode: Mode, method: str, key: Key, chains: int, draws: int
) -> tuple[Float[np.ndarray, "S K"], Diagnostics]:
    """Draws of ξ from the posterior by a method, and how far to trust them."""
    from scipy.stats import chi2

    root, size, steps = laplace_root(mode.jacobian), len(mode.xi), int(mode.steps)
    square = float(np.sum(mode.xi**2) + np.sum(mode.misfit**2))  # if F is linear, it has a χ² distribution
    p_value = float(chi2.sf(square, len(mode.misfit)))
    if method == "laplace":
        xi = np.asarray(mode.xi, np.float64) + normal_numbers(key, max(draws, 4 * size), size) @ root.T
        return xi, Diagnostics(method, p_value, steps, effective=float(len(xi)), r_hat=1.0, divergences=0)
    given = (target, mode.xi, jnp.asarray(root, mode.xi.dtype), key, chains, draws)
    divergences = 0
    xi, share = run_metropolis(*given) if method == "mcmc" else (None, 0.0)
    if xi is None or share < SHARE:
        method = "nuts"
        xi, is_divergent = run_nuts(*given)
        divergences = int(np.sum(is_divergent))
    effective, r_hat = map(float, chain_diagnostics(xi))
    return np.asarray(xi).reshape(-1, size), Diagnostics(method, p_value, steps, effective, r_hat, divergences)


@jax.jit
def chain_diagnostics(xi: Float[Array, "C S K"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The smallest effective sample size and the largest potential scale reduction, over halves of chains."""
    from blackjax.diagnostics import effective_sample_size, potential_scale_reduction

    chains, draws, size = xi.shape
    halves = xi[:, : draws - draws % 2].reshape(2 * chains, draws // 2, size)
    return jnp.min(effective_sample_size(halves)), jnp.max(potential_scale_reduction(halves))


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


@eqx.filter_jit
def run_metropolis(
    target: Target, mode: Float[Array, " K"], root: Float[Array, "K K"], key: Key, chains: int, draws: int
) -> tuple[Float[Array, "C S K"], Float[Array, ""]]:
    """Draws of several chains by Metropolis's rule, and the effective share of their independent proposals.

    Proposals are ξ = mode + R η, with η from a mixture of a standard normal and a t distribution. The prior and the
    misfit bound the posterior by a normal density, and that of t has heavier tails. So the ratio w of posterior and
    proposal density is bounded, and the rule converges to the posterior from every start.

    The share is (Σ w)²/(n Σ w²). It is small if the posterior has parts that are rarely proposed; the share of accepted
    proposals does not show that.
    """
    size, count = len(mode), WARMUP + PROPOSALS * draws
    for_proposals, for_rule = jax.random.split(key)
    for_normal, for_kind = jax.random.split(for_proposals)
    normal = jax.random.normal(for_normal, (chains, count, size + DEGREES), mode.dtype)
    eta, rest = normal[..., :size], normal[..., size:]
    is_heavy = jax.random.uniform(for_kind, (chains, count, 1)) < HEAVY
    eta = eta * jnp.where(is_heavy, jax.lax.rsqrt(jnp.mean(rest**2, axis=-1, keepdims=True)), 1.0)
    square = jnp.sum(eta**2, axis=-1)
    gammas = jax.scipy.special.gammaln(0.5 * (DEGREES + size)) - jax.scipy.special.gammaln(0.5 * DEGREES)
    log_t = gammas - 0.5 * size * np.log(0.5 * DEGREES) - 0.5 * (DEGREES + size) * jnp.log1p(square / DEGREES)
    log_density = jnp.logaddexp(np.log1p(-HEAVY) - 0.5 * square, np.log(HEAVY) + log_t)
    log_target = jax.lax.map(lambda each: target(mode + root @ each), eta.reshape(-1, size), batch_size=64)
    log_w = log_target.reshape(chains, count) - log_density  # up to a constant
    log_w = jnp.where(jnp.isnan(log_w), -jnp.inf, log_w)
    log_uniform = jnp.log(jax.random.uniform(for_rule, (count, chains)))
    one_of_each = jnp.arange(chains)

    def step(current: Int[Array, " C"], given: tuple[Array, Array]) -> tuple[Array, Array]:
        number, log_uniform = given
        log_ratio = log_w[:, number] - log_w[one_of_each, current]
        current = jnp.where(log_uniform < log_ratio, number, current)
        return current, current

    _, kept = jax.lax.scan(step, jnp.zeros(chains, int), (jnp.arange(count), log_uniform))
    kept = kept[WARMUP + PROPOSALS - 1 :: PROPOSALS].T
    eta = jnp.take_along_axis(eta, kept[..., None], axis=1)
    weights = jnp.exp(log_w - jnp.max(log_w))
    return mode + eta @ root.T, jnp.mean(weights) ** 2 / jnp.mean(weights**2)


@eqx.filter_jit
def run_nuts(
    target: Target, mode: Float[Array, " K"], root: Float[Array, "K K"], key: Key, chains: int, draws: int
) -> tuple[Float[Array, "C S K"], Bool[Array, "C S"]]:
    """Draws of several chains, and which of them diverged, by NUTS in the coordinates η with ξ = mode + R η.

    In these the Laplace approximation is a standard normal. Every chain starts at a draw from that approximation, and
    adapts its step size and its mass matrix.
    """
    import blackjax

    def density(eta: Float[Array, " K"]) -> Float[Array, ""]:
        return target(mode + root @ eta)

    def chain(key: Key) -> tuple[Float[Array, "S K"], Bool[Array, " S"]]:
        start, warming, sampling = jax.random.split(key, 3)
        adaptation: Any = blackjax.window_adaptation(blackjax.nuts, density, adaptation_info_fn=lambda *_: None)
        (state, parameters), _ = adaptation.run(warming, jax.random.normal(start, mode.shape), num_steps=WARMUP)
        kernel: Any = blackjax.nuts(density, **parameters)

        def step(state: Any, key: Key) -> tuple[Any, tuple[Array, Array]]:
            state, info = kernel.step(key, state)
            return state, (state.position, info.is_divergent)

        _, (eta, is_divergent) = jax.lax.scan(step, state, jax.random.split(sampling, draws))
        return mode + eta @ root.T, is_divergent

    return jax.vmap(chain)(jax.random.split(key, chains))


# ---- the posterior from its draws ------------------------------------------------------------------------------------


def warn_untrustworthy(found: Diagnostics) -> None:
    """Warn of observations that do not fit, and of chains that did not converge."""
    if found.p_value < UNLIKELY:
        wrong = "the noise, the surrogate's error or the prior is too narrow, or units differ"
        warnings.warn(f"the observations do not fit (p = {found.p_value:.1g}): {wrong}", InversionWarning, stacklevel=3)
    if found.divergences:
        advice = "draws may miss part of the posterior, compare several chains"
        warnings.warn(f"NUTS diverged at {found.divergences} draws; {advice}", InversionWarning, stacklevel=3)
    if found.method != "laplace" and not (found.effective >= FEW and found.r_hat <= LARGE):  # or NaN
        sizes = f"an effective sample size of {found.effective:.0f} and r-hat {found.r_hat:.2f}"
        warnings.warn(f"the draws have {sizes}; take more draws", InversionWarning, stacklevel=3)


def posterior_of(
    operator: Operator,
    target: Target,
    observed: Observed,
    error: Float[np.ndarray, "n n"],
    mode: Mode,
    xi: Float[np.ndarray, "S K"],
    kept: int,
    diagnostics: Diagnostics,
) -> Posterior:
    """The posterior from standardized coordinates; moments are over all of them, some of which are kept as draws."""
    prior, dtype = target.prior, mode.xi.dtype
    every, outputs = evaluate(target, jnp.asarray(xi, dtype))
    one, outputs = prior(mode.xi), np.asarray(outputs, np.float64)
    scales, mean = np.asarray(prior.scales, np.float64), np.asarray(prior.mean, np.float64)
    predicted, predicted_std = np.full((2, *observed.s.shape), np.nan)
    predicted[observed.seen], predicted_std[observed.seen] = outputs.mean(axis=0), outputs.std(axis=0)
    return Posterior(
        operator=operator,
        prior=prior,
        mode=mean + scales * np.asarray(mode.xi, np.float64),
        mode_input=one,
        coordinates=mean + scales * xi[:kept],
        draws=jax.tree.map(lambda array: array[:kept], every),
        mean=with_values(one, [jnp.mean(values, axis=0) for values in values_of(every)]),
        std=with_values(one, [jnp.std(values, axis=0) for values in values_of(every)]),
        y=observed.y,
        observed=observed.s,
        predicted=predicted,
        predicted_std=predicted_std,
        noise_std=observed.noise,
        surrogate_std=np.sqrt(np.diag(error)).reshape(observed.s.shape),
        diagnostics=diagnostics,
    )


@eqx.filter_jit
def evaluate(target: Target, xi: Float[Array, "S K"]) -> tuple[PyTree, Float[Array, "S n"]]:
    """u and F(u)(y) at what is observed, of many coordinates."""
    return jax.lax.map(lambda each: (target.prior(each), target.predict(each)), xi, batch_size=64)
