"""LOCA: what the paper promises of it, and what the errata ask for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.attention import Blocked, Uncoupled, expectation
from loca.data import Samples, Shared
from loca.domains import Box, Sphere, Torus
from loca.encoders import Projection, Sensors, Standardized
from loca.models import LOCA, DeepONet, encode_functions, operator
from loca.parameters import trainable
from loca.rules import MonteCarlo, OwnQueries
from loca.typing import Measurements


def grid(*sides):
    return jnp.stack(jnp.meshgrid(*[jnp.linspace(0, 1, n) for n in sides], indexing="ij"), -1).reshape(-1, len(sides))


def data(key, functions=5, d_s=2, domain=None, d_u=1):
    u_key, y_key, s_key = jax.random.split(key, 3)
    domain = domain if domain is not None else Box((0.0, 1.0), (2.0, 4.0))
    return Samples(
        u=3.0 + 2.0 * jax.random.normal(u_key, (functions, 16, d_u)),
        y=domain.sample(y_key, 12),
        s=10.0 + 5.0 * jax.random.normal(s_key, (functions, 12, d_s)),
        x=grid(4, 4),
        domain=domain,
    )


def model(samples, **parts):
    parts = {"encoder": Sensors(16, samples.input_size), "num_features": 7, "lift_widths": (8,), "lift_size": 5} | parts
    return LOCA.create(samples, key=jax.random.key(1), proposal_widths=(8,), feature_widths=(8,), **parts)


# operations one by one would each be compiled for each number of queries


@eqx.filter_jit
def answer(operator, u, y):
    return operator(u, y)


@eqx.filter_jit
def predict(operator, u, queries):
    return operator.predict(u, queries)


@pytest.mark.slow
@pytest.mark.parametrize(
    "domain",
    [Box((0.0, 1.0), (2.0, 4.0)), *(pytest.param(each, marks=pytest.mark.full) for each in (Torus.unit(2), Sphere()))],
    ids=lambda d: type(d).__name__,
)
def test_weights_lie_on_the_simplex(getkey, domain):
    phi = jnp.stack(model(data(getkey(), domain=domain)).weights(domain.sample(getkey(), 50)))
    assert phi.shape == (2, 50, 7)
    assert (phi >= 0).all()
    assert np.allclose(phi.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "attention",
    [pytest.param(None, id="dense"), pytest.param(Blocked(32), id="blocked", marks=pytest.mark.full),
     pytest.param(Uncoupled(), id="uncoupled", marks=pytest.mark.full)],
)  # fmt: skip
def test_a_prediction_does_not_depend_on_its_company(getkey, attention):
    """Neither on the other queries, nor on their order, nor on repeats."""
    with jax.enable_x64(True):
        samples = data(getkey())
        parts = {} if attention is None else {"attention": attention}
        loca = model(samples, rule=MonteCarlo(samples.domain, 40, key=getkey()), **parts)
        u, y = samples.u[0], samples.domain.sample(getkey(), 9)
        s = answer(loca, u, y)
        order = jax.random.permutation(getkey(), 9)
        assert jnp.allclose(answer(loca, u, y[order]), s[order], rtol=1e-12)
        assert jnp.allclose(answer(loca, u, y[3:4]), s[3:4], rtol=1e-12)
        assert jnp.allclose(answer(loca, u, jnp.repeat(y, 3, axis=0)), jnp.repeat(s, 3, axis=0), rtol=1e-12)
        elsewhere = samples.domain.sample(getkey(), 20)
        assert jnp.allclose(answer(loca, u, jnp.concatenate([y, elsewhere]))[:9], s, rtol=1e-12)


def test_own_queries_do_depend_on_their_company(getkey):
    """The paper's option violates it, which is why it is not the default."""
    samples = data(getkey())
    loca = model(samples, rule=OwnQueries(samples.domain))
    y = samples.domain.sample(getkey(), 9)
    assert not jnp.allclose(answer(loca, samples.u[0], y[:3]), answer(loca, samples.u[0], y)[:3], rtol=1e-4)


def test_deeponet_is_loca_minus_three_things(getkey):
    """Without coupling, without softmax, with point sensors, and with a bias: §6.1 of the paper."""
    samples = data(getkey())
    loca = model(samples, attention=Uncoupled())
    don = DeepONet(
        normalization=loca.normalization,
        encoder=loca.encoder,
        branch=loca.f,
        e=loca.e,
        trunk=lambda e_y: loca.g(loca.q(e_y)),
        bias=jnp.array([0.3, -2.0]),
    )
    u, y = samples.u[0], samples.y.points
    expected = loca.normalization.at(samples.y).restore(expectation(loca.scores(y), loca.features(u)) + don.bias)
    assert jnp.allclose(don(u, y), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["loca", pytest.param("deeponet", marks=pytest.mark.full)])
def test_at_equals_the_full_evaluation(getkey, kind):
    samples = data(getkey())
    operator = model(samples) if kind == "loca" else DeepONet.create(samples, key=getkey())
    y = samples.domain.sample(getkey(), 40)
    frozen = operator.at(y)
    for u in samples.u:
        full = answer(operator, u, y)
        assert np.max(np.abs(frozen(u) - full)) <= 1e-6 * np.max(np.abs(full))
    many = jax.vmap(frozen)(samples.u)
    assert np.allclose(many, predict(operator, samples.u, Shared(y)), rtol=1e-5)


@pytest.mark.slow
def test_many_queries_in_blocks_equal_the_whole(getkey, monkeypatch):
    samples = data(getkey())
    loca = model(samples)
    y = samples.domain.sample(getkey(), 1003)
    whole = predict(loca, samples.u, Shared(y))
    for block in (1003, 100, 17):
        monkeypatch.setattr(operator, "BLOCK", block)
        in_blocks = eqx.filter_jit(lambda loca, u, y: loca.predict(u, Shared(y)))  # another program for each
        assert jnp.allclose(in_blocks(loca, samples.u, y), whole, rtol=1e-5)


def test_sensors_anywhere_and_different_for_every_function(getkey):
    """The same function measured at other places, and at fewer of them, gives the same prediction."""
    with jax.enable_x64(True):
        x = jax.random.uniform(getkey(), (2, 60, 1))
        u = 1.0 + jnp.cos(jnp.pi * x) - 0.5 * jnp.cos(2 * jnp.pi * x)
        mask = jnp.stack([jnp.ones(60, bool), jnp.arange(60) < 45])
        u = jnp.where(mask[..., None], u, 1e3)
        measured = Measurements(u, x, mask)
        samples = Samples(measured, grid(9), jax.random.normal(getkey(), (2, 9, 1)))
        loca = model(samples, encoder=Projection.create(Box.unit(1), 8))
        first, second = predict(loca, measured, Shared(grid(9)))
        assert jnp.allclose(first, second, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LOCA, pytest.param(DeepONet, marks=pytest.mark.full)])
def test_codes_of_own_sensors_are_standardized_and_modes_are_at_most_half_the_sensors(kind, getkey):
    """Coefficients of smooth functions fall by orders of magnitude; the fewest sensors of a function count."""
    N = 200
    x = jax.random.uniform(getkey(), (N, 40, 2), minval=-1.0)
    a = jax.random.normal(getkey(), (N, 4)) * jnp.array([10.0, 1.0, 0.1, 0.01])
    waves = jnp.stack([jnp.ones(x.shape[:2]), x[..., 0], x[..., 0] * x[..., 1], jnp.cos(3.0 * x[..., 1])], axis=-1)
    mask = jnp.arange(40) < 40 - 4 * (jnp.arange(N) == 7)[:, None]
    u = Measurements(jnp.einsum("nmk,nk->nm", waves, a)[..., None], x, mask)
    samples = Samples(u, grid(3), jnp.ones((N, 3, 1)))
    model = kind.create(samples, key=getkey())
    assert isinstance(model.encoder, Standardized)
    assert isinstance(model.encoder.encoder, Projection)
    assert model.encoder.encoder.modes == (4, 4)  # 16 ≤ 36/2 < 20
    codes = np.asarray(encode_functions(model, u))
    plain = np.asarray(codes * model.encoder.scale).std(axis=0)
    np.testing.assert_allclose(codes.mean(axis=0), 0.0, atol=1e-3)
    seen = plain > 1e-3 * plain.max()  # the others would be noise, magnified
    assert plain[seen].min() < 0.01 * plain.max()
    np.testing.assert_allclose(codes[:, seen].std(axis=0), 1.0, rtol=1e-3)
    assert (codes[:, ~seen].std(axis=0) < 1.0).all()
    assert not any(jax.tree.leaves(trainable(model.encoder)))


def test_a_missing_channel_is_not_filled_in(getkey):
    """One channel where two were trained on would broadcast without a word."""
    samples = data(getkey(), d_u=2)
    with pytest.raises(ValueError, match=r"u has 1 channels but the training data had 2; pass as many"):
        model(samples)(samples.u[0, :, :1], samples.y.points)
