"""Ensembles, probabilistic networks, calibrated bands and unfamiliar inputs."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from known import POINTS, SIGMA, Knowing, Zero, identity, noise
from scipy.integrate import quad
from scipy.stats import kstest, norm

import loca
from loca.data import Normalization, Samples
from loca.models import LOCA, predict_error_bars
from loca.typing import MultiInput
from loca.uncertainty import Ensemble, Familiarity, Probabilistic, Quantiles, UnfamiliarInputWarning, warn_unfamiliar
from loca.uncertainty.probabilistic import mean_crps

SIZES = {"num_features": 4, "lift_size": 4, "lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}


@pytest.fixture(scope="module")
def data():
    samples = noise(20)
    return dataclasses.replace(samples, s=jnp.sin(3.0 * samples.y.points + samples.u[:, :1, :]) + jnp.ones(2))


@pytest.fixture(scope="module")
def ensemble(data):
    return Ensemble.create(LOCA.create, data, key=jax.random.key(0), size=3, **SIZES)


def arrays(model):
    return [leaf for leaf in jax.tree.leaves(model) if eqx.is_array(leaf)]


@pytest.mark.full
def test_a_member_is_trained_as_if_alone(ensemble, data):
    options = {"steps": 12, "progress": False, "batch_size": 5}
    together, history = loca.fit(ensemble, data, validate=data, **options)
    alone, own = loca.fit(ensemble.member(1), data, **options)
    for a, b in zip(arrays(together.member(1)), arrays(alone), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert history.moments[-1].loss > own.moments[-1].loss  # a sum over members
    assert history.moments[-1].validation is not None


@pytest.mark.slow
def test_mean_and_deviation_are_those_of_the_members(ensemble, data):
    y = data.y.points
    each = np.stack([ensemble.member(i)(data.u[0], y) for i in range(3)])
    np.testing.assert_allclose(ensemble(data.u[0], y), each.mean(0), atol=1e-6)
    np.testing.assert_allclose(ensemble.std(data.u[0], y), each.std(0, ddof=1), atol=1e-6)
    lower, upper = ensemble.bands(data.u[0], y, 0.9)
    np.testing.assert_allclose(upper - lower, 2 * 1.6449 * each.std(0, ddof=1), rtol=1e-4)
    drawn = np.sort([draw(data.u[0], y)[0, 0] for draw in ensemble.draws(jax.random.key(1), 3)])
    np.testing.assert_allclose(drawn, np.sort(each[:, 0, 0]), atol=1e-6)


def test_members_must_differ_in_learned_parameters_only(ensemble, data):
    other = LOCA.create(dataclasses.replace(data, s=2.0 * data.s), key=jax.random.key(3), **SIZES)
    with pytest.raises(ValueError, match="members 0 and 1 differ in more than learned parameters"):
        Ensemble.of([ensemble.member(0), other])
    with pytest.raises(ValueError, match=r"loca\.calibrate"):
        ensemble.bands(data.u[0], data.y.points, simultaneous=True)
    with pytest.raises(ValueError, match="level between 0 and 1"):
        ensemble.bands(data.u[0], data.y.points, 90.0)


@pytest.mark.parametrize(("mean", "std", "truth"), [(0.3, 0.5, 1.0), (-1.0, 2.0, 1.0)])
def test_crps_is_the_integral_of_the_squared_difference_of_distributions(mean, std, truth):
    expected = quad(lambda t: norm.cdf(t, mean, std) ** 2, -30, truth, points=[mean])[0]
    expected += quad(lambda t: (1 - norm.cdf(t, mean, std)) ** 2, truth, 30, points=[mean])[0]
    given = [jnp.full((1, 1, 1), value) for value in (mean, std, truth)]
    assert float(mean_crps(*given)) == pytest.approx(expected, rel=1e-4)
    assert float(loca.metrics.crps(*given)[0, 0]) == pytest.approx(expected, rel=1e-4)
    twice = [jnp.concatenate([each, 5.0 + each], axis=1) for each in given]
    assert float(mean_crps(*twice, jnp.array([1.0, 0.0]))) == pytest.approx(expected, rel=1e-4)


def test_a_probabilistic_network_has_a_loss_of_its_own():
    samples = noise(20)
    model = Probabilistic.create(LOCA.create, samples, key=jax.random.key(0), **SIZES)
    with pytest.raises(ValueError, match="Probabilistic has an objective of its own; train it without a mesh"):
        loca.fit(model, samples, steps=1, progress=False, mesh=Mesh(np.array(jax.devices()[:1]), ("functions",)))
    with pytest.raises(ValueError, match="without a loss"):
        loca.fit(model, samples, steps=1, loss=loca.losses.relative_l2, progress=False)


@pytest.mark.full
def test_a_probabilistic_network_finds_mean_and_deviation():
    samples = noise(400)
    model = Probabilistic.create(LOCA.create, samples, key=jax.random.key(0), **SIZES)
    model, _ = loca.fit(model, samples, steps=1000, progress=False)
    y = samples.y.points
    found = np.mean([model.std(u, y) for u in samples.u[:8]], axis=0)
    np.testing.assert_allclose(found, SIGMA, rtol=0.2)
    assert model(samples.u[0], y).shape == (POINTS, 2)
    draws = np.stack([draw(samples.u[0], y) for draw in model.draws(jax.random.key(1), 300)])
    np.testing.assert_allclose(draws.std(0), model.std(samples.u[0], y), rtol=0.15)


def test_quantiles_are_those_of_split_conformal_prediction():
    scores = np.arange(1.0, 20.0).reshape(19, 1, 1)  # 19 functions: the 18th of 20 ranks covers 0.9
    quantiles = Quantiles.of(scores, np.ones((19, 1)))
    assert [float(quantiles(level)[0]) for level in (0.05, 0.9, 0.901, 0.95)] == [1.0, 18.0, 19.0, 19.0]
    assert np.isinf(quantiles(0.951)[0])  # 19 functions cannot guarantee more than 19/20


def test_weights_count_labels_by_area():
    scores = np.tile([[1.0], [10.0]], (99, 1, 1))
    assert float(Quantiles.of(scores, np.tile([3.0, 1.0], (99, 1)))(0.74)[0]) == 1.0
    assert float(Quantiles.of(scores, np.tile([3.0, 1.0], (99, 1)))(0.75)[0]) == 10.0  # 0.75·99/100 < 0.75


@pytest.mark.parametrize("make", [lambda: Zero(identity()), lambda: Knowing(identity(), jnp.asarray(0.2))])
def test_coverage_is_the_level_whatever_the_operator(make):
    """Over many calibrations, coverage is at least the level, and exceeds it by at most 1/(N + 1) + 1/1000."""
    N, repeats = 19, 300
    everything = noise(repeats * (N + 1), seed=1)
    scores = np.abs(np.asarray(everything.s)) / (np.asarray(SIGMA) if isinstance(make(), Knowing) else 1.0)
    groups = scores.reshape(repeats, N + 1, POINTS, 2)
    pointwise, simultaneous = [], []
    for group in groups:
        pointwise.append(group[N] <= np.asarray(Quantiles.of(group[:N], np.ones((N, POINTS)))(0.8)))
        largest = group.max(axis=1, keepdims=True)
        simultaneous.append(largest[N] <= np.asarray(Quantiles.of(largest[:N], np.ones((N, 1)))(0.8)))
    error = 3.0 * np.sqrt(0.8 * 0.2 / repeats)
    assert np.all(np.abs(np.mean(simultaneous, axis=(0, 1)) - 0.8) < error)
    assert np.all(np.mean(pointwise, axis=(0, 1)) > 0.8 - error / 2)


@pytest.mark.slow
def test_bands_of_few_labels_and_of_a_wrong_sigma_cover_new_functions(tmp_path):
    held, new = noise(400, seed=2), noise(400, seed=3)
    operator = loca.calibrate(Knowing(identity(), jnp.asarray(0.01)), held.observe(jax.random.key(0), 3))
    full = loca.calibrate(operator, held)  # the inner operator is calibrated anew
    assert isinstance(full.operator, Knowing)
    for model, simultaneous in ((operator, False), (full, False), (full, True)):
        found = predict_error_bars(model, new.u, new.y, model.radius(0.9, simultaneous=simultaneous))
        inside = np.asarray((found.lower <= new.s) & (new.s <= found.upper))
        inside = inside.all(axis=1) if simultaneous else inside.mean(axis=1)
        assert np.all(np.abs(inside.mean(axis=0) - 0.9) < 0.04)
    # σ was 100 times too small; a band of one σ has 68 % of a normal distribution
    np.testing.assert_allclose(full.std(new.u[0], new.y.points), SIGMA, rtol=0.06)
    np.testing.assert_allclose(full(new.u[0], new.y.points), 0.0)


@pytest.mark.parametrize("several", [False, True])
def test_error_bars_of_many_functions_are_those_of_each(several):
    samples = noise(30)
    if several:
        samples = dataclasses.replace(samples, u=MultiInput((samples.u,), samples.u[:, 0]), x=(samples.x,), inputs=())
    model = loca.calibrate(Zero(Normalization.fit(samples)), samples)
    found = model.predict_error_bars(samples.u, samples.y, 0.8, simultaneous=True)
    y = samples.y.points
    for i, u in enumerate(samples.u):
        np.testing.assert_allclose(found.mean[i], model(u, y), rtol=1e-6)
        np.testing.assert_allclose(found.std[i], model.std(u, y), rtol=1e-6)
        lower, upper = model.bands(u, y, 0.8, simultaneous=True)
        np.testing.assert_allclose((found.lower[i], found.upper[i]), (lower, upper), rtol=1e-6)
    assert i == 29
    if several:
        with pytest.raises(IndexError, match="there are 30 input functions, numbered from 0, got 30"):
            samples.u[30]


@pytest.mark.slow
def test_the_model_file_keeps_bands_and_familiarity(data, ensemble, tmp_path):
    model = loca.calibrate(ensemble, data, train=data)
    loca.save(model, tmp_path / "model.safetensors", data=data)
    loaded = loca.load(tmp_path / "model.safetensors")
    assert eqx.tree_equal(loaded, model)
    lower, upper = loaded.bands(data.u[0], data.y.points, 0.99)  # more than 20 functions guarantee
    assert np.all(np.isinf(lower))
    assert np.all(np.isinf(upper))


def test_bands_of_a_logarithmic_variable_are_positive():
    samples = noise(40)
    samples = dataclasses.replace(samples, s=jnp.exp(samples.s))
    transforms = {"s1": "log", "s2": "log"}
    model = loca.calibrate(Zero(Normalization.fit(samples, transforms)), samples)
    lower, upper = model.bands(samples.u[0], samples.y.points)
    assert np.all(lower > 0.0)
    assert np.all(upper > lower)


def test_what_cannot_be_calibrated_is_refused(data):
    with pytest.raises(ValueError, match="at least 10 held-out functions with outputs, got 3"):
        loca.calibrate(Zero(identity()), data.take(jnp.arange(3)))
    with pytest.raises(ValueError, match=r"train `model\.operator`"):
        loca.fit(loca.calibrate(Zero(identity()), data), data, steps=1, progress=False)


def test_p_values_of_exchangeable_functions_are_uniform():
    u = noise(900, seed=4).u
    found = Familiarity.fit(identity(), u[:300], u[300:600])
    p = np.asarray(jax.vmap(found.p_value)(u[600:]))
    assert kstest(p, "uniform").pvalue > 0.01
    assert float(found.score(u[0])) > 0.0


def test_inputs_outside_of_the_components_or_far_along_them_are_unfamiliar():
    model = loca.calibrate(Zero(identity()), noise(200))
    assert np.mean(model.in_distribution(noise(100, seed=5).u) <= 0.05) < 0.15
    assert np.all(model.in_distribution(noise(20, seed=5, spread=20.0).u) <= 0.05)
    rough = noise(20, seed=5).u + 0.5 * (-1.0) ** jnp.arange(6)[:, None]
    assert np.all(model.in_distribution(rough) <= 0.05)


def test_a_warning_counts_unfamiliar_inputs(recwarn):
    warn_unfamiliar(np.array([0.04, *np.linspace(0.1, 1.0, 30)]))  # as chance explains
    assert not recwarn
    with pytest.warns(UnfamiliarInputWarning, match="1 of 1 input functions"):
        warn_unfamiliar(np.array([0.01]))


@pytest.mark.full
def test_functions_with_sensors_of_their_own_are_scored_by_their_codes(data):
    from loca.typing import Measurements

    x = jnp.broadcast_to(jnp.linspace(0.0, 1.0, 6)[:, None], (20, 6, 1))
    own = Samples(Measurements(data.u, x, jnp.ones((20, 6), bool)), data.y, data.s, domain=data.domain)
    model = loca.calibrate(LOCA.create(own, key=jax.random.key(0), **SIZES), own)
    assert np.all(model.in_distribution(own.u) > 0.0)
