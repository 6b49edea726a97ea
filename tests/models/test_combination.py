"""Combinations: convex weights, mixtures of members that differ in everything, saved and exported as one model."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import loca
from commands import command, words
from loca.data import Free, Indexed, Samples, Shared
from loca.exporting import compare
from loca.models import Combination, Regression, around, combine, mean_error
from loca.models.combination import convex_weights

X = np.linspace(0.0, 1.0, 8, dtype=np.float32)[:, None]
GIVEN = {"length": 2.0, "noise": 1e-3, "amplitudes": (1.0, 1.0)}


def data(seed, functions=40):
    """A positive input, and two outputs."""
    rng = np.random.default_rng(seed)
    u = np.exp(0.3 * rng.normal(size=(functions, 8))).astype(np.float32)
    s = np.stack([np.cumsum(u, axis=1), u**2], axis=-1)
    return Samples(u[..., None], X, s, x=X)


@pytest.fixture(scope="module")
def members():
    train = data(0)
    ridge = Regression.fit(train, 3, transforms={"u1": "log", "s1": "log"})
    return {"Gaussian": loca.solve(train, hyperparameters=GIVEN)[0], "ridge": ridge}


@pytest.fixture(scope="module")
def model(members):
    return Combination.of(members, np.array([[0.7, 0.2], [0.3, 0.8]]), data(1))


def test_weights_minimize_the_mean_error():
    """Two errors of opposite sign cancel; otherwise no weights on a fine grid are better."""
    e = np.array([[1.0, -0.5], [2.0, -1.0]])  # functions × members, one value each
    np.testing.assert_allclose(convex_weights(e[:, :, None] * e[:, None]), [1.0 / 3.0, 2.0 / 3.0], atol=1e-4)
    rng = np.random.default_rng(0)
    e = rng.normal(size=(30, 12, 3)) * np.array([1.0, 1.3, 2.0])
    products = np.einsum("npk,npl->nkl", e, e)
    w = convex_weights(products)
    assert w.min() >= 0.0
    assert w.sum() == pytest.approx(1.0)
    a, b = np.meshgrid(*2 * [np.linspace(0.0, 1.0, 51)])
    grid = np.stack([a, b, 1.0 - a - b], axis=-1)[a + b <= 1.0 + 1e-9]
    errors = [np.linalg.norm(e @ each, axis=1).mean() for each in (w, *grid)]
    assert errors[0] <= min(errors[1:]) + 1e-6


@pytest.mark.slow
def test_a_combination_is_the_mean_in_units_of_the_data(members, model):
    test = data(2, 5)
    points = test.y.points[::3] + 0.01
    index = jnp.tile(jnp.array([[1, 0, 2]]), (5, 1))
    for queries in (Shared(points), Indexed(points, index), Free(points[index])):
        first, second = (each.predict(test.u, queries) for each in members.values())
        mean = jnp.array([0.7, 0.2]) * first + jnp.array([0.3, 0.8]) * second
        found = model.predict_error_bars(test.u, queries)
        np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-5)
        sigma = members["Gaussian"].predict_error_bars(test.u, queries).std
        variance = jnp.array([0.7, 0.2]) * ((first - mean) ** 2 + sigma**2)
        variance += jnp.array([0.3, 0.8]) * (second - mean) ** 2
        np.testing.assert_allclose(found.std, jnp.sqrt(variance), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(model.at(points)(test.u[0]), model(test.u[0], points), rtol=1e-5)


def test_a_sum_has_the_error_bars_of_its_members(members):
    """Those of a Gaussian operator beside a map without any, whatever its weight."""
    gaussian, test = members["Gaussian"], data(2, 5)
    found = around(members["ridge"], gaussian, None, data(1))
    half = dataclasses.replace(found, weights=((1.0, 1.0), (0.5, 0.5)))
    expected = gaussian.predict_error_bars(test.u, test.y)
    for operator, factor in ((found, 1.0), (half, 0.5)):
        bars = operator.predict_error_bars(test.u, test.y)
        ridge = members["ridge"].predict(test.u, test.y)
        np.testing.assert_allclose(bars.mean, ridge + factor * expected.mean, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(bars.std, factor * expected.std, rtol=1e-3, atol=1e-5)


def test_it_refuses_what_a_member_refuses(model):
    with pytest.raises(ValueError, match="log needs positive values"):
        model(-data(2).u[0], X)


@pytest.mark.slow
def test_errors_are_those_of_functions_that_chose_no_weights(members):
    validation = data(1)
    alone = {name: mean_error(each, validation) for name, each in members.items()}
    found = combine(members, validation)
    assert mean_error(found.operator, validation) <= min(alone.values()) * (1.0 + 1e-6)
    same = combine({"a": members["ridge"], "b": members["ridge"]}, validation)
    assert same.error == pytest.approx(alone["ridge"], rel=1e-5)
    scores = loca.models.uncertain.standardized_errors(found.operator, validation.u, validation.y, validation.s)
    np.testing.assert_allclose((scores < 1.6449).mean(axis=(0, 1)), 0.9, atol=0.02)
    with pytest.raises(ValueError, match="at least two operators"):
        combine({"a": members["ridge"]}, validation)


@pytest.mark.slow
def test_it_is_saved_inspected_calibrated_and_exported_as_one_model(model, tmp_path):
    test, path = data(2, 20), tmp_path / "model.safetensors"
    calibrated = loca.calibrate(model, test)
    loca.save(calibrated, path)
    again = loca.load(path)
    np.testing.assert_array_equal(again.predict(test.u, test.y), calibrated.predict(test.u, test.y))
    assert "Gaussian 0.7, 0.2; ridge 0.3, 0.8" in words(command("inspect", path))
    artifact = loca.export(again, tmp_path / "model.stablehlo", y=X)
    assert max(each.relative for each in compare(artifact, again)) <= 1e-5
