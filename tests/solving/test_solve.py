"""Solved operators: the posterior of a Gaussian process, computed directly and by conjugate gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Free, Indexed, Normalization, Samples, Shared
from loca.domains import Box, Sphere, Torus
from loca.encoders import PrincipalComponents
from loca.solving import Hyperparameters
from loca.solving.solve import Problem, solve_with

HYPER = Hyperparameters(length=1.5, damping=0.5, linear=0.7, location_length=0.4, noise=1e-2)


def example(domain=None, functions=12, channels=2, side=5):
    """Random smooth functions on a grid."""
    domain = domain or Box.unit(2)
    line = (np.arange(side) + 0.5) / side
    t = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    y = domain.from_unit(jnp.asarray(t))
    rng = np.random.default_rng(0)
    u = jnp.asarray(rng.normal(size=(functions, 7, 1)))
    a = jnp.asarray(rng.normal(size=(functions, 3, channels)))
    waves = jnp.stack([jnp.sin(3 * y[:, 0]), jnp.cos(2 * y[:, 1]), y[:, 0] * y[:, 1]], axis=1)
    s = jnp.einsum("pk,nkc->npc", waves, a) + u[:, :1, :] ** 2
    return Samples(u, Shared(y), s, x=jnp.linspace(0, 1, 7)[:, None], domain=domain)


def as_problem(data):
    normalization = Normalization.fit(data)
    encoder = PrincipalComponents.fit(normalization.standardize_input(data.u), 7)
    return Problem(data, normalization, encoder)


def direct(problem, hyper, u, y):
    """The posterior mean by a Cholesky factorization of the covariance of all labels, label by label."""
    n, data = problem.normalization, problem.data
    rates = (1.0 + np.arange(problem.codes.shape[1]) / 20.0) ** -hyper.damping / hyper.length

    def matern(r):
        t = np.sqrt(5.0) * r
        return (1 + t + t**2 / 3) * np.exp(-t)

    def k_u(a, b):
        return 1.0 + hyper.linear * a @ b + matern(np.linalg.norm(rates * (a - b)))

    def k_y(a, b):
        extents = [high - low for low, high in data.domain.bounds]
        product = 1.0
        for i, (extent, period) in enumerate(zip(extents, data.domain.periods, strict=True)):
            distance = abs(a[i] - b[i])
            if period is not None:
                distance = period / np.pi * abs(np.sin(np.pi * distance / period))
            product *= matern(distance / (hyper.location_length * extent))
        return product

    z = np.asarray(problem.codes)
    places = np.asarray(data.y.locations(len(data)))
    pairs = [(i, places[i, p]) for i in range(len(data)) for p in range(places.shape[1])]
    covariance = np.array([[k_u(z[i], z[j]) * k_y(a, b) for j, b in pairs] for i, a in pairs])
    values = np.asarray(n.standardize_output(data.s)).reshape(len(pairs), -1)
    weights = np.linalg.solve(covariance + hyper.noise * np.eye(len(pairs)), values)
    code = np.asarray(problem.encoder(n.standardize_input(u)))
    cross = np.array([[k_u(code, z[j]) * k_y(a, b) for j, b in pairs] for a in np.asarray(y)])
    return np.asarray(n.restore_output(jnp.asarray(cross @ weights)))


@pytest.mark.parametrize("domain", [Box((0.0, -1.0), (2.0, 1.0)), Torus.unit(2)], ids=["Box", "Torus"])
def test_the_mean_is_that_of_the_full_covariance(domain, x64):
    data = example(domain).observe(jax.random.key(0), 9)
    problem = as_problem(data)
    operator, found = solve_with(problem, HYPER, (100, 100), 1e-13, 1000)
    assert float(found.residual.max()) < 1e-12
    u, y = data.u[3] + 0.3, domain.from_unit(jnp.asarray([[0.1, 0.9], [0.55, 0.2]]))
    # predictions between the labeled locations go through features that are exact on the grid only
    at_grid = data.y.points[::4]
    np.testing.assert_allclose(operator(u, at_grid), direct(problem, HYPER, u, at_grid), atol=1e-8)
    np.testing.assert_allclose(operator(u, y), direct(problem, HYPER, u, y), atol=1e-8)


def test_free_queries_equal_indexed_ones(x64):
    data = example().observe(jax.random.key(0), 9)
    free = dataclasses.replace(data, y=Free(data.y.locations(len(data))))
    assert isinstance(data.y, Indexed)
    problems = [as_problem(data), as_problem(free)]
    h = problems[0].location_features(HYPER.location_length, 100)
    problems[1]._locations = {(HYPER.location_length, 100): h}
    c = [solve_with(p, HYPER, (100, 100), 1e-13, 1000)[0].coefficients for p in problems]
    np.testing.assert_allclose(c[0], c[1], atol=1e-10)
