"""Derivative-informed training and Sobol indices."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import sobol_indices, uniform

import loca
from loca.data import Identity, Log, Normalization, Samples, Variable
from loca.domains import Box
from loca.inversion import Prior
from loca.losses import mean_squared
from loca.models import LOCA, Operator, Signature
from loca.sensitivity import SobolIndices, Tangent, sobol, tangents
from loca.training import Encoded
from loca.typing import Measurements, MultiInput, values_of

KEY = jax.random.key(0)
X = np.linspace(0.0, 1.0, 6)
Y = np.linspace(0.0, 1.0, 5)
SHAPES = np.stack([np.ones(6), np.sin(3 * X), np.cos(5 * X)])
BASIS = np.cos(np.outer(Y, X)) / len(X)
"""F(u)(y) = (BASIS u)², DF(u)du = 2 (BASIS u)(BASIS du)."""


class Quadratic(Operator):
    """F(u)(y) = c·(BASIS u)² in the units of the data, whatever the normalization; c = 1 is the truth."""

    normalization: Normalization
    c: jax.Array

    def encode(self, u):
        return sum(jnp.asarray(BASIS) @ values for values in values_of(u))

    def respond(self, codes, queries):
        return self.normalization.at(queries).standardize(self.c * codes**2)


def quadratic(count, directions=2, seed=0, mean=1.0, spread=0.3):
    """Functions, directions and derivatives."""
    rng = np.random.default_rng(seed)
    u, du = mean + spread * rng.normal(size=(count, 3)) @ SHAPES, rng.normal(size=(count, directions, 3)) @ SHAPES
    s, ds = (u @ BASIS.T) ** 2, 2.0 * (u @ BASIS.T)[:, None] * (du @ BASIS.T)
    return Samples(u, Y, s, x=X, domain=Box.unit(1)), du, ds


def loss_of(tangent, pairs):
    encoded = Encoded.of(tangent, pairs)
    return float(tangent.objective(mean_squared, encoded.codes, encoded.queries, encoded.s))


@pytest.mark.parametrize("transforms", [None, {"s1": "log"}])
def test_the_loss_of_exact_derivatives_is_zero_and_that_of_others_is_known(transforms):
    data, du, ds = quadratic(7)
    exact = Quadratic(Normalization.fit(data, transforms), jnp.ones(1), signature=Signature.of(data))
    tangent, pairs = tangents(exact, data, du, ds)
    assert loss_of(tangent, pairs) < 1e-10
    tangent, pairs = tangents(exact, data, du, 2.0 * ds, weight=3.0)  # errors ds, relative to 2 ds: a quarter
    assert loss_of(tangent, pairs) == pytest.approx(3.0 * 0.25 / (1 + 2), rel=1e-4)
    found = np.asarray(tangent.predict(pairs.u, pairs.y))
    np.testing.assert_allclose(found[..., 0], data.s[..., 0], rtol=1e-4)
    np.testing.assert_allclose(found[..., 1:], ds.transpose(0, 2, 1), rtol=1e-3, atol=1e-4)


@pytest.mark.full
def test_derivatives_of_the_tangent_operator_are_those_of_jvp():
    """For a nonlinear encoder, few labels, and transforms of inputs and outputs."""
    problem = loca.problems.Darcy(resolution=8, preset="easy")
    data = problem.sample(KEY, 6).observe(KEY, 9)
    sizes = {"num_features": 4, "lift_size": 4, "lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}
    model = LOCA.create(data, key=KEY, transforms={"permeability": "log", "pressure": "asinh"}, **sizes)
    du = jax.random.normal(KEY, (6, 2, 64))
    tangent, pairs = tangents(model, data, du, jnp.ones((6, 2, 9)))
    found, y = tangent.predict(pairs.u, pairs.y), data.y.locations(6)
    for i, k in ((0, 0), (3, 1)):
        expected = model.jvp(data.u[i], du[i, k], y[i])
        np.testing.assert_allclose(found[i, :, 1 + k], expected[:, 0], rtol=1e-3, atol=1e-4 * np.abs(expected).max())


class Form(Operator):
    """F(u)(yⱼ) = zᵀ Aⱼ z with the three coefficients z of u and learned matrices A."""

    normalization: Normalization
    A: jax.Array

    def encode(self, u):
        return jnp.asarray(np.linalg.pinv(SHAPES.T)) @ u[:, 0]

    def respond(self, codes, queries):
        s = jnp.einsum("ni,pij,nj->np", codes, self.A, codes)[..., None]
        return self.normalization.at(queries).standardize(s)


@pytest.mark.slow
def test_training_with_derivatives_gives_better_derivatives():
    """Four values do not determine the six coefficients of a quadratic form; with two derivatives each they do."""
    data, du, ds = quadratic(4, mean=0.0, spread=1.0)
    test, test_du, test_ds = quadratic(20, directions=1, seed=1, mean=0.0, spread=1.0)
    start = Form(Normalization.fit(data), jnp.zeros((5, 3, 3)), signature=Signature.of(data))
    options = {"steps": 2000, "progress": False, "optimizer": optax.adam(0.05)}
    plain, _ = loca.fit(start, data, **options)
    trained, history = loca.fit(*tangents(start, data, du, ds), **options)
    assert isinstance(trained, Tangent)
    assert history.moments[-1].loss < 1e-6

    def error(model):
        found = [model.jvp(u, du[0], Y)[:, 0] for u, du in zip(test.u, test_du, strict=True)]
        return np.linalg.norm(np.stack(found) - test_ds[:, 0]) / np.linalg.norm(test_ds)

    assert error(plain) > 0.1  # though its values are exact
    assert error(trained.operator) < 1e-3


def test_several_inputs_and_data_in_another_order():
    """F = (BASIS (a + b))² ν from two fields and a number, on reversed sensors and queries."""

    class Several(Quadratic):
        def encode(self, u):
            return jnp.sqrt(u.scalars[0]) * (jnp.asarray(BASIS) @ (u.fields[0] + u.fields[1]))

    rng = np.random.default_rng(0)
    a, b, nu = (jnp.asarray(rng.uniform(1.0, 2.0, size=(4, size))) for size in (6, 6, 1))
    da, db, dnu = (jnp.asarray(rng.normal(size=(4, 3, size))) for size in (6, 6, 1))
    v, dv = (a + b) @ BASIS.T, (da + db) @ BASIS.T
    s, ds = nu * v**2, 2.0 * nu[:, None] * v[:, None] * dv + dnu * v[:, None] ** 2
    names = {
        "inputs": [Variable("a"), Variable("b"), Variable("nu")],
        "sensor_coordinates": [Variable("t"), Variable("r")],
    }
    data = Samples(MultiInput((a[..., None], b[..., None]), nu), Y, s, x=(X, X), domain=Box.unit(1), **names)
    exact = Several(Normalization.fit(data), jnp.ones(1), signature=Signature.of(data))
    tangent, pairs = tangents(exact, data, MultiInput((da[..., None], db[..., None]), dnu), ds)
    assert loss_of(tangent, pairs) < 1e-10
    assert [variable.name for variable in pairs.inputs[:3]] == ["a", "b", "a_direction1"]
    back = Samples(MultiInput((a[:, ::-1, None], b[..., None]), nu), Y, s, x=(X[::-1], X), domain=Box.unit(1), **names)
    tangent, pairs = tangents(exact, back, MultiInput((da[:, :, ::-1, None], db[..., None]), dnu), ds)
    assert loss_of(tangent, pairs) < 1e-10


def test_measurements_keep_their_locations():
    data, du, ds = quadratic(5)
    own = Measurements(data.u, jnp.broadcast_to(jnp.asarray(X)[:, None], (5, 6, 1)), jnp.ones((5, 6), bool))
    measured = Samples(own, Y, data.s, domain=Box.unit(1))
    exact = Quadratic(Normalization.fit(measured), jnp.ones(1), signature=Signature.of(measured))
    assert loss_of(*tangents(exact, measured, du, ds)) < 1e-10


def test_what_cannot_be_trained_with_derivatives_is_refused():
    data, du, ds = quadratic(7)
    model = Quadratic(Normalization.fit(data), jnp.ones(1), signature=Signature.of(data))
    with pytest.raises(ValueError, match=r"du has shape \(7, 2, 5, 1\), but u has \(7, 6, 1\); pass K directions"):
        tangents(model, data, du[..., :5], ds)
    with pytest.raises(ValueError, match="Ensemble has an objective of its own"):
        tangents(loca.Ensemble.of([model, dataclasses.replace(model, c=2.0 * model.c)]), data, du, ds)


class Map(Operator):
    """F(u)(y) = (1 + y)·g(u), with one sensor."""

    normalization: Normalization

    def encode(self, u):
        return ishigami(u[0])

    def respond(self, codes, queries):
        return codes[:, None, None] * (1.0 + queries.locations(len(codes)))


def ishigami(x):
    return jnp.sin(x[0]) + 7.0 * jnp.sin(x[1]) ** 2 + 0.1 * x[2] ** 4 * jnp.sin(x[0])


def test_indices_of_the_ishigami_function():
    """Closed forms of Ishigami & Homma (1990), and the same estimates as SciPy's within their error."""
    operator = Map(Normalization.identity(3, 1))
    between = [uniform(-np.pi, 2 * np.pi)] * 3
    found = sobol(operator, lambda xi: xi[None], [0.0, 1.0], distributions=between, count=2048, key=KEY)
    v1, v2, v13 = 0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2, 49 / 8, 8 * 0.1**2 * np.pi**8 / 225
    variance = v1 + v2 + v13
    np.testing.assert_allclose(found.variance[:, 0], variance * np.array([1, 4]), rtol=0.02)
    for p in (0, 1):
        np.testing.assert_allclose(found.first[:, p, 0], np.array([v1, v2, 0]) / variance, atol=0.02)
        np.testing.assert_allclose(found.total[:, p, 0], np.array([v1 + v13, v2, v13]) / variance, atol=0.02)
    peer = sobol_indices(func=lambda x: np.array(ishigami(x)), n=2048, dists=between, rng=np.random.default_rng(0))
    np.testing.assert_allclose(found.first[:, 0, 0], peer.first_order, atol=0.02)
    np.testing.assert_allclose(found.total[:, 0, 0], peer.total_order, atol=0.02)


class Linear(Operator):
    """F(u)(y) = Σ_x cos(x y) log u(x)."""

    normalization: Normalization

    def encode(self, u):
        return jnp.asarray(np.cos(np.outer(Y, X))) @ jnp.log(u)

    def respond(self, codes, queries):
        return codes


def test_indices_of_a_linear_map_are_shares_of_its_variance():
    """F = Σ a_k(y) ξ_k has S_k = T_k = a_k²/Σ a², also in principal components of the logarithm of the input."""
    rng = np.random.default_rng(0)
    u = np.exp(rng.normal(size=(500, 3)) @ (np.array([1.0, 0.5, 0.2])[:, None] * SHAPES))
    ones, zeros = jnp.ones(1), jnp.zeros(1)
    operator = Linear(Normalization(zeros, ones, zeros, ones, (Log(),), (Identity(),)))
    prior = Prior.fit(operator.normalization, jnp.asarray(u)[..., None], share=1.0)
    assert prior.size == 3  # the functions have three degrees of freedom
    found = sobol(operator, prior, Y, count=512, key=KEY)
    _, sizes, rows = np.linalg.svd(np.log(u) - np.log(u).mean(axis=0), full_matrices=False)
    a = (np.cos(np.outer(Y, X)) @ rows[:3].T * sizes[:3] / np.sqrt(499)) ** 2
    share = (a / a.sum(axis=1, keepdims=True)).T
    np.testing.assert_allclose(found.variance[:, 0], a.sum(axis=1), rtol=0.02)
    np.testing.assert_allclose(found.first[..., 0], share, atol=0.02)
    np.testing.assert_allclose(found.total[..., 0], share, atol=0.02)
    for index in found.overall(np.arange(1.0, 6.0)):
        expected = np.arange(1.0, 6.0) @ a / np.sum(np.arange(1.0, 6.0) @ a)
        np.testing.assert_allclose(index[:, 0], expected, atol=0.02)


def test_what_has_no_indices_is_refused():
    operator = Map(Normalization.identity(1, 1))
    with pytest.raises(ValueError, match="power of two, got count=1000; use 512 or 1024"):
        sobol(operator, lambda xi: xi[None], Y, distributions=[uniform()] * 3, count=1000, key=KEY)
    constant = SobolIndices(np.zeros((2, 3, 1)), np.zeros((2, 3, 1)), np.zeros((3, 1)))
    np.testing.assert_array_equal(constant.overall()[0], np.zeros((2, 1)))
