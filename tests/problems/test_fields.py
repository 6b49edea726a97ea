"""Random functions have the covariance they promise, whatever the grid."""

import numpy as np
import pytest
import scipy.integrate

from loca.problems.antiderivative import GaussianProcess
from loca.problems.darcy import MaternField


@pytest.mark.parametrize("length", [0.01, 0.1, 0.9, 10.0])
def test_the_series_has_the_covariance_of_the_process(length):
    process = GaussianProcess(length, variance=3.0)
    r = np.linspace(0.0, 1.0, 101)
    # Cov(u(x), u(x')) of a stationary series is Σ var_k cos ω_k (x − x')
    series = np.cos(r[:, None] * process.frequencies) @ process.variances
    np.testing.assert_allclose(series, 3.0 * np.exp(-(r**2) / (2.0 * length**2)), rtol=0.0, atol=1e-12)


def test_draws_follow_the_variances():
    process = GaussianProcess(0.2)
    generator = np.random.default_rng(0)
    draws = np.stack([process.draw(generator) for _ in range(4000)])
    kept = process.variances > 1e-6
    ratio = draws.var(axis=0)[:, kept] / process.variances[kept]
    # the sampling deviation of a variance over 4000 normal draws is √(2/4000) = 0.022; five of them
    assert np.abs(ratio - 1.0).max() < 0.11


@pytest.mark.parametrize("length", [0.01, 0.1, 1.0])
def test_the_antiderivative_of_a_draw(length):
    process = GaussianProcess(length)
    coefficients = process.draw(np.random.default_rng(1))
    y = np.array([0.0, 0.003, 0.37, 1.0])
    s = process.integrate(coefficients, y)
    for end, value in zip(y, s, strict=True):
        expected, _ = scipy.integrate.quad(
            lambda x: process.evaluate(coefficients, np.array([x]))[0], 0.0, end, epsabs=1e-12, epsrel=1e-12, limit=500
        )
        assert value == pytest.approx(expected, abs=1e-10)


def test_eigenfunctions_are_orthonormal():
    field = MaternField(1.0, 7.0, 1.5, modes=9)
    t, w = np.polynomial.legendre.leggauss(40)
    phi = field.basis(0.5 * (t + 1.0))
    np.testing.assert_allclose(phi.T @ (0.5 * w[:, None] * phi), np.eye(9), atol=1e-12)


def test_eigenfunctions_solve_the_eigenvalue_problem():
    field = MaternField(1.0, 7.0, 1.5, modes=5)
    h, x = 1e-4, np.linspace(0.1, 0.9, 9)
    second = (field.basis(x + h) - 2.0 * field.basis(x) + field.basis(x - h)) / h**2
    np.testing.assert_allclose(-second, field.frequencies**2 * field.basis(x), atol=1e-4)
    ends = np.array([0.0, 1.0])
    slope = (field.basis(ends + h) - field.basis(ends - h)) / (2.0 * h)
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


def test_the_literal_field_has_the_known_deviation():
    x = np.linspace(0.0, 1.0, 32)
    field = MaternField(7.0**1.5, 7.0, 1.5, modes=32)
    variance = (field.basis(x) ** 2) @ field.variances @ (field.basis(x) ** 2).T
    assert np.sqrt(variance.mean()) == pytest.approx(0.75, abs=0.01)


def test_impossible_fields_are_refused():
    with pytest.raises(ValueError, match="exponent > 1"):
        MaternField(1.0, 7.0, 1.0, modes=8)
