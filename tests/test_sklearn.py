"""The estimator follows the rules of scikit-learn and gives the same numbers as the package itself."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import loca
from loca.data import Samples
from loca.gaussian import Hyperparameters
from loca.models import DeepONet
from loca.sklearn import OperatorRegressor
from loca.training import default_optimizer, fit

TINY = {"num_features": 4, "branch_widths": (4,), "trunk_widths": (4,)}
"""Sizes of a DeepONet."""

RIDGE = OperatorRegressor("ridge", options={"strength": 1e-6})

EXPECTED_FAILURES = {"check_do_not_raise_errors_in_init_or_set_params": "tests check types at run time"}
"""Checks of scikit-learn that do not apply to functional data, and why."""


def linear(count=30, sensors=6, locations=5):
    """Inputs, and outputs that depend on them linearly."""
    random = np.random.default_rng(0)
    X = random.normal(size=(count, sensors))
    return X, X @ random.normal(size=(sensors, locations)) + 3.0


def test_ridge_recovers_a_linear_operator():
    X, y = linear()
    regressor = OperatorRegressor("ridge", options={"strength": 1e-9}).fit(X[:25], y[:25])
    np.testing.assert_allclose(regressor.predict(X[25:]), y[25:], rtol=1e-3, atol=1e-3)
    assert regressor.score(X[25:], y[25:]) > 0.999
    assert regressor.predict(X[:3], at=[0.0, 0.26]) == pytest.approx(regressor.predict(X[:3])[:, :2])  # the nearest


@pytest.mark.full
def test_training_is_that_of_the_package():
    X, y = linear(count=8)
    regressor = OperatorRegressor("deeponet", options=TINY, steps=3, batch_size=4, rate=1e-2, seed=5).fit(X, y)
    u, s, places = (jnp.asarray(a, jnp.float32) for a in (X[..., None], y[..., None], np.linspace(0, 1, 5)[:, None]))
    data = Samples(u, places, s)
    start = DeepONet.create(data, key=jax.random.key(5), **TINY)
    model, history = fit(start, data, steps=3, optimizer=default_optimizer(3, 1e-2), batch_size=4, seed=5)
    assert [moment.loss for moment in regressor.history_] == [moment.loss for moment in history]
    np.testing.assert_allclose(regressor.predict(X), model.predict(u, data.y)[..., 0], rtol=1e-5, atol=1e-6)
    elsewhere = jnp.array([[0.3], [0.77]])
    found = regressor.predict(X, at=[0.3, 0.77])
    np.testing.assert_allclose(found[2], model(u[2], elsewhere)[:, 0], rtol=1e-5, atol=1e-6)


def test_channels_are_interleaved():
    X, y = linear(sensors=6, locations=8)
    regressor = OperatorRegressor("ridge", input_channels=3, output_channels=2, sensors=[0.0, 1.0]).fit(X, y)
    assert regressor.operator_.sensors.shape == (2, 1)
    assert regressor.locations_.shape == (4, 1)
    assert regressor.predict(X).shape == y.shape
    assert regressor.predict(X, at=np.linspace(0, 1, 7)).shape == (30, 14)
    image = X.reshape(30, 2, 3)
    np.testing.assert_array_equal(clone(regressor).fit(image, y).predict(image), regressor.predict(X))


def test_pipelines_and_searches_work():
    X, y = linear()
    pipeline = make_pipeline(StandardScaler(), OperatorRegressor("ridge"))
    sizes = [{"strength": strength} for strength in (1e-8, 10.0)]
    search = GridSearchCV(pipeline, {"operatorregressor__options": sizes}, cv=2).fit(X, y)
    assert search.best_params_ == {"operatorregressor__options": sizes[0]}
    copy = clone(search.best_estimator_[-1])
    assert copy.options == sizes[0]
    assert not hasattr(copy, "operator_")


@pytest.mark.slow
def test_the_gaussian_operator_knows_its_error():
    X, y = linear(count=60)
    regressor = OperatorRegressor("gaussian", options={"hyperparameters": Hyperparameters(length=20.0)}).fit(X, y)
    mean, std = regressor.predict(X, return_std=True)
    np.testing.assert_allclose(mean, regressor.predict(X), rtol=1e-4, atol=1e-4)
    locations = regressor.locations_
    np.testing.assert_allclose(std[3], regressor.operator_.std(X[3], locations)[:, 0], rtol=1e-2, atol=1e-4)
    far = regressor.predict(10.0 * X[:2], [0.1, 0.6], return_std=True)[1]
    assert far.shape == (2, 2)
    assert np.all(far > 2.0 * std[:2].max())
    assert regressor.report_.iterations > 0
    with pytest.raises(ValueError, match="Regression does not know its error; use model='gaussian'"):
        clone(RIDGE).fit(X, y).predict(X, return_std=True)


@pytest.mark.full
def test_the_best_model_is_chosen():
    X, y = linear(count=12)
    regressor = OperatorRegressor("best", options={"minutes": 1e-3}).fit(X, y)
    assert regressor.report_.winner.model in ("ridge", "Gaussian")
    assert regressor.predict(X).shape == y.shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "transformer"}, "expected model to be one of .*'ridge', 'gaussian', .*'best', got 'transformer'"),
        ({"locations": [0.0, 1.0]}, "y has 5 values of 1 channels per function but there are 2 locations"),
        ({"input_channels": 4}, "X has 6 values per function, which is no multiple of input_channels=4"),
        ({"model": "fno"}, "an FNO needs sensors on a grid"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        OperatorRegressor(**{"model": "ridge", **options}).fit(*linear())


@pytest.mark.slow
@parametrize_with_checks([RIDGE], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_every_check_of_scikit_learn(estimator, check):
    check(estimator)


def test_it_is_an_attribute_of_the_package():
    assert loca.sklearn.OperatorRegressor is OperatorRegressor
    assert "sklearn" in dir(loca)
    hidden = "import sys, loca; sys.modules['sklearn'] = sys.modules['sklearn.base'] = None; loca.sklearn"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert "pip install loca-jax[sklearn]" in done.stderr
