"""The run: the loop that one would write by hand, whatever the way it is cut up, and what stops it."""

import io
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from loca.data import Part, Samples, Store, batch_rows
from loca.encoders import Sensors
from loca.losses import mean_squared
from loca.losses import relative_l2 as relative_l2_loss
from loca.metrics import relative_l2
from loca.models import LOCA, DeepONet
from loca.problems import Antiderivative, generate
from loca.training import (
    BrokenLossError,
    Encoded,
    History,
    Moment,
    Progress,
    State,
    advance,
    average_weights,
    default_optimizer,
    fit,
    paper_optimizer,
    show_training,
    trained,
)
from loca.training.steps import InMemoryLoop, StepConfig, StreamingLoop
from loca.uncertainty import Ensemble

PROBLEM = Antiderivative(length=0.3, sensors=40, queries=20)

OPTIMIZER = paper_optimizer()
SAME = {"batch_size": 30, "seed": 5, "optimizer": OPTIMIZER}
"""Arguments of `fit` that tests share, so that their programs are compiled once."""


@pytest.fixture(scope="module")
def data():
    return PROBLEM.sample(jax.random.key(0), 120)


@pytest.fixture(scope="module")
def model(data):
    widths = {"lift_widths": (16,), "proposal_widths": (16,), "feature_widths": (16,)}
    return LOCA.create(data, key=jax.random.key(1), encoder=Sensors(40), num_features=10, lift_size=8, **widths)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return generate(PROBLEM, 120, tmp_path_factory.mktemp("fit") / "data.zarr")


def distance(one, other) -> float:
    pairs = zip(
        jax.tree.leaves(eqx.filter(one, eqx.is_array)), jax.tree.leaves(eqx.filter(other, eqx.is_array)), strict=True
    )
    return max(float(jnp.abs(a - b).max()) for a, b in pairs)


def test_every_class_of_model_has_a_recipe(model, data):
    """Of batches and loss; those that are given replace it, and operators around a network have its own."""
    network = DeepONet.create(data, key=jax.random.key(1), num_features=4, branch_widths=(8,), trunk_widths=(8,))
    _, own = fit(network, data, steps=2, every=1)
    _, given = fit(network, data, steps=2, every=1, batch_size=20, loss=relative_l2_loss)
    assert [moment.loss for moment in own] == [moment.loss for moment in given]
    _, other = fit(network, data, steps=2, every=1, loss=mean_squared)
    assert other.moments[0].loss != own.moments[0].loss
    assert model.recipe == (100, mean_squared)
    assert Ensemble.of([network, network]).recipe == network.recipe


@pytest.mark.slow
def test_a_loop_by_hand_does_the_same(model, data):
    state, encoded = State.start(model, OPTIMIZER), Encoded.of(model, data)
    step = eqx.filter_jit(lambda state: advance(state, encoded.batch(5, state.step, 30), OPTIMIZER))
    losses = []
    for _ in range(60):
        state, loss = step(state)
        losses.append(float(loss))
    ours, history = fit(model, data, steps=60, every=20, **SAME)
    assert distance(ours, state.model) < 1e-6
    np.testing.assert_allclose([m.loss for m in history], np.reshape(losses, (3, 20)).mean(1), rtol=1e-6)


@pytest.mark.slow
def test_streamed_and_in_memory_are_one_run(model, store):
    arguments = {"steps": 50, "every": 25, **SAME}
    one, first = fit(model, store.load(), **arguments)
    other, second = fit(model, store, **arguments)
    assert distance(one, other) < 1e-5
    np.testing.assert_allclose([m.loss for m in first], [m.loss for m in second], rtol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [pytest.param(mean_squared, marks=pytest.mark.slow), pytest.param(relative_l2_loss, marks=pytest.mark.full)],
)
def test_labels_without_weight_are_as_good_as_none(model, data, loss):
    """A weight of zero leaves a label out: so trains a run on the other labels alone."""
    kept = np.array([0, 3, 4, 9, 10, 11, 19])
    fewer = Samples(data.u, data.y.points[kept], data.s[:, kept], x=data.x, domain=data.domain)
    weights = np.zeros(20)
    weights[kept] = 5.0  # a common factor does not matter
    arguments = {"steps": 30, "batch_size": 30, "every": 10, "loss": loss}
    one, first = fit(model, data, weights=weights, validate=data, **arguments)
    other, second = fit(model, fewer, validate=fewer, **arguments)
    assert distance(one, other) < 1e-5
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose([a.loss, a.validation], [b.loss, b.validation], rtol=1e-5)


@pytest.mark.slow
def test_weights_follow_the_labels_that_are_kept(model, data):
    """A label of weight 3 counts as three of weight 1, wherever the labels of each function lie."""
    observed = data.observe(jax.random.key(3), 8)
    weights = np.where(np.arange(20) % 2, 3.0, 1.0)
    batch, each = Encoded.of(model, observed, jnp.asarray(weights)), []
    prediction = eqx.filter_jit(type(model).respond)(model, batch.codes, batch.queries)
    for i in range(len(observed)):
        times = weights[observed.y.index[i]].astype(int)
        each.append(np.repeat(((prediction - batch.s) ** 2)[i, :, 0], times))
    assert float(mean_squared(prediction, batch.s, batch.weights)) == pytest.approx(
        np.concatenate(each).mean(), rel=1e-5
    )


def test_a_part_of_a_store_is_the_same_in_pieces(store):
    part = Part(store, np.arange(100, 20, -1), key=jax.random.key(4), labels=7)
    whole = part.load()
    piece = part.load([5, 60, 2])
    np.testing.assert_array_equal(piece.y.index, whole.y.index[jnp.array([5, 60, 2])])
    np.testing.assert_array_equal(piece.s, whole.s[jnp.array([5, 60, 2])])
    full = store.load([95, 40, 98])
    np.testing.assert_array_equal(piece.s, jnp.take_along_axis(full.s, piece.y.index[..., None], axis=1))


@pytest.mark.full
def test_a_part_of_a_store_is_the_same_in_memory_and_in_a_stream(model, store):
    part = Part(store, np.arange(100, 20, -1), key=jax.random.key(4), labels=7)
    one, _ = fit(model, part.load(), steps=30, **SAME)
    other, _ = fit(model, part, steps=30, **SAME)
    assert distance(one, other) < 1e-5


@pytest.mark.slow
def test_it_learns_and_measures_what_it_has_learned(model, data):
    test = PROBLEM.sample(jax.random.key(7), 50)
    better, history = fit(model, data, steps=600, batch_size=40, validate=test, every=200)
    errors = [moment.validation for moment in history]
    assert [moment.step for moment in history] == [200, 400, 600]
    assert errors[-1] == pytest.approx(float(relative_l2(better.predict(test.u, test.y), test.s).mean()), rel=1e-5)
    assert errors[-1] < 0.2 * float(relative_l2(model.predict(test.u, test.y), test.s).mean())


def test_the_model_passed_in_is_left_alone(model, data):
    before = jax.tree.map(jnp.copy, eqx.filter(model, eqx.is_array))
    fit(model, data, steps=3, **SAME)
    assert distance(model, before) == 0.0


@pytest.mark.slow
def test_cutting_a_run_up_changes_no_bit_and_compiles_nothing(model, data):
    def run(stops):
        state = State.start(model, OPTIMIZER)
        traced, seen = [], []

        def loss(prediction, truth):  # is called whenever a step is compiled, and never again
            traced.append(truth)
            return mean_squared(prediction, truth)

        loop = InMemoryLoop(state, data, StepConfig(OPTIMIZER, loss, 30, 5))
        for stop in stops:
            state, _ = loop.run(state, stop)
            seen.append(len(traced))
        assert len(set(seen)) == 1
        return state

    assert distance(run([20]), run([1, 2, 7, 19, 20])) == 0.0


def test_a_resumed_stream_continues_with_the_next_batch(model, store):
    state, seen = State.start(model, OPTIMIZER), []

    def one(variable, batch, factor):  # takes no step
        seen.append(batch.u)
        return variable, jnp.zeros(())

    resumed = eqx.tree_at(lambda state: state.step, state, jnp.asarray(2, jnp.int32))
    for start, until in [(state, 2), (resumed, 4)]:
        loop = StreamingLoop(state, store, StepConfig(OPTIMIZER, mean_squared, 30, 5))
        loop.one = one
        loop.run(start, until)
        loop.close()
    rows = [np.asarray(batch_rows(5, step, 30, 120)) for step in range(4)]
    np.testing.assert_array_equal(np.stack(seen), np.asarray(store.load().u)[np.stack(rows)])


@pytest.mark.parametrize("form", ["memory", "store", "part"])
def test_a_loss_that_is_not_finite_is_reported_with_its_step(form, model, data, store, monkeypatch):
    """And the function to blame by its number in the file, whatever part of it is trained on."""
    rows = [np.asarray(batch_rows(5, step, 30, 120)) for step in range(4)]
    bad = int(rows[2][7])
    assert all(bad not in rows[step] for step in (0, 1))
    number = 119 - bad if form == "part" else bad
    value = 1e30 if form == "memory" else jnp.nan  # in memory, only squares are not finite: NaN is found before
    broken = eqx.tree_at(lambda samples: samples.s, data, data.s.at[number, 3].set(value))
    if form != "memory":
        monkeypatch.setattr(Store, "load", lambda self, chosen: broken.take(jnp.asarray(chosen)))
    given = {"memory": broken, "store": store, "part": Part(store, np.arange(119, -1, -1))}[form]
    because = f", because the data is not: function {number}, output 'antiderivative': 1 of 20 values NaN"
    with pytest.raises(BrokenLossError, match="not finite from step 2 on" + (r"\." if form == "memory" else because)):
        fit(model, given, steps=20, **SAME)


def test_data_that_is_not_finite_is_refused_with_function_and_channel(model, data):
    s = data.s.at[7, 3].set(jnp.nan).at[7, 4].set(jnp.inf).at[9].set(-jnp.inf)
    u = data.u.at[2, 0].set(jnp.nan)
    broken = eqx.tree_at(lambda samples: (samples.u, samples.s), data, (u, s))
    message = (
        "the data has values that are not finite: function 2, input 'u': 1 of 40 values NaN; "
        "function 7, output 'antiderivative': 2 of 20 values NaN; "
        "function 9, output 'antiderivative': 20 of 20 values infinite; fill them"
    )
    for refused in (lambda: fit(model, broken, steps=5), lambda: LOCA.create(broken, key=jax.random.key(0))):
        with pytest.raises(ValueError, match="not finite") as refusal:
            refused()
        assert str(refusal.value).startswith(message)
    with pytest.raises(ValueError, match=r"the validation data has values that are not finite: .* and 116 more"):
        fit(model, data, steps=5, validate=eqx.tree_at(lambda samples: samples.s, data, jnp.nan * data.s))


def test_callbacks_see_the_run_go_on(model, data):
    seen = []
    _, history = fit(model, data, steps=45, every=20, callbacks=[seen.append], **SAME)
    steps = [progress.step for progress in seen]
    assert steps == sorted(set(steps))
    assert {20, 40, 45} <= set(steps)
    assert seen[-1].history == history
    assert seen[-1].texts["left"] in ("0", "-")


def test_few_functions_and_few_steps_need_no_settings(model, data):
    """Seven functions make a batch, 40 steps have 20 moments, and a callback sees the losses of the history."""
    seen = {}
    few = data.take(jnp.arange(7))

    def listen(progress):
        seen[progress.step] = progress.loss

    _, history = fit(model, few, steps=40, optimizer=OPTIMIZER, callbacks=[listen])
    assert [moment.step for moment in history] == list(range(2, 41, 2))
    assert [seen[moment.step] for moment in history] == [moment.loss for moment in history]


@pytest.mark.parametrize(("is_terminal", "lines"), [(True, False), (False, False), (False, True)])
def test_a_terminal_shows_a_bar_and_a_log_lines_or_nothing(is_terminal, lines, monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return is_terminal

    monkeypatch.setattr(sys, "stdout", Screen())
    monkeypatch.setenv("FORCE_COLOR", "1")  # as services of continuous integration do
    with show_training(lines=lines) as show:
        show(Progress(30, 40, 0.125, 5.0, History((Moment(20, 0.5, 0.25, 1.0, returned_to=10),))))
    written = sys.stdout.getvalue()
    if is_terminal:
        assert "30/40" in written
        assert "loss 1.25e-01  validation 0.2500  5 steps/s" in written
    elif lines:
        first, second = written.splitlines()
        returned = "training returned to the state after step 10 with half the learning rate"
        assert first == f"step 20: the loss broke away; {returned}"
        assert second == "step 30/40: loss 1.25e-01, validation 0.2500, 5 steps/s, 2 s left"
    else:
        assert not written


def test_the_papers_rate(model):
    optimizer, gradient = paper_optimizer(), jnp.ones(())
    state, sizes = optimizer.init(jnp.zeros(())), []
    step = jax.jit(optimizer.update)
    for _ in range(201):
        update, state = step(gradient, state)
        sizes.append(-float(update))
    # a constant gradient moves Adam by its rate
    np.testing.assert_allclose([sizes[0], sizes[100], sizes[200]], [1e-3, 0.99e-3, 0.99**2 * 1e-3], rtol=1e-4)


def test_the_default_rate_rises_and_falls_to_nothing():
    optimizer = default_optimizer(200, rate=1e-2)
    state, sizes = optimizer.init(jnp.zeros(())), []
    step = jax.jit(optimizer.update)
    for _ in range(200):
        update, state = step(jnp.ones(()), state, jnp.zeros(()))
        sizes.append(-float(update))
    assert np.argmax(sizes) == 10
    assert max(sizes) == pytest.approx(1e-2, rel=1e-3)
    assert sizes[0] < 1e-9
    assert sizes[-1] < 1e-5


def test_the_default_optimizer_clips_gradients_to_norm_1():
    """Larger gradients of any size have the same effect."""

    def updates(sizes):
        optimizer, theta, found = default_optimizer(5), jnp.zeros(2), []
        state, step = optimizer.init(theta), jax.jit(optimizer.update)
        for size in sizes:
            update, state = step(size * jnp.array([0.6, 0.8]), state, theta)
            found.append(update)
        return np.stack(found)

    np.testing.assert_allclose(updates([2.0, 1000.0, 1.5]), updates([1.0, 1.0, 1.0]), rtol=1e-5)
    assert np.any(updates([1.0, 0.5, 1.0]) != updates([1.0, 1.0, 1.0]))  # smaller ones keep their size


def test_an_average_of_weights():
    optimizer = average_weights(optax.sgd(1.0), decay=0.5)
    theta, state = jnp.zeros(()), None
    state, expected = optimizer.init(theta), 0.0
    for k in range(5):
        updates, state = optimizer.update(-jnp.ones(()), state, theta)
        theta = theta + updates
        d = min(0.5, (1 + k) / (10 + k))
        expected = d * expected + (1 - d) * (k + 1)
    assert float(theta) == 5.0
    assert float(state.average) == pytest.approx(expected, rel=1e-6)


def test_the_average_is_what_a_run_gives(model, data):
    optimizer = average_weights(optax.adam(1e-3))
    state, encoded = State.start(model, optimizer), Encoded.of(model, data)
    step = eqx.filter_jit(lambda state: advance(state, encoded, optimizer)[0])
    for _ in range(3):
        state = step(state)
    averaged = trained(state)
    assert distance(averaged.f, state.model.f) > 0.0
    assert distance(averaged.normalization, state.model.normalization) == 0.0
    assert trained(State.start(model, optax.sgd(0.1))) is not None


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"batch_size": 0}, {"batch_size": 121}, {"every": 0}])
def test_impossible_runs_are_refused(wrong, model, data):
    with pytest.raises(ValueError, match="expected steps ≥ 1"):
        fit(model, data, **{"steps": 5, **wrong})
