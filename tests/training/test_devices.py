"""A run on several devices: the same run, which resumes on more or fewer of them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

RUN = """
import functools, json, os, shutil, signal, sys
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
from loca_reproduction.benchmarks.scale import tally
from loca.encoders import Sensors
from loca.losses import mean_squared
from loca.models import LOCA
from loca.devices import complete, place, replicated, shard_large
from loca.parameters import trainable
from loca.problems import Antiderivative
from loca.training import State, StoppedError, default_optimizer, fit
from loca.training.steps import InMemoryLoop, StepConfig

def mesh(count):
    if count == "mixed":
        return jax.make_mesh((2, 2, 2), ("nodes", "functions", "queries"))
    return jax.sharding.Mesh(np.array(jax.devices()[:count]), ("functions",))

compiled, take_steps = [], InMemoryLoop.run

def counting(self, *arguments):
    result = take_steps(self, *arguments)
    compiled.append(self.loop._cache_size())
    return result

InMemoryLoop.run = counting

problem = Antiderivative(length=0.3, sensors=40, queries=20)
train, test = problem.sample(jax.random.key(0), 200), problem.sample(jax.random.key(1), 50)
train = train.observe(jax.random.key(2), 15)
widths = dict(lift_widths=(16,), proposal_widths=(16,), feature_widths=(16,), num_features=10, lift_size=8)
model = LOCA.create(train, key=jax.random.key(1), encoder=Sensors(40), **widths)

def stop_half_way(progress):
    if progress.step == 100:
        os.kill(os.getpid(), signal.SIGTERM)

def run(count, directory, **more):
    arguments = dict(steps=200, batch_size=40, validate=test, every=100, directory=directory, mesh=mesh(count))
    return fit(model, train, **arguments, **more)

def numbers(model, history):
    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    return {
        "parameters": np.concatenate([np.ravel(leaf) for leaf in leaves]).tolist(),
        "losses": [moment.loss for moment in history],
        "errors": [moment.validation for moment in history],
        "devices": sorted({len(leaf.sharding.device_set) for leaf in leaves}),
    }

told = {"plain": numbers(*fit(model, train, steps=200, batch_size=40, validate=test, every=100))}
told["plain"]["devices"] = [1]
try:
    run(2, sys.argv[1], callbacks=[stop_half_way])
except StoppedError as stopped:
    told["stopped"] = str(stopped)
in_parts = functools.partial(shard_large, size=64)
for name in sys.argv[2:]:
    directory = sys.argv[1] + name
    shutil.copytree(sys.argv[1], directory)
    if name == "in parts":
        told[name] = numbers(*run(4, directory, parameters=in_parts))
    else:
        told[name] = numbers(*run(name if name == "mixed" else int(name), directory))

optimizer, four = default_optimizer(200), complete(mesh(4))

def some_steps(rule):  # bytes of the learned numbers that the first device then has, and what went between devices
    config = StepConfig(optimizer, mean_squared, 40, 0, None, four, rule)
    own = jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, model)  # steps use buffers up
    state = place(State.start(own, optimizer), four, rule)
    loop = InMemoryLoop(state, train, config)
    limit = place((jnp.asarray(3, jnp.int32), jnp.ones(())), four)
    program = loop.loop.lower(eqx.filter(state, eqx.is_array), loop.encoded, *limit).compile().as_text()
    state, _ = loop.run(state, 3)
    arrays = jax.tree.leaves(eqx.filter(state, trainable(state)))
    kept = sum(s.data.nbytes for a in arrays for s in a.addressable_shards if s.device == jax.devices()[0])
    return {"bytes": kept, "collectives": tally(program)[0]}

if "in parts" in sys.argv:
    told["steps"] = {"whole": some_steps(replicated), "in parts": some_steps(in_parts)}
try:
    fit(model, train, steps=1, batch_size=30, mesh=mesh(8))
except ValueError as refused:
    told["refused"] = str(refused)
told["compiled"] = compiled
print(json.dumps(told))
"""


RESUMED = ["mixed", *(["in parts", *"1248"] if os.environ.get("LOCA_FULL") else [])]
"""What a run resumes on: devices along one axis, eight along three ("mixed"), or four with split parameters."""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, str(tmp_path_factory.mktemp("devices") / "run"), *RESUMED],
        capture_output=True, text=True, check=False, env={**os.environ, "XLA_FLAGS": flags}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("count", ["mixed", "in parts", *"1248"])
def test_saved_on_two_devices_it_resumes_on_any_number(told, count):
    assert "stopped at step 100" in told["stopped"]
    assert told[count]["devices"] == [{"mixed": 8, "in parts": 4}.get(count) or int(count)]
    # sums over functions are taken in another order, so not the same bits; 200 steps of Adam apart
    np.testing.assert_allclose(told[count]["losses"], told["plain"]["losses"], rtol=1e-4)
    np.testing.assert_allclose(told[count]["errors"], told["plain"]["errors"], rtol=1e-3)
    np.testing.assert_allclose(told[count]["parameters"], told["plain"]["parameters"], atol=1e-3)


def test_every_run_is_compiled_once(told):
    assert set(told["compiled"]) == {1}


def test_parameters_and_moments_in_parts_stay_so(told):
    """On four devices each has a little more than a quarter: what is small stays whole."""
    whole, in_parts = (told["steps"][how]["bytes"] for how in ("whole", "in parts"))
    assert 0.25 * whole < in_parts < 0.35 * whole


def test_only_the_gradient_goes_between_devices(told):
    """And parameters that lie in parts; which functions are in a batch every device finds out by itself."""
    assert told["steps"]["whole"]["collectives"] == {"all-reduce": 1}
    assert set(told["steps"]["in parts"]["collectives"]) == {"all-reduce", "all-gather"}
    assert told["steps"]["in parts"]["collectives"]["all-reduce"] == 1


def test_a_batch_that_cannot_be_split_is_refused(told):
    assert told["refused"] == (
        "a batch of 30 functions cannot be split evenly over 8 devices; "
        "choose a multiple as batch_size, or fewer devices"
    )
