"""A length for each part of the inputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime

import loca
from loca.gaussian import Hyperparameters
from loca.gaussian.equation import PreparedData, groups_of, scales_of
from loca.gaussian.features import InputKernel
from loca.gaussian.relevance import LeaveOneOut, with_relevances
from loca.typing import MultiInput


def example():
    """Codes in three groups, and two channels at some of seven locations."""
    rng = np.random.default_rng(0)
    codes, groups = rng.normal(size=(20, 4)), np.array([0, 1, 2, 2])
    values, known = rng.normal(size=(2, 20, 7)), (rng.uniform(size=(20, 7)) < 0.7).astype(float)
    return codes, groups, values, known, rng.uniform(0.5, 2.0, (2, 20))


POINT = np.array([-0.5, 0.3, -1.0, -1.0, -2.0])


def test_the_error_is_that_of_processes_without_one_function():
    """The same kernel as that of the operator, and one process for each function that is left out."""
    codes, groups, values, known, weights = example()
    (hyper, *_) = with_relevances(Hyperparameters(), POINT, 7)
    scales = scales_of(codes, groups, 0.0, hyper.relevances)
    kernel = InputKernel(*map(np.asarray, (1.0, hyper.linear, hyper.length, scales)))
    k, errors = kernel.matrix(codes, codes), []
    for n in range(20):
        others = np.delete(np.arange(20), n)
        noisy = k[np.ix_(others, others)] + np.exp(POINT[-1]) * np.eye(19)
        left = values[:, n] - k[n, others] @ np.linalg.solve(noisy, values[:, others])
        errors.append(weights[:, n] * np.linalg.norm(known[n] * left, axis=1))
    found, _ = LeaveOneOut.of(*example())(POINT)
    np.testing.assert_allclose(np.exp(found), np.mean(errors), rtol=1e-10)


def test_its_gradient_is_that_of_differences():
    error = LeaveOneOut.of(*example())
    np.testing.assert_allclose(error(POINT)[1], approx_fprime(POINT, lambda p: error(p)[0]), atol=1e-6)


def test_codes_are_grouped_by_scalars_and_inputs():
    rng = np.random.default_rng(0)
    field, few, scalars = rng.normal(size=(30, 40, 1)), rng.normal(size=(30, 2, 1)), rng.normal(size=(30, 2))
    scalars[:, 1] = 3.0  # a constant has no length, and spoils nothing
    u = MultiInput((jnp.asarray(field), jnp.asarray(few)), jnp.asarray(scalars))
    data = loca.Samples(u, np.linspace(0, 1, 5)[:, None], rng.normal(size=(30, 5, 1)), x=(None, None))
    prepared = PreparedData.fit(data, (), is_grouped=True)
    size = prepared.encoder.encoders[0].size
    np.testing.assert_array_equal(prepared.groups, [*[0] * size, 1, 2, 3, 4])
    np.testing.assert_array_equal(groups_of(prepared.encoder), prepared.groups)
    own = (0.1, 0.2, 0.3, 0.4, 0.5)
    scaled = prepared.codes * scales_of(prepared.codes, prepared.groups, 0.5, own)
    sizes = [np.sqrt(np.mean(np.sum(scaled[:, prepared.groups == i] ** 2, axis=1))) for i in range(5)]
    np.testing.assert_allclose(sizes[:4] / sizes[0], [1.0, 2.0, 3.0, 4.0], rtol=1e-5)
    assert np.isfinite(scaled).all()
    with pytest.raises(ValueError, match="the inputs have 5 parts, but hyperparameters have 2 relevances"):
        scales_of(prepared.codes, prepared.groups, 0.0, (1.0, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("labels", [pytest.param(12, marks=pytest.mark.full), 30])
def test_numbers_that_matter_are_found(labels):
    """Two of five numbers determine a curve; at some of its points as well as at all of them."""
    rng = np.random.default_rng(0)
    p, t = rng.uniform(-1.0, 1.0, (140, 5)), np.linspace(0.0, 1.0, 30)
    s = np.sin(3.0 * p[:, :1] + 4.0 * t) * np.exp(p[:, 1:2])
    runs = loca.Samples(p[:, None, :], t[:, None], s[:, :, None])
    train, test = runs.take(jnp.arange(60)), runs.take(jnp.arange(60, 140))
    if labels < 30:
        train = train.observe(jax.random.key(0), labels)
    operator, report = loca.solve(train, progress=False)
    found = np.array(report.hyperparameters.relevances)
    assert found[:2].min() > 5.0 * found[2:].max()
    one = dataclasses.replace(report.hyperparameters, relevances=(), length=2.0)
    without, _ = loca.solve(train, hyperparameters=one, progress=False)
    errors = [loca.evaluate(each, test).errors["relative_l2"].mean() for each in (operator, without)]
    assert errors[0] < 0.3 * errors[1]
