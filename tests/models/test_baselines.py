"""Answers without training: closed forms, and what they must find exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Free, Samples
from loca.evaluation import evaluate, mean_field
from loca.models import Proportional, Regression


def linear_functions(key, functions=60, sensors=7, locations=5):
    """s = A u + c at every location, with inputs of full rank."""
    u_key, a_key, c_key, y_key = jax.random.split(key, 4)
    u = jax.random.normal(u_key, (functions, sensors, 1))
    s = jnp.einsum("ps,nsd->npd", jax.random.normal(a_key, (locations, sensors)), u)
    y = jax.random.uniform(y_key, (locations, 2))
    return Samples(u, y, s + jax.random.normal(c_key, (locations, 1)), x=jax.random.uniform(c_key, (sensors, 2)))


@pytest.mark.parametrize("labels", [5, 3])
def test_a_linear_operator_is_found(getkey, labels):
    """Without penalty, from all labels or from some of them at every location."""
    samples = linear_functions(getkey())
    model = Regression.fit(samples.observe(getkey(), labels), components=7, strength=0.0)
    report = evaluate(model, samples, metrics=["relative_l2"])
    assert report.errors["relative_l2"].max() < 1e-5


@pytest.mark.parametrize(("options", "atol"), [({"components": 0}, 1e-5), ({"components": 7, "strength": 1e6}, 1e-3)])
def test_without_components_or_with_a_large_penalty_it_is_the_mean_field(getkey, options, atol):
    samples = linear_functions(getkey()).observe(getkey(), 3)
    answer = Regression.fit(samples, **options)(samples.u[0], samples.y.points)
    np.testing.assert_allclose(answer, mean_field(samples), rtol=1e-5, atol=atol)


def test_factors_are_found(getkey):
    """s = (2u₁, −3u₂), labeled at some of the sensors."""
    x = jax.random.uniform(getkey(), (9, 2))
    u = jax.random.normal(getkey(), (20, 9, 2))
    samples = Samples(u, x, u * jnp.array([2.0, -3.0]), x=x)
    model = Proportional.fit(samples.observe(getkey(), 4))
    np.testing.assert_allclose(model.factors, [2.0, -3.0], rtol=1e-5)
    assert evaluate(model, samples, metrics=["relative_l2"]).errors["relative_l2"].max() < 1e-6


def test_what_cannot_be_fitted_is_said(getkey):
    samples = linear_functions(getkey())
    with pytest.raises(ValueError, match="as many input as output channels"):
        Proportional.fit(Samples(samples.u, samples.y, jnp.tile(samples.s, 2), x=samples.x))
    free = Samples(samples.u, Free(samples.y.locations(len(samples))), samples.s, x=samples.x)
    with pytest.raises(ValueError, match="its own query locations"):
        Regression.fit(free)


@pytest.mark.parametrize("labels", [5, 3])
def test_several_fits_at_once_are_those_one_by_one(getkey, labels):
    samples = linear_functions(getkey()).observe(getkey(), labels)
    found = Regression.fits(samples, [0, 3, 9], [1e-4, 1.0])
    expected = [Regression.fit(samples, k, strength) for k in (0, 3, 9) for strength in (1e-4, 1.0)]
    for one, other in zip(found, expected, strict=True):
        assert one.components.shape == other.components.shape
        np.testing.assert_allclose(one.responses, other.responses, rtol=1e-5, atol=1e-6)
