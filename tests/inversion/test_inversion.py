"""Inversion against closed forms: the posterior of linear operators, information, variance, and all refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from linear import PROBLEM, SENSORS, closed_form, matrix, operator

import loca
from loca.data import Normalization, Samples, Shared
from loca.inversion import InversionWarning, Prior, surrogate_covariance
from loca.inversion.design import greedy_inputs, greedy_locations
from loca.inversion.errors import shrunk_covariance
from loca.inversion.invert import Target, draw, find_mode
from loca.typing import MultiInput

NOISE = 0.05
Y = np.linspace(0.05, 1.0, 9)[:, None]


@pytest.fixture(scope="module")
def train():
    return PROBLEM.sample(jax.random.key(0), 60)


@pytest.fixture(scope="module")
def model(train):
    return operator(train)


@pytest.fixture(scope="module")
def prior(model, train):
    return Prior.fit(model.normalization, train.u, share=1.0)


@pytest.fixture(scope="module")
def observed(model):
    truth = PROBLEM.sample(jax.random.key(1), 1).u[0]
    return np.asarray(model(truth, Y)) + NOISE * np.random.default_rng(0).normal(size=(len(Y), 1))


def exact(model, observed, prior, **options):
    return loca.invert(model, (Y, observed), noise=NOISE, prior=prior, surrogate_error=0.0, method="laplace", **options)


def close(found, expected, tolerance):
    """Whether the difference is small relative to the size, over all sensors."""
    found, expected = np.asarray(found, np.float64).ravel(), np.asarray(expected, np.float64).ravel()
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < tolerance, error


@pytest.mark.slow
def test_laplace_is_the_closed_form_for_a_linear_operator(model, observed, prior, train):
    found = exact(model, observed, prior)
    mean, std = closed_form(model, Y, observed, NOISE**2 * np.eye(len(Y)), train.u)
    close(found.mean, mean, 1e-4)
    close(found.mode_input, mean, 1e-4)
    close(found.std, std, 1e-4)
    A = matrix(model, Y)
    close(found.predicted, A @ mean, 1e-4)
    # ‖ξ‖² + ‖misfit‖² at the mode is the Mahalanobis distance of the observations from the prior's mean
    covariance = A @ np.cov(np.asarray(train.u[..., 0], np.float64).T) @ A.T + NOISE**2 * np.eye(len(Y))
    from scipy.stats import chi2

    departure = observed.ravel() - A @ np.asarray(train.u[..., 0], np.float64).mean(axis=0)
    expected = chi2.sf(departure @ np.linalg.solve(covariance, departure), len(Y))
    assert found.diagnostics.p_value == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("method", ["mcmc", pytest.param("nuts", marks=pytest.mark.full)])
def test_draws_have_the_closed_form_for_a_linear_operator(model, observed, prior, train, method):
    found = loca.invert(
        model, (Y, observed), noise=NOISE, prior=prior, surrogate_error=0.0, draws=5_000, chains=2, method=method
    )
    mean, std = closed_form(model, Y, observed, NOISE**2 * np.eye(len(Y)), train.u)
    close(found.mean, mean, 0.01)
    close(found.std, std, 0.01)
    assert found.diagnostics.method == method
    assert found.diagnostics.divergences == 0
    assert found.diagnostics.effective > 5000
    assert found.diagnostics.r_hat < 1.01
    assert "10000, effective" in str(found)


def curved(bend):
    """A posterior that is not normal: z₁ + bend z₂² is observed; and its first two moments, by quadrature."""
    prior = Prior([0.0, 0.0], [1.0, 1.0], lambda z: (z[0] + bend * z[1] ** 2) * jnp.ones((SENSORS, 1)))
    target = Target(prior, lambda u: u[:1], jnp.array([0]), jnp.array([1.0]), jnp.array([[2.0]]))
    z = np.stack(np.meshgrid(*[np.linspace(-6.0, 6.0, 601)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.exp(-0.5 * np.sum(z**2, axis=1) - 2.0 * (1.0 - z[:, 0] - bend * z[:, 1] ** 2) ** 2)
    mean = weights @ z / weights.sum()
    return target, mean, np.sqrt(weights @ (z - mean) ** 2 / weights.sum())


@pytest.mark.parametrize(("bend", "method"), [(0.1, "mcmc"), pytest.param(0.5, "nuts", marks=pytest.mark.full)])
def test_draws_are_from_the_posterior_even_far_from_a_normal(bend, method):
    """At 0.5 more than half of the proposals are accepted, but draws of them have standard deviations 5 % too small."""
    target, mean, std = curved(bend)
    xi, diagnostics = draw(target, find_mode(target), "mcmc", jax.random.key(0), 4, 5_000)
    assert diagnostics.method == method
    assert diagnostics.effective > 400
    error = 4.0 / np.sqrt(diagnostics.effective)  # four standard errors of the mean, in standard deviations
    np.testing.assert_array_less(np.abs(xi.mean(axis=0) - mean), error * std)
    np.testing.assert_allclose(xi.std(axis=0), std, rtol=error)


@pytest.mark.slow
def test_missing_observations_are_as_removed_ones(train, prior):
    model = operator(train, channels=2)
    s = np.array(model(train.u[0], Y))
    noise = NOISE * np.linspace(1.0, 2.0, s.size).reshape(s.shape)
    s[2], s[5, 1], noise[2] = np.nan, np.nan, np.nan
    rows = np.flatnonzero(~np.isnan(s).ravel())
    missing = loca.invert(model, (Y, s), noise=noise, prior=prior, surrogate_error=0.0, method="laplace")
    A, u = matrix(model, Y)[rows], np.asarray(train.u[..., 0], np.float64)
    C = np.cov(u.T)
    gain = C @ A.T @ np.linalg.inv(A @ C @ A.T + np.diag(noise.ravel()[rows] ** 2))
    close(missing.mean, u.mean(axis=0) + gain @ (s.ravel()[rows] - A @ u.mean(axis=0)), 2e-4)
    assert missing.observed.shape == (8, 2)  # the location without any value is gone
    assert np.isnan(missing.predicted[4, 1])


@pytest.mark.slow
def test_the_surrogate_error_widens_the_posterior_as_its_covariance_says(model, observed, prior, train):
    narrow = exact(model, observed, prior)
    wide = loca.invert(model, (Y, observed), noise=NOISE, prior=prior, surrogate_error=3.0 * NOISE, method="laplace")
    mean, std = closed_form(model, Y, observed, 10.0 * NOISE**2 * np.eye(len(Y)), train.u)
    close(wide.mean, mean, 1e-4)
    close(wide.std, std, 1e-4)
    assert np.all(wide.std > narrow.std)

    rng = np.random.default_rng(1)  # a surrogate with errors of the form a + b y, on labels between which Y lies
    held = PROBLEM.sample(jax.random.key(2), 80)
    y = np.asarray(held.y.points)
    error = rng.normal(size=(80, 1)) + rng.normal(size=(80, 1)) * y[:, 0]
    s = model.predict(held.u, held.y) + 0.1 * error[..., None].astype(np.float32)
    held = Samples(held.u, held.y, s, x=held.x, domain=held.domain)
    found = loca.invert(model, (Y, observed), noise=NOISE, prior=prior, held=held, method="laplace")
    at_y = 0.1 * np.stack([np.interp(Y[:, 0], y[:, 0], each) for each in error])
    covariance = shrunk_covariance(at_y)
    np.testing.assert_allclose(np.diag(covariance), np.mean(at_y**2, axis=0))
    mean, std = closed_form(model, Y, observed, NOISE**2 * np.eye(len(Y)) + covariance, train.u)
    close(found.mean, mean, 1e-3)
    close(found.std, std, 1e-3)
    np.testing.assert_allclose(found.surrogate_std.ravel(), np.sqrt(np.diag(covariance)), rtol=1e-3)


@pytest.mark.full
def test_inputs_outside_of_the_prior_count_as_error(model, train):
    held = PROBLEM.sample(jax.random.key(2), 40)
    coarse = Prior.fit(model.normalization, train.u, share=0.5)
    left = held.u - jax.vmap(coarse.project)(held.u)
    expected = shrunk_covariance(np.asarray(model.predict(left, Y))[..., 0])
    exact_held = Samples(held.u, held.y, model.predict(held.u, held.y), x=held.x, domain=held.domain)
    found = surrogate_covariance(model, jnp.asarray(Y), coarse, exact_held, key=jax.random.key(0))
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=1e-5)
    with pytest.warns(InversionWarning, match=r"variance of the held-out inputs is outside of the prior"):
        loca.invert(model, (Y, np.zeros(9)), noise=NOISE, prior=coarse, held=exact_held, method="laplace")


def test_of_a_large_file_some_held_out_functions_are_enough(model, prior, tmp_path, monkeypatch):
    """The covariance once had a wrong size if the file had more functions than are read."""
    store = loca.problems.generate(PROBLEM, 30, tmp_path / "held.zarr")
    some = store.load(np.linspace(0, 29, 12).round().astype(int))
    monkeypatch.setattr("loca.inversion.prior.MOST", 12)
    y, key = jnp.asarray(Y), jax.random.key(0)
    expected = surrogate_covariance(model, y, prior, some, key=key)
    np.testing.assert_allclose(surrogate_covariance(model, y, prior, store, key=key), expected)


def test_correlations_are_shrunk_as_far_as_chance_explains_them():
    rng = np.random.default_rng(0)
    independent = shrunk_covariance(rng.normal(size=(50, 30)))
    apart = ~np.eye(30, dtype=bool)
    assert np.abs(independent[apart]).max() < 0.1
    common = rng.normal(size=(50, 1)) + 0.1 * rng.normal(size=(50, 30))
    np.testing.assert_allclose(shrunk_covariance(common), common.T @ common / 50, rtol=0.05)
    assert np.linalg.eigvalsh(shrunk_covariance(common)).min() > 0.0
    assert not shrunk_covariance(np.zeros((20, 3))).any()  # where a boundary condition holds exactly


@pytest.fixture(scope="module")
def solved(train):
    hyper = loca.gaussian.Hyperparameters(length=2.0, noise=1e-3, location_lengths=(0.3,))
    return loca.solve(train.take(jnp.arange(12)), hyperparameters=hyper, progress=False)[0]


@pytest.mark.full
def test_a_gaussian_operator_knows_the_covariance_of_its_error(solved, train):
    """The posterior covariance of the Gaussian process from the covariance of all labels, label by label."""
    y = jnp.concatenate([train.y.points, jnp.asarray(Y)])
    z = jax.vmap(solved.encode)(train.u[:15])  # 12 of them are known
    k_u = np.asarray(solved.f.kernel.matrix(z, z), np.float64)
    h = np.asarray(solved.h(y), np.float64)
    k_y, labels = h @ h.T, train.y.count
    prior = np.kron(k_u, k_y).reshape(15, len(y), 15, len(y))
    known = prior[:12, :labels, :12, :labels].reshape(12 * labels, -1) + 1e-3 * np.eye(12 * labels)
    cross = prior[12:, labels:, :12, :labels].reshape(3 * 9, -1)
    exact = prior[12:, labels:, 12:, labels:].reshape(27, 27) - cross @ np.linalg.solve(known, cross.T)
    exact = exact.reshape(3, 9, 3, 9)
    scale = np.abs(exact).max()
    over_y = np.asarray(solved.location_covariance(z[12:], y[labels:]))
    np.testing.assert_allclose(over_y, np.einsum("ipiq->pq", exact) / 3, atol=0.01 * scale)
    over_u = np.asarray(solved.input_covariance(z[12:], y[labels:], jnp.full(9, 1 / 9)))
    np.testing.assert_allclose(over_u, np.einsum("ipjp->ij", exact) / 9, atol=0.01 * scale)


@pytest.mark.full
def test_operators_that_know_their_error_need_no_held_out_functions(solved, train):
    given = {"noise": NOISE, "prior": train, "method": "laplace"}
    found = loca.invert(solved, (Y, np.zeros(9)), **given)
    prior = Prior.fit(solved.normalization, train.u)
    u = jax.vmap(prior)(jax.random.normal(jax.random.key(5), (200, prior.size)))
    std = np.stack([solved.std(one, Y) for one in u[:20]])
    assert np.mean(found.surrogate_std**2) == pytest.approx(np.mean(std**2), rel=0.5)  # other draws from the prior
    with pytest.raises(ValueError, match=r"Calibrated does not know how its errors .* held="):
        loca.invert(loca.calibrate(operator(train), train), (Y, np.zeros(9)), **given)

    chosen = loca.acquire(solved, train.take(jnp.arange(40)), count=3)
    assert set(chosen.rows) & set(range(12)) == set()  # those are known already
    assert np.all(np.diff([chosen.before, *chosen.variances]) < 0.0)
    assert "% of the variance is left after 3 simulations" in str(chosen)


def test_the_prior_has_the_moments_of_its_functions(prior, train):
    xi = jnp.eye(prior.size)
    steps = np.asarray(jax.vmap(prior)(xi) - prior(0.0 * xi[0]))[..., 0].astype(np.float64)
    values = np.asarray(train.u[..., 0], np.float64)
    close(steps.T @ steps, np.cov(values.T), 1e-4)
    close(prior(0.0 * xi[0]), values.mean(axis=0), 1e-5)
    close(jax.vmap(prior.project)(train.u), train.u, 1e-4)


def test_fields_and_numbers_have_the_same_weight():
    rng = np.random.default_rng(0)
    field = (rng.normal(size=(50, 1)) * np.sin(np.linspace(0.0, 3.0, 200)))[..., None] + 3.0
    u = MultiInput((jnp.asarray(field, jnp.float32),), jnp.asarray(rng.normal(size=(50, 2)) + 5.0, jnp.float32))
    data = Samples(u, np.zeros((1, 1)), np.zeros((50, 1)), domain=loca.domains.Box.unit(1))
    normalization = Normalization.fit(data)
    prior = Prior.fit(normalization, u)
    assert prior.size == 3
    back = jax.vmap(prior.project)(u)
    for found, expected in zip(jax.tree.leaves(back), jax.tree.leaves(u), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_a_logarithm_makes_the_prior_positive(train):
    data = Samples(jnp.exp(train.u), train.y, train.s, x=train.x)
    logarithmic = Prior.fit(Normalization.fit(data, {"u1": "log"}), data.u)
    draws = jax.vmap(logarithmic)(3.0 * jax.random.normal(jax.random.key(0), (100, logarithmic.size)))
    assert np.all(np.asarray(draws) > 0.0)
    with pytest.warns(InversionWarning, match="negative values within three standard deviations"):
        Prior.fit(Normalization.fit(data), data.u)


def test_own_parametrization_finds_the_truth(model):
    x = jnp.linspace(0.0, 1.0, SENSORS)
    own = Prior([1.0, 3.0], [0.5, 1.0], lambda z: (z[0] * jnp.sin(z[1] * x))[:, None])
    truth = own.decode(jnp.array([1.4, 3.7]))
    found = exact(model, model(truth, Y) + 1e-9, own, draws=20)
    np.testing.assert_allclose(found.mode, [1.4, 3.7], rtol=0.02)  # NOISE pulls towards the prior's mean
    assert found.draws.shape == (20, SENSORS, 1)


@pytest.mark.slow
def test_gains_are_the_mutual_information_of_a_linear_operator(model, prior, train):
    found = loca.design(model, Y, count=4, noise=NOISE, prior=prior, surrogate_error=0.0)
    C = np.cov(np.asarray(train.u[..., 0], np.float64).T)

    def information(rows):
        A = matrix(model, Y[np.asarray(rows)])
        return 0.5 * np.linalg.slogdet(np.eye(len(A)) + A @ C @ A.T / NOISE**2)[1]

    for count in range(1, 5):
        assert np.sum(found.gains[:count]) == pytest.approx(information(found.rows[:count]), rel=1e-4)
    assert found.rows[0] == max(range(9), key=lambda row: information([row]))  # brute force
    assert found.rows[1] == max(set(range(9)) - {found.rows[0]}, key=lambda row: information([found.rows[0], row]))
    np.testing.assert_allclose(found.y, Y[found.rows], rtol=1e-6)
    after = loca.design(model, Y, count=1, noise=NOISE, prior=prior, surrogate_error=0.0, existing=found.y[:2])
    assert after.rows[0] == found.rows[2]
    assert after.gains[0] == pytest.approx(found.gains[2], rel=1e-3)
    assert "0.05" in str(found) or "gain" in str(found)


def test_gains_count_correlated_noise_of_several_channels_once():
    rng = np.random.default_rng(0)
    C, channels, size = 5, 2, 4
    g = rng.normal(size=(3, C, channels, size))
    root = rng.normal(size=(C * channels, C * channels))
    covariance = root @ root.T + np.eye(C * channels)
    rows, gains = greedy_locations(g, covariance, [1], 3)
    chosen = [1, *rows]

    def information(some):
        index = [channels * row + c for row in some for c in range(channels)]
        noise = covariance[np.ix_(index, index)]
        flat = g.reshape(3, -1, size)[:, index]
        return np.mean([0.5 * np.linalg.slogdet(np.eye(size) + one.T @ np.linalg.solve(noise, one))[1] for one in flat])

    for i in range(1, 4):
        assert gains[i - 1] == pytest.approx(information(chosen[: i + 1]) - information(chosen[:i]), rel=1e-6)
        left = set(range(C)) - set(chosen[:i])
        assert rows[i - 1] == max(left, key=lambda row: information([*chosen[:i], row]))


def test_acquired_inputs_leave_the_least_variance():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(8, 3)) * np.array([3.0, 1.0, 0.3])
    C = root @ root.T + 0.01 * np.eye(8)

    def left(some):
        index = list(some)
        return np.trace(C - C[:, index] @ np.linalg.solve(C[np.ix_(index, index)], C[index])) / 8

    found = greedy_inputs(C, 3)
    assert found.rows[0] == min(range(8), key=lambda row: left([row]))
    for i in range(1, 4):
        assert found.variances[i - 1] == pytest.approx(left(found.rows[:i]), rel=1e-6)
    best = min(left(some) for some in itertools.combinations(range(8), 2))
    assert left(found.rows[:2]) < 1.2 * best


@pytest.mark.full
def test_an_ensemble_acquires_inputs_that_its_members_disagree_about(train):
    members = [loca.DeepONet.create(train, key=jax.random.key(i), num_features=4) for i in range(3)]
    u = train.u[:10]
    each = np.stack([np.asarray(member.predict(u, Shared(jnp.asarray(Y)))) for member in members])
    departures = np.moveaxis(each - each.mean(axis=0), 1, 0).reshape(10, -1)
    expected = greedy_inputs(departures @ departures.T, 3)
    found = loca.acquire(loca.Ensemble.of(members), u, count=3, y=Y)
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_allclose(found.variances / found.before, expected.variances / expected.before, rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"surrogate_error": None}, r"belongs to the noise, but Integrals .* held=\.\.\., or surrogate_error=0\.0"),
        ({"noise": [0.1, 0.2]}, r"1 numbers for the outputs, or an array of shape \(9, 1\) .* got shape \(2,\)"),
        ({"s": np.zeros((3, 1))}, r"shape \(3, 1\), but there are 9 locations and 1 outputs \(antiderivative\)"),
    ],
)
def test_what_cannot_be_inverted_is_refused(model, prior, changes, message):
    given = {"y": Y, "s": np.zeros(9), "noise": NOISE, "prior": prior, "surrogate_error": 0.0, **changes}
    with pytest.raises(ValueError, match=message):
        loca.invert(model, (given.pop("y"), given.pop("s")), **given)


def test_held_out_functions_must_be_labeled_around_the_observations(model, prior, train):
    given = {"noise": NOISE, "prior": prior, "method": "laplace"}
    with pytest.raises(ValueError, match="at least 10 held-out functions with outputs, got 3 functions"):
        loca.invert(model, (Y, np.zeros(9)), held=train.take(jnp.arange(3)), **given)
    half = Samples(train.u, train.y.points[:8], train.s[:, :8], x=train.x, domain=train.domain)
    with pytest.raises(ValueError, match="not labeled around all given locations"):
        loca.invert(model, (Y, np.zeros(9)), held=half, **given)
    with pytest.raises(ValueError, match=r"Integrals does not know how its errors for different inputs are correlated"):
        loca.acquire(model, train, count=1)


def test_observations_that_do_not_fit_are_reported(model, prior):
    with pytest.warns(InversionWarning, match="the observations do not fit"):
        exact(model, 100.0 * (-1.0) ** np.arange(9), prior)
