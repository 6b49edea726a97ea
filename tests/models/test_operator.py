"""What operators know of themselves, and what an operator written outside the package gets for free."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Free, Indexed, Normalization, Samples, Variable
from loca.domains import Torus
from loca.encoders import Sensors
from loca.models import (
    FNO,
    LOCA,
    DeepONet,
    Operator,
    Predictor,
    Proportional,
    Regression,
    Signature,
    TilePredictor,
    predict,
)  # fmt: skip
from loca.parameters import count, trainable
from loca.rules import OwnQueries

KEY = jax.random.key(0)
SMALL = {"num_features": 4, "lift_size": 3, "lift_widths": (5,), "proposal_widths": (5,), "feature_widths": (5,)}


def waves(functions=7):
    """Two channels on a 4 × 6 grid of the torus."""
    domain = Torus((0.0, 0.0), (2.0, 1.0))
    line = [(np.arange(n) + 0.5) / n for n in (4, 6)]
    y = domain.from_unit(jnp.asarray(np.stack(np.meshgrid(*line, indexing="ij"), -1).reshape(-1, 2), jnp.float32))
    u = jax.random.normal(KEY, (functions, 24, 2))
    names = {
        "inputs": [Variable("height", "m"), Variable("depth", "m")],
        "outputs": [Variable("a"), Variable("b", "s")],
    }
    return Samples(u, y, jnp.cumsum(u, axis=1), x=y, domain=domain, **names)


class Mean(Operator):
    """F(u)(y) = c · mean(u) · y₁, written as a user would: not separable, without `at` and `halves`."""

    normalization: Normalization
    c: jax.Array

    def encode(self, u):
        return u.mean(axis=0)

    def respond(self, codes, queries):
        return self.c * codes[:, None] * queries.locations(len(codes))[..., :1]


MODELS = {
    "loca": lambda data: LOCA.create(data, key=KEY, encoder=Sensors(24, 2), **SMALL),
    "own-queries": lambda data: LOCA.create(
        data, key=KEY, encoder=Sensors(24, 2), rule=OwnQueries(data.domain), **SMALL
    ),
    "deeponet": lambda data: DeepONet.create(data, key=KEY, num_features=4, branch_widths=(5,), trunk_widths=(5,)),
    "fno": lambda data: FNO.create(data, key=KEY, modes=2, width=3, depth=2),
    "regression": lambda data: Regression.fit(data, components=2),
    "proportional": Proportional.fit,
    "outside": lambda data: Mean(Normalization.fit(data), jnp.asarray(2.0), signature=Signature.of(data)),
}


@pytest.mark.parametrize(
    "name",
    [name if name in ("loca", "fno", "outside") else pytest.param(name, marks=pytest.mark.full) for name in MODELS],
)
def test_an_operator_knows_the_data_it_was_made_for(name):
    data = waves()
    model = MODELS[name](data)
    assert model.domain == data.domain
    assert jnp.array_equal(model.sensors, data.x)
    assert (model.inputs, model.outputs) == (data.inputs, data.outputs)
    assert model.is_pointwise == (name != "own-queries")
    assert not any(jax.tree.leaves(trainable(model).signature))
    assert count(model) == count(eqx.tree_at(lambda model: model.signature, model, None))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [name if name in ("loca", "regression") else pytest.param(name, marks=pytest.mark.full) for name in MODELS],
)
def test_fixed_queries_halves_and_blocks_predict_the_same(name):
    data = waves()
    model = MODELS[name](data)
    y = data.y.points
    expected = np.asarray(predict(model, data.u, data.y))
    tolerance = {"rtol": 1e-4, "atol": 1e-5 * np.abs(expected).max()}
    np.testing.assert_allclose(eqx.filter_jit(lambda m, u: m.at(y)(u))(model, data.u[1]), expected[1], **tolerance)
    tiles = TilePredictor(model, y)
    np.testing.assert_allclose(tiles.together(tiles.of_functions(data.u), tiles.of_queries(y)), expected, **tolerance)
    in_blocks = Predictor(model, data.y, size=5)
    parts = [in_blocks(data.u[rows], data.y) for rows in (slice(0, 5), slice(5, 7))]
    np.testing.assert_allclose(np.concatenate(parts), expected, **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "name",
    [name if name in ("loca", "own-queries") else pytest.param(name, marks=pytest.mark.full) for name in MODELS],
)
def test_all_forms_of_queries_agree(name, count):
    """Whether responses are computed at all 24 locations or at those asked for is a matter of cost alone."""
    data = waves()
    model, y = MODELS[name](data), data.y.points + 0.03
    index = jax.vmap(lambda key: jax.random.permutation(key, 24)[:count])(jax.random.split(KEY, 7))
    one_by_one = jax.jit(lambda model: jnp.stack([model(u, y[i]) for u, i in zip(data.u, index, strict=True)]))(model)
    tolerance = {"rtol": 1e-4, "atol": 1e-5 * float(jnp.abs(one_by_one).max())}
    for queries in (Indexed(y, index), Free(y[index])):
        np.testing.assert_allclose(predict(model, data.u, queries), one_by_one, **tolerance)
        in_blocks = Predictor(model, queries, size=5)  # the second block is padded with its own queries
        parts = [in_blocks(data.u[rows], queries.take(jnp.arange(7)[rows])) for rows in (slice(0, 5), slice(5, 7))]
        np.testing.assert_allclose(np.concatenate(parts), one_by_one, **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loca", "fno"])
def test_predictions_follow_the_units_of_the_data(name):
    """Measuring u and s in other units changes nothing but the units of the answer."""
    data = waves()
    u, s = jnp.array([[7.0, 0.1], [-3.0, 2.0]]), jnp.array([[0.01, 5.0], [2.0, -4.0]])  # factors, and shifts
    other = dataclasses.replace(data, u=u[0] * data.u + u[1], s=s[0] * data.s + s[1])
    expected, found = (predict(MODELS[name](each), each.u, each.y) for each in (data, other))
    np.testing.assert_allclose((found - s[1]) / s[0], expected, rtol=1e-4, atol=1e-4 * float(jnp.abs(expected).max()))


def test_blocks_and_operators_of_the_same_sizes_are_compiled_once():
    data, traced = waves(), []

    class Traced(Mean):
        def encode(self, u):
            traced.append(u.shape)
            return super().encode(u)

    for c in (1.0, 2.0):
        in_blocks = Predictor(Traced(Normalization.identity(2, 2), jnp.asarray(c)), data.y, size=5)
        for rows in (slice(0, 5), slice(5, 7)):
            in_blocks(data.u[rows], data.y)
    assert len(traced) == 1


@pytest.mark.parametrize(
    "name", [pytest.param("loca", marks=pytest.mark.slow), pytest.param("fno", marks=pytest.mark.full), "outside"]
)
def test_transformations_of_jax_take_an_operator_as_a_function(name):
    data = waves()
    model, y = MODELS[name](data), data.y.points
    other = eqx.tree_at(lambda model: model.normalization.s_shift, model, model.normalization.s_shift + 1.0)
    expected = predict(model, data.u, data.y)
    compiled, another = jax.jit(model)(data.u[0], y), jax.jit(other)(data.u[0], y)
    np.testing.assert_allclose(compiled, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(another, expected[0] + 1.0, rtol=1e-4, atol=1e-5)  # equal shapes, but another operator
    np.testing.assert_allclose(jax.jit(model.at(y))(data.u[0]), expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.vmap(model, (0, None)))(data.u, y), expected, rtol=1e-4, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda u: model(u, y).sum()))(data.u[0])
    assert bool(jnp.isfinite(gradient).all() & (gradient != 0.0).any())
    assert hash(model) == hash(MODELS[name](data))


def test_an_operator_takes_plain_arrays_and_lists():
    y = np.linspace(0.0, 1.0, 6)
    u = np.random.default_rng(0).normal(size=(4, 6))
    data = Samples(u, y, np.cumsum(u, axis=1), x=y)
    model = Mean(Normalization.fit(data), jnp.asarray(2.0))
    expected = model.predict(data.u, data.y)
    for queries in (y, y.tolist(), y[:, None], np.stack([y[:, None]] * 4)):
        np.testing.assert_allclose(model.predict(u, queries), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model(u[1].tolist(), y), expected[1], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"expected y as an array of shape \(P, d_y\) or \(P,\), got a single number"):
        model(u[1], 0.5)
    with pytest.raises(ValueError, match=r"expected u of one function, got shape \(1, 4, 6\); use `predict`"):
        model(u[None], y)
