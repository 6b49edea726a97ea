"""One step of training: its formula, its purity, what it leaves alone, and that it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

from loca import losses
from loca.data import Samples
from loca.encoders import Sensors
from loca.metrics import relative_l2
from loca.models import FNO, LOCA, DeepONet
from loca.parameters import trainable
from loca.training import Encoded, State, advance


def antiderivatives(key, functions):
    """u = Σ aₖ k cos kx, s = Σ aₖ sin kx: pairs in closed form."""
    k = jnp.arange(1, 4)
    a = jax.random.normal(key, (functions, 3)) / k
    x = jnp.linspace(0.0, 1.0, 32)[:, None]
    u = jnp.einsum("fk,xk->fx", a * k, jnp.cos(k * x))
    s = jnp.einsum("fk,xk->fx", a, jnp.sin(k * x))
    return Samples(u[..., None], x, s[..., None], x=x)


MODELS = {
    "loca": lambda data, key: LOCA.create(data, key=key, encoder=Sensors(32)),
    "deeponet": lambda data, key: DeepONet.create(data, key=key, encoder=Sensors(32)),
    "fno": lambda data, key: FNO.create(data, key=key, modes=8, width=16, padding=8),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["loca", "deeponet", "fno"])
def test_learns_the_antiderivative(kind, getkey):
    """From a few labels to the whole grid of functions never seen: ten times better than the mean training output."""
    train, test = antiderivatives(getkey(), 300).observe(getkey(), 12), antiderivatives(getkey(), 100)
    model = MODELS[kind](train, getkey())
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, 500))
    encoded = Encoded.of(model, train)

    @eqx.filter_jit
    def run(state):
        arrays, static = eqx.partition(state, eqx.is_array)

        def one(arrays, _):
            state = eqx.combine(arrays, static)
            state, loss = advance(state, encoded.batch(0, state.step, 50), optimizer)
            return eqx.filter(state, eqx.is_array), loss

        arrays, loss = jax.lax.scan(one, arrays, length=500)
        return eqx.combine(arrays, static), loss

    state, _ = run(State.start(model, optimizer))
    trivial = relative_l2(jnp.broadcast_to(train.s.mean((0, 1)), test.s.shape), test.s).mean()
    assert relative_l2(state.model.predict(test.u, test.y), test.s).mean() < trivial / 10


def test_a_step_is_gradient_descent_on_the_learned_numbers_only(getkey):
    train = antiderivatives(getkey(), 8)
    model = MODELS["loca"](train, getkey())
    batch, optimizer = Encoded.of(model, train), optax.sgd(0.1)
    before = State.start(model, optimizer)
    after, loss = eqx.filter_jit(lambda state: advance(state, batch, optimizer))(before)
    learned, given = eqx.partition(before.model, trainable(before.model))
    objective = lambda p: losses.mean_squared(eqx.combine(p, given).respond(batch.codes, batch.queries), batch.s)  # noqa: E731
    value, gradient = jax.jit(jax.value_and_grad(objective))(learned)
    expected = jax.tree.map(lambda p, g: p - 0.1 * g, learned, gradient)
    new_learned, new_given = eqx.partition(after.model, trainable(after.model))
    assert float(loss) == pytest.approx(float(value), rel=1e-6)
    for a, b in zip(jax.tree.leaves(new_learned), jax.tree.leaves(expected), strict=True):
        assert jnp.allclose(a, b, atol=1e-7)
    for a, b in zip(jax.tree.leaves(new_given), jax.tree.leaves(given), strict=True):
        assert jnp.array_equal(a, b)
    assert after.step == 1


def test_losses_by_hand():
    prediction, truth = jnp.array([[[1.0], [2.0]], [[0.0], [0.0]]]), jnp.array([[[1.0], [4.0]], [[3.0], [4.0]]])
    assert float(losses.mean_squared(prediction, truth)) == pytest.approx((0 + 4 + 9 + 16) / 4)
    assert float(losses.relative_l2(prediction, truth)) == pytest.approx((2 / 17**0.5 + 1) / 2)
    only_last = jnp.array([0.0, 3.0])  # a common factor does not matter
    for loss in (losses.mean_squared, losses.relative_l2):
        assert float(loss(prediction, truth, only_last)) == pytest.approx(float(loss(prediction[:, 1:], truth[:, 1:])))
