"""A run whose loss breaks away: it returns to its best state with half the rate, however it is divided or stopped."""

import math
import os
import signal
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from loca.data import batch_rows
from loca.losses import mean_squared
from loca.problems import Antiderivative, generate
from loca.training import BrokenLossError, History, State, StoppedError, average_weights, fit, steps, trained
from loca.training.history import Moment
from loca.training.steps import InMemoryLoop, StepConfig, moved_on

SAME = {"steps": 40, "batch_size": 20, "seed": 5, "every": 40, "progress": False}


def rate(size):
    """1e-3, and another rate in steps 22 to 24, which the run takes once."""
    return lambda count: jnp.where((count >= 22) & (count < 25), size, 1e-3)


BREAKING = average_weights(optax.adam(rate(30.0)))


@pytest.fixture(autouse=True)
def windows(monkeypatch):
    monkeypatch.setattr(steps, "WINDOW", 10)


@pytest.fixture(scope="module")
def recovered(model, data):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(steps, "WINDOW", 10)
        return fit(model, data, optimizer=BREAKING, **SAME)


def bits(tree) -> bytes:
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array)))


@pytest.mark.slow
def test_it_returns_to_the_best_state_with_half_the_rate(model, data, recovered):
    """As one would by hand: 20 steps, and from their end steps 30 to 40 at half the rate."""
    ours, history = recovered
    assert [(moment.step, moment.returned_to) for moment in history] == [(30, 20), (40, None)]
    loop = InMemoryLoop(State.start(model, BREAKING), data, StepConfig(BREAKING, mean_squared, 20, 5))
    state, first = loop.run(State.start(model, BREAKING), 10)
    state, second = loop.run(state, 20)
    assert second.mean() < first.mean()
    counters = [leaf for leaf in jax.tree.leaves(state) if eqx.is_array(leaf) and leaf.dtype == jnp.int32]
    assert [int(leaf) for leaf in counters] == [20, 20, 20, 20]  # Adam's, the schedule's, the average's, the run's
    state = jax.tree.map(lambda leaf: leaf + 10 if any(leaf is each for each in counters) else leaf, state)
    half = average_weights(optax.adam(lambda count: 0.5 * rate(30.0)(count)))
    state, third = InMemoryLoop(state, data, StepConfig(half, mean_squared, 20, 5)).run(state, 40)
    assert [moment.loss for moment in history] == pytest.approx([second.mean(), third.mean()], rel=1e-5)
    pairs = zip(*(jax.tree.leaves(eqx.filter(each, eqx.is_array)) for each in (ours, trained(state))), strict=True)
    assert all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)


@pytest.mark.slow
def test_a_run_that_does_not_return_has_the_same_bits_without_it(model, data):
    """Every loss too, although sums of losses also decide about a return."""
    options = SAME | {"optimizer": optax.adam(1e-3), "every": 1}
    (one, first), (two, second) = (fit(model, data, recover=recover, **options) for recover in (True, False))
    assert bits(one) == bits(two)
    assert [moment.loss for moment in first] == [moment.loss for moment in second]


def test_without_it_the_loss_stays_away(model, data, recovered):
    _, history = fit(model, data, optimizer=BREAKING, recover=False, **SAME)
    assert history.moments[-1].loss > 10.0 * recovered[1].moments[-1].loss


@pytest.mark.slow
@pytest.mark.parametrize("last", [25, *(pytest.param(n, marks=pytest.mark.full) for n in (15, 35))])
def test_stopped_before_and_after_the_return_it_ends_with_the_same_bits(last, model, data, recovered, tmp_path):
    """Step 15 precedes the best state; at 25 the loss has broken away; at 35 the run has returned."""

    def stop(progress):
        if progress.step == last:
            os.kill(os.getpid(), signal.SIGTERM)

    arguments = {**SAME, "every": 5, "optimizer": BREAKING, "directory": tmp_path}
    with pytest.raises(StoppedError, match=f"stopped at step {last}"):
        fit(model, data, callbacks=[stop], **arguments)
    again, history = fit(model, data, **arguments)
    assert bits(again) == bits(recovered[0])
    returns, undisturbed = ([m for m in each if m.returned_to is not None] for each in (history, recovered[1]))
    assert [(m.step, m.loss, m.returned_to) for m in returns] == [(m.step, m.loss, m.returned_to) for m in undisturbed]
    assert History.read(tmp_path / "history.jsonl") == history
    with pytest.raises(ValueError, match=r"has another setting \(recover is True; got False\)"):
        fit(model, data, recover=False, **arguments)


@pytest.mark.full
@pytest.mark.parametrize("size", [30.0, math.inf])
def test_a_stream_returns_as_well(size, model, tmp_path):
    """At the same step as in memory, whether the loss is large or not finite."""
    store = generate(Antiderivative(length=0.3, sensors=40, queries=20), 60, tmp_path / "data.zarr")
    optimizer = average_weights(optax.adam(rate(size)))
    _, one = fit(model, store.load(), optimizer=optimizer, **SAME)
    _, other = fit(model, store, optimizer=optimizer, **SAME)
    expected = [(30, 20), (40, None)] if math.isfinite(size) else [(24, 20), (26, 20), (40, None)]
    assert [(m.step, m.returned_to) for m in one] == [(m.step, m.returned_to) for m in other] == expected
    np.testing.assert_allclose([m.loss for m in one], [m.loss for m in other], rtol=1e-4)


def test_data_that_breaks_the_loss_is_reported_not_returned_from(model, data, monkeypatch):
    monkeypatch.setattr(steps, "WINDOW", 1)
    bad = int(np.asarray(batch_rows(5, 2, 20, 60))[7])
    broken = eqx.tree_at(lambda samples: samples.s, data, data.s.at[bad, 3].set(1e30))
    with pytest.raises(BrokenLossError, match="not finite from step 2 on"):
        fit(model, broken, optimizer=BREAKING, **SAME)


def test_only_numbers_that_count_steps_move_on(model):
    """Those of an ensemble too, whose members have each their own."""

    class Counted(NamedTuple):
        count: jax.Array
        within: jax.Array
        moment: jax.Array

    numbers = Counted(jnp.array([20, 20]), jnp.asarray(3), jnp.asarray(1.0))
    found = moved_on(State(model, (numbers,), jnp.asarray(20)), jnp.asarray(26))
    (counted,) = found.optimizer_state
    assert (int(found.step), counted.count.tolist(), int(counted.within)) == (26, [26, 26], 3)
    assert float(counted.moment) == 1.0


def test_a_return_is_a_line_of_the_history():
    history = History((Moment(30, 0.5, None, 1.0, returned_to=20), Moment(40, 0.25, None, 1.0)))
    first, second = history.to_lines().splitlines()
    assert '"returned_to": 20' in first
    assert "returned_to" not in second
    assert History.from_json(history.to_json()) == history
    assert '"validation": null' in History((Moment(1, 0.5, float("nan"), 0.0),)).to_lines()
