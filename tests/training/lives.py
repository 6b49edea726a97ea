"""What the processes that the tests start and kill do with their lives; each reports as it goes."""

import functools
import hashlib
import os
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint  # noqa: F401  # here, once, and not in each life
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loca.data import open as open_data
from loca.devices import ProcessGroup, complete, local_copy, place, process_part, replicated, shard_large
from loca.problems import Antiderivative
from loca.saving import load
from loca.training import State, StoppedError, default_optimizer, fit
from loca.training.checkpoints import Checkpoints

PROBLEM = Antiderivative(length=0.3, sensors=20, queries=10)


def train(report, directory, model, steps, seconds):
    """A run with a checkpoint every so many seconds; at its end the digest of its whole last state, and its history."""
    model = load(model)
    data, test = PROBLEM.sample(jax.random.key(0), 100), PROBLEM.sample(jax.random.key(1), 20)
    try:
        _, history = fit(
            model, data, steps=steps, batch_size=20, validate=test, every=100, directory=directory,
            checkpoint_seconds=seconds, callbacks=[lambda now: report(step=now.step, time=time.time())],
        )  # fmt: skip
    except StoppedError as stopped:
        report(stopped=str(stopped))
        return
    start = State.start(model, default_optimizer(steps))
    with Checkpoints(directory / "checkpoints") as checkpoints:
        last = checkpoints.restore((start, start))
    report(sha256=digest(last), history=[(m.step, m.loss, m.validation) for m in history])


def train_together(report, _, run, model, store, steps, seconds, rank, ranks, port, heartbeat, smallest):
    """One of several processes that train one model on streamed data, in which each reads its part of every batch.

    Arrays of parameters from the `smallest` size on, if there is one, lie in parts.
    """
    os.dup2(2, 1)  # Gloo prints; who listens to this process wants to hear numbers only
    bind = {"coordinator_bind_address": f"127.0.0.1:{port}"} if rank == 0 else {}  # else it listens to everybody
    jax.distributed.initialize(
        f"127.0.0.1:{port}", ranks, rank, initialization_timeout=120, heartbeat_timeout_seconds=heartbeat, **bind
    )
    model, data = load(model), open_data(store)
    mesh = Mesh(np.array(jax.devices()), ("functions",))
    assert process_part(complete(mesh)) == (rank, ranks)
    report(up=time.time())
    rule = replicated if smallest is None else functools.partial(shard_large, size=smallest)
    try:
        trained, history = fit(
            model, data, steps=steps, batch_size=8, validate=PROBLEM.sample(jax.random.key(1), 10), every=20, mesh=mesh,
            directory=run, checkpoint_seconds=seconds, parameters=rule,
            callbacks=[lambda now: report(step=now.step, time=time.time())],
        )  # fmt: skip
    except StoppedError as stopped:
        report(stopped=str(stopped))
        return
    start = place(State.start(model, default_optimizer(steps)), mesh)
    with Checkpoints(Path(run) / "checkpoints", processes=ProcessGroup.of(mesh)) as checkpoints:
        state = checkpoints.restore((start, start))
    report(
        sha256=digest(local_copy(state)),
        model=digest(trained),
        history=[(m.step, m.loss, m.validation) for m in history],
    )


def digest(tree) -> str:
    """SHA-256 of all arrays."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array)):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()


def numbers(step: int, size: int = 1000) -> dict[str, jax.Array]:
    """A state that is a function of the step."""
    return {"w": jnp.asarray(np.random.default_rng(step).normal(size=size), jnp.float32), "step": jnp.asarray(step)}


def save_for_ever(report, directory, size):
    """Save after save, on from what the last life has left; each is reported when it has been waited for."""
    with Checkpoints(directory) as checkpoints:
        step = -1
        if (extras := checkpoints.extras()) is not None:
            restored = checkpoints.restore(numbers(0, size))
            step = int(restored["step"])
            assert step == checkpoints.steps()[-1] == extras["step"]
            assert np.asarray(restored["w"]).tobytes() == np.asarray(numbers(step, size)["w"]).tobytes()
        while True:
            step += 1
            checkpoints.save(numbers(step, size), step, extras={"step": step})
            report(step=step - 1)


def hold(report, directory):
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(numbers(1, 10), 1)
        checkpoints.wait()
        report(step=1)
        time.sleep(600)


def save_on(report, directory, devices):
    arrays = layout(devices)
    with Checkpoints(directory) as checkpoints:
        checkpoints.save(arrays, 1)


def restore_on(report, directory, devices):
    truth = layout(devices)
    like = {name: jax.device_put(np.zeros_like(array), array.sharding) for name, array in truth.items()}
    with Checkpoints(directory) as checkpoints:
        restored = checkpoints.restore(like)
    for name, array in truth.items():
        assert np.array_equal(np.asarray(restored[name]), np.asarray(array)), name
        assert restored[name].sharding == array.sharding
        assert restored[name].committed
        assert len(restored[name].sharding.device_set) == devices


def layout(devices):
    """The same arrays on so many devices: cut by rows, cut by columns, and whole on each."""
    # read at the first use of a device
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    assert jax.device_count() == devices
    mesh = jax.make_mesh((devices,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = np.arange(16.0 * 24, dtype=np.float32).reshape(16, 24)
    places = {"rows": PartitionSpec("x"), "columns": PartitionSpec(None, "x"), "all": PartitionSpec()}
    arrays = {"rows": rows, "columns": -rows, "all": np.arange(5)}
    return {name: jax.device_put(arrays[name], NamedSharding(mesh, places[name])) for name in arrays}
