"""Gaussian operators: the posterior of a Gaussian process, written directly and solved for."""

import dataclasses
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Free, Indexed, Normalization, Samples, Shared
from loca.domains import Box, Sphere, Torus
from loca.encoders import PrincipalComponents
from loca.gaussian import Hyperparameters, labels
from loca.gaussian.equation import Accuracy, PreparedData, Ranks
from loca.gaussian.labels import label_map, with_nugget
from loca.gaussian.system import Block, System
from loca.models import Regression, widened

HYPER = Hyperparameters(length=1.5, damping=0.5, linear=0.7, noise=1e-2, location_lengths=(0.4, 0.6))
NUGGET = dataclasses.replace(HYPER, nugget=0.05)
ALL = Ranks(100, 100)
EXACT = Accuracy(1e-13, 1000)
DRAWS = 4000 if os.environ.get("LOCA_FULL") else 1000


def example(domain=None, functions=12, channels=2, side=5):
    """Random smooth functions on a grid."""
    domain = domain or Box.unit(2)
    line = (np.arange(side) + 0.5) / side
    t = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    y = domain.from_unit(jnp.asarray(t))
    rng = np.random.default_rng(0)
    u = jnp.asarray(rng.normal(size=(functions, 7, 1)))
    a = jnp.asarray(rng.normal(size=(functions, 3, channels)))
    t = jnp.asarray(t)
    waves = jnp.stack([jnp.sin(3 * t[:, 0]), jnp.cos(2 * t[:, 1]), t[:, 0] * t[:, 1]], axis=1)
    s = jnp.einsum("pk,nkc->npc", waves, a) + u[:, :1, :] ** 2
    return Samples(u, Shared(y), s, x=jnp.linspace(0, 1, 7)[:, None], domain=domain)


def prepare(data):
    normalization = Normalization.fit(data)
    return PreparedData(data, normalization, PrincipalComponents.fit(normalization.standardize_input(data.u), 7))


def matern(r):
    t = np.sqrt(5.0) * r
    return (1 + t + t**2 / 3) * np.exp(-t)


def direct(prepared, hyper, u, y):
    """Mean and variance from the full covariance of all labels, label by label, in standardized units."""
    data, z = prepared.data, prepared.codes
    sizes = np.sqrt(np.mean(z**2, axis=0))
    scales = sizes**hyper.damping / np.linalg.norm(sizes ** (1 + hyper.damping))

    def k_u(a, b):
        a, b = scales * a, scales * b
        return 1.0 + hyper.linear * a @ b + matern(np.linalg.norm(a - b) / hyper.length)

    def k_y(a, b):
        if data.domain.is_geographic:
            a, b = (np.array([np.cos(p) * np.cos(q), np.cos(p) * np.sin(q), np.sin(p)]) for p, q in np.radians([a, b]))
            return matern(np.linalg.norm(a - b) / hyper.location_lengths[0])
        product, edges = 1.0, zip(data.domain.bounds, data.domain.periods, hyper.location_lengths, strict=True)
        for i, ((low, high), period, length) in enumerate(edges):
            distance = abs(a[i] - b[i])
            if period is not None:
                distance = period / np.pi * abs(np.sin(np.pi * distance / period))
            product *= matern(distance / (length * (high - low)))
        return product

    places, points = np.asarray(data.y.points), np.asarray(y)
    index = data.y.index if isinstance(data.y, Indexed) else np.tile(np.arange(len(places)), (len(z), 1))
    of, at = np.repeat(np.arange(len(z)), index.shape[1]), np.asarray(index).ravel()
    table = np.array([[k_y(p, q) for q in places] for p in places])
    functions = np.array([[k_u(a, b) for b in z] for a in z]) + hyper.nugget * np.eye(len(z))
    covariance = functions[np.ix_(of, of)] * table[np.ix_(at, at)]
    inverse = np.linalg.inv(covariance + hyper.noise * np.eye(len(of)))
    values = np.moveaxis(np.asarray(prepared.values), 0, 2).reshape(len(of), -1)
    code = np.asarray(prepared.encoder(prepared.normalization.standardize_input(u)))
    cross = np.array([[k_y(p, q) for q in places] for p in points])[:, at] * np.array([k_u(code, b) for b in z])[of]
    prior = (k_u(code, code) + hyper.nugget) * np.array([[k_y(p, q) for q in points] for p in points])
    variance = np.einsum("is,ij,js->s", values, inverse, values) / len(of)  # of maximum likelihood
    return cross @ inverse @ values, prior - cross @ inverse @ cross.T, variance


@pytest.mark.parametrize(
    ("domain", "hyper"),
    [
        (Box((0.0, -1.0), (2.0, 1.0)), HYPER),
        (Box((0.0, -1.0), (2.0, 1.0)), NUGGET),
        (Torus.unit(2), HYPER),
        (Sphere(), dataclasses.replace(HYPER, location_lengths=(0.8,))),
    ],
    ids=["Box", "Box-nugget", "Torus", "Sphere"],
)
def test_mean_and_variance_are_those_of_the_full_covariance(domain, hyper, x64):
    data = example(domain)
    prepared = prepare(data)
    operator, found = prepared.solve(hyper, ALL, EXACT)
    assert found.iterations <= 2  # with all labels the preconditioner is the inverse
    u, y = data.u[3] + 0.3, data.y.points[::4]
    mean, covariance, variance = direct(prepared, hyper, u, y)
    outputs = prepared.normalization.at(Shared(y))
    np.testing.assert_allclose(outputs.standardize(operator(u, y)), mean, atol=1e-8)
    np.testing.assert_allclose(operator.variance, variance, rtol=1e-7)
    std = np.sqrt(np.diag(covariance)[:, None] * variance) * np.asarray(prepared.normalization.s_scale)
    # 12 functions are all landmarks, so nothing of a new function's variance is lost outside of the features
    np.testing.assert_allclose(operator.std(u, y), std, atol=1e-8)


EASY = dataclasses.replace(HYPER, length=8.0, noise=1e-8, location_lengths=(1.0, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("form", [Shared, pytest.param(Free, marks=pytest.mark.full)])
def test_single_precision_is_as_good_as_double(form):
    """With long lengths and little noise, where nearly all of the prior variance cancels."""
    data = example(functions=40, channels=1)
    operator, _ = prepare(data).solve(EASY, ALL, Accuracy(1e-4, 100))
    u, points = data.u[:5] + 0.3, data.y.points[::4] + 0.01
    y = Shared(points) if form is Shared else Free(jnp.tile(points, (5, 1, 1)))
    found = operator.predict_error_bars(u, y)
    compiled = eqx.filter_jit(lambda operator, u: operator.predict_error_bars(u, y))(operator, u)
    with jax.enable_x64(True):
        exact = jax.tree.map(widened, operator).predict_error_bars(widened(u), jax.tree.map(widened, y))
    for single, again, double in zip(found, compiled, exact, strict=True):
        assert single.dtype == again.dtype == jnp.float32
        scale = np.abs(np.asarray(double)).max()
        np.testing.assert_allclose(single, double, rtol=0.0, atol=1e-5 * scale)
        np.testing.assert_allclose(single, again, rtol=0.0, atol=1e-5 * scale)


@pytest.mark.slow
def test_derivatives_pass_through_double_precision():
    data = example(channels=1)
    operator, _ = prepare(data).solve(HYPER, ALL, Accuracy(1e-4, 100))
    u, du, y = data.u[3] + 0.3, data.u[4], data.y.points[::4]
    expected = operator.jvp(u, du, y)  # in double precision
    forward = jax.jit(lambda u: jax.jvp(lambda u: operator(u, y), (u,), (du,))[1])(u)
    np.testing.assert_allclose(forward, expected, atol=1e-4 * float(jnp.abs(expected).max()))
    _, transpose = jax.vjp(lambda u: operator(u, y), u)
    np.testing.assert_allclose(jnp.vdot(transpose(expected)[0], du), jnp.sum(expected**2), rtol=1e-4)
    (slope,) = jax.grad(lambda u: jnp.sum(operator.std(u, y)), argnums=(0,))(u)
    step = 1e-2 * jnp.sign(slope)
    change = jnp.sum(operator.std(u + step, y) - operator.std(u - step, y))
    np.testing.assert_allclose(2.0 * jnp.vdot(slope, step), change, rtol=0.05)


@pytest.mark.parametrize("hyper", [HYPER, NUGGET], ids=["noise", "nugget"])
def test_with_some_labels_the_mean_is_that_of_the_full_covariance(hyper, x64):
    data = example().observe(jax.random.key(0), 9)
    prepared = prepare(data)
    operator, found = prepared.solve(hyper, ALL, EXACT)
    assert found.residual < 1e-12
    u, y = data.u[3] + 0.3, data.y.points[::4]
    mean, _, variance = direct(prepared, hyper, u, y)
    np.testing.assert_allclose(prepared.normalization.at(Shared(y)).standardize(operator(u, y)), mean, atol=1e-8)
    np.testing.assert_allclose(operator.variance, variance, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("hyper", [HYPER, pytest.param(NUGGET, marks=pytest.mark.full)], ids=["noise", "nugget"])
def test_draws_have_the_posterior_covariance(hyper, x64):
    data = example(channels=1).observe(jax.random.key(0), 9)
    prepared = prepare(data)
    operator, _ = prepared.solve(hyper, ALL, EXACT)
    u, y = data.u[3] + 0.3, data.y.points[::6]
    mean, covariance, variance = direct(prepared, hyper, u, y)
    draws = operator.draws(jax.random.key(0), DRAWS)
    found = np.stack([draw.coefficients[0] for draw in draws])
    f, h = operator.f(operator.encode(u)[None])[0], operator.h(y)
    values = np.einsum("a,sab,pb->sp", f, found, h)
    np.testing.assert_allclose(values.mean(0), mean[:, 0], atol=5 * np.sqrt(covariance.max() * variance[0] / DRAWS))
    # outside of the features of 12 landmarks there is nothing that depends on y on the grid, but k_U(u, u) − |f(u)|²
    outside = float(operator.f.kernel.diagonal(operator.encode(u)[None])[0] - f @ f + hyper.nugget)
    expected = (covariance - outside * np.asarray(h @ h.T)) * variance[0]
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(np.cov(values.T) / scale, expected / scale, atol=5 * np.sqrt(2 / DRAWS))


@pytest.mark.slow
@pytest.mark.parametrize("hyper", [HYPER, NUGGET], ids=["noise", "nugget"])
@pytest.mark.parametrize(("side", "count"), [pytest.param(5, 25, marks=pytest.mark.full), (5, 9), (9, 9)])
def test_in_numpy_the_solution_is_the_same(hyper, side, count, x64, monkeypatch):
    every = example(side=side)
    prepared = prepare(every if count == every.y.count else every.observe(jax.random.key(0), count))
    assert prepared.is_dense(25)
    with monkeypatch.context() as patch:
        if side == 9:  # on larger grids one axis is multiplied after the other
            patch.setattr("loca.gaussian.dense.Table.values", pytest.fail)
        one, _ = prepared.solve(hyper, ALL, EXACT)
    monkeypatch.setattr(PreparedData, "is_dense", lambda *_: False)
    other, _ = prepared.solve(hyper, ALL, EXACT)
    for name in ("coefficients", "power", "variance"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.0, 3.0], ids=["noise", "nugget"])
def test_free_queries_equal_indexed_ones(ratio, x64, monkeypatch):
    data = example(functions=24).observe(jax.random.key(0), 9)  # enough for a table of covariances
    assert isinstance(data.y, Indexed)
    prepared = prepare(data)
    _, h, values = prepared.features(HYPER, ALL)
    elsewhere = data.y.y[:1] + 0.01  # not on the grid, and never labeled
    many, few = (Indexed(jnp.concatenate([jnp.tile(data.y.y, (n, 1)), elsewhere]), data.y.index) for n in (1, 40))
    every = Free(data.y.locations(len(data))), many, few
    forms = [label_map(values, h, queries) for queries in every]
    grid = label_map(values, h, data.y)
    forms.append(dataclasses.replace(grid, features=grid._for_gathering()))

    def noisy(form):
        return with_nugget(form, jnp.asarray(ratio)) if ratio else form

    systems = [System([Block(form, form.whiten(prepared.values))], 1e-2) for form in map(noisy, forms)]
    monkeypatch.setattr(labels, "TABLE", 0)  # as if the grid were too large for a table of features
    more = [label_map(values, h, every[0], keep=0), label_map(values, h, data.y)]
    systems += [System([Block(form, form.whiten(prepared.values))], 1e-2) for form in map(noisy, more)]
    forms += more
    assert [(form.gathers, type(form.features).__name__) for form in forms] == [
        (True, "NoneType"), (False, "Table"), (True, "Table"), (False, "Table"), (True, "GridFeatures"),
        (False, "GridTable"),
    ]  # fmt: skip
    *others, grid = systems
    for other in others:
        np.testing.assert_allclose(grid.power, other.power, rtol=1e-10)
        np.testing.assert_allclose(grid.solve(*EXACT).x, other.solve(*EXACT).x, atol=1e-10)
    unit = jnp.zeros((1, *grid.power.shape)).at[0, 2, 5].set(1.0)
    np.testing.assert_allclose(grid.power[2, 5], (grid(unit) - 1e-2 * unit)[0, 2, 5], rtol=1e-10)


def test_a_linear_map_gives_ridge_regression(x64):
    rng = np.random.default_rng(0)
    u, y = jnp.asarray(rng.normal(size=(60, 7, 1))), jnp.linspace(0.0, 1.0, 20)[:, None]
    responses = jnp.asarray(rng.normal(size=(7, 20)))
    data = Samples(u, Shared(y), jnp.einsum("nmd,mp->npd", u, responses), domain=Box.unit(1))
    ridge = Regression.fit(data, components=7, strength=1e-12)
    hyper = Hyperparameters(length=1e6, damping=0.0, linear=1e3, noise=1e-8, location_lengths=(1e-3,))
    operator, _ = prepare(data).solve(hyper, ALL, EXACT)
    new = jnp.asarray(rng.normal(size=(7, 1)))
    np.testing.assert_allclose(operator(new, y), ridge(new, y), atol=1e-5)
