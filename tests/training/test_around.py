"""A map around the network: what it learns, from which functions, and how much of it is used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Samples
from loca.exporting import compare
from loca.models import FNO, LOCA, Proportional, Regression, Sum, mean_error
from loca.symmetries import Symmetric, Symmetries
from loca.training import fit

X = np.linspace(0.0, 1.0, 8, dtype=np.float32)[:, None]
SMALL = {"num_features": 6, "lift_size": 5, "lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}
OPTIONS = {"steps": 3, "batch_size": 5, "progress": False}


def pairs(seed=0, functions=20, noise=0.0):
    """s = 2 u + u²/10 at all sensors, with noise."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(functions, 2))
    u = (a @ np.stack([np.cos(np.pi * X[:, 0]), np.ones(8)])).astype(np.float32)
    return Samples(u, X, 2.0 * u + 0.1 * u**2 + noise * rng.normal(size=u.shape), x=X)


def network(data):
    return LOCA.create(data, key=jax.random.key(0), **SMALL)


@pytest.mark.slow
def test_a_network_learns_what_maps_of_other_functions_leave_over():
    """Every fifth function is predicted by a map that was fitted to the others; the sum uses a map fitted to all."""
    data, fitted = pairs(), []

    def ridge(samples):
        fitted.append(np.asarray(samples.u))
        return Regression.fit(samples, 2)

    found, history = fit(network(data), data, around=ridge, **OPTIONS)
    left = np.zeros(data.s.shape, np.float32)
    for k in range(5):
        rows, others = (jnp.asarray(np.flatnonzero((np.arange(20) % 5 == k) == own)) for own in (True, False))
        np.testing.assert_array_equal(fitted[k + 1], data.u[others])
        left[rows] = data.s[rows] - Regression.fit(data.take(others), 2).predict(data.u[rows], data.y)
    assert len(fitted) == 6
    remaining = Samples(data.u, X, left, x=X)
    expected, same = fit(network(remaining), remaining, **OPTIONS)
    assert history.moments[-1].loss == pytest.approx(same.moments[-1].loss, rel=1e-5)
    total = Regression.fit(data, 2).predict(data.u, data.y) + expected.predict(data.u, data.y)
    np.testing.assert_allclose(found.predict(data.u, data.y), total, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_factor_is_the_best_on_validation_functions():
    """None is better than a network that has learned noise; all of it if it has learned a part of what is left."""
    clean, noisy = pairs(functions=40), pairs(functions=40, noise=1.0)
    base = Proportional.fit(noisy)
    options = {"around": lambda data: base, "progress": False}
    wrong, _ = fit(network(noisy), noisy, steps=300, validate=pairs(1), **options)
    assert mean_error(wrong, pairs(1)) <= mean_error(base, pairs(1)) * (1.0 + 1e-6)
    assert wrong.weights[1][0] < 0.2
    right, _ = fit(network(clean), clean, steps=300, validate=pairs(1), **options)
    assert right.weights[1][0] > 0.8
    assert mean_error(right, pairs(2)) < 0.5 * mean_error(base, pairs(2))


@pytest.mark.full
def test_images_of_a_function_are_in_one_part():
    """With symmetries the map is fitted to images, too, and the average over the group has error bars."""
    data, fitted = pairs(), []

    def proportional(samples):
        fitted.append(np.asarray(samples.u))
        return Proportional.fit(samples)

    model = FNO.create(data, key=jax.random.key(0), modes=2, width=3, depth=1)
    found, _ = fit(model, data, symmetries=["reflect y1"], around=proportional, validate=pairs(1), **OPTIONS)
    images = np.asarray(Symmetries.of("reflect y1", data).augment(data).u).reshape(20, 2, 8, 1)
    for k in range(5):
        np.testing.assert_array_equal(fitted[k + 1].reshape(16, 2, 8, 1), images[np.arange(20) % 5 != k])
    assert isinstance(found, Symmetric)
    assert isinstance(found.operator, Sum)
    assert (found.predict_error_bars(data.u, data.y).std > 0.0).all()


@pytest.mark.full
def test_it_is_one_model(tmp_path):
    """Few labels, calibration, fixed queries, file and program."""
    data, path = pairs().observe(jax.random.key(0), 3), tmp_path / "model.safetensors"
    found, _ = fit(network(data), data, around=Proportional.fit, validate=pairs(1), **OPTIONS)
    calibrated = loca.calibrate(found, pairs(2))
    loca.save(calibrated, path)
    again, u = loca.load(path), pairs(3).u
    np.testing.assert_array_equal(again.predict(u, X), calibrated.predict(u, X))
    np.testing.assert_allclose(found.at(jnp.asarray(X))(u[0]), found(u[0], X), rtol=1e-5)
    artifact = loca.export(again, tmp_path / "model.stablehlo", y=X)
    assert max(each.relative for each in compare(artifact, again)) <= 1e-5


def test_it_refuses_what_it_cannot_fit():
    with pytest.raises(ValueError, match="at least two functions in memory"):
        fit(network(pairs()), pairs(functions=1), around=Proportional.fit, **OPTIONS)
    positive = Samples(jnp.exp(pairs().u), X, jnp.exp(pairs().s), x=X)
    model = LOCA.create(positive, key=jax.random.key(0), transforms={"s1": "log"}, **SMALL)
    with pytest.raises(ValueError, match="log needs positive values"):
        fit(model, positive, around=Proportional.fit, **OPTIONS)
