"""Any operator trained as a stepper, with noise, several frames and steps, alone and beside another one."""

import jax
import numpy as np
import pytest

import loca
from loca.data import Trajectories
from loca.domains import Torus
from loca.models import Stepper, combine_steppers, rollout_error

TAU = 2.0 * np.pi
Y = np.linspace(0.0, TAU, 16, endpoint=False)


def waves(count, seed, frames=12):
    """Two waves of which one moves twice as fast."""
    random = np.random.default_rng(seed)
    phase, time = random.uniform(0.0, TAU, size=(2, count, 1, 1)), 0.3 * np.arange(frames)[:, None]
    s = np.sin(Y - time - phase[0]) + 0.5 * np.cos(2 * Y - 4 * time - phase[1])
    return Trajectories(s.astype(np.float32), Y, domain=Torus([0.0], [TAU]))


TRAIN, VALIDATION = waves(20, 0), waves(5, 1)


def trained(history, steps=150, **options):
    model = loca.FNO.create(TRAIN.samples(history), key=jax.random.key(0), modes=4, width=8, depth=2)
    return loca.fit(model, TRAIN, steps=steps, progress=False, validate=VALIDATION, **options)


@pytest.mark.slow
def test_an_fno_learns_the_step():
    stepper, history = trained(1, noise=0.01)
    assert isinstance(stepper, Stepper)
    assert history.moments[-1].validation < 0.3
    error = rollout_error(stepper, VALIDATION)
    assert error < 0.3
    further, _ = loca.fit(stepper, TRAIN, steps=100, unroll=3, progress=False, validate=VALIDATION)
    assert rollout_error(further, VALIDATION) < error
    both, least = combine_steppers({"one": stepper, "several": further}, VALIDATION)
    assert least <= rollout_error(further, VALIDATION)
    assert rollout_error(both, VALIDATION) == pytest.approx(least, rel=1e-4)


def test_streams_and_refusals():
    stepper, _ = trained(2, steps=2)
    assert stepper.history == 2
    pairs = TRAIN.samples()
    model = loca.FNO.create(pairs, key=jax.random.key(0), modes=4, width=8, depth=2)
    with pytest.raises(ValueError, match="belong to trajectories"):
        loca.fit(model, pairs, noise=0.1)
