"""Checkpoints: what was saved comes back bit for bit, or is refused, whatever happens to processes, disks and bits."""

import contextlib
import os
import random
import re
import resource
import shutil
import signal
import threading
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lives import numbers
from saves import is_saving, wait_for_a_save
from zygote import zygote

from crashing import find_unsynced
from loca import durable
from loca.data import CorruptDataError, Samples
from loca.durable import MANIFEST
from loca.encoders import Sensors
from loca.models import LOCA
from loca.training import Encoded, State, advance
from loca.training.checkpoints import Checkpoints, stop_requests


def same_bits(one, other) -> bool:
    """Equal in structure, static parts, types and every bit."""
    arrays, rest = eqx.partition(one, eqx.is_array)
    other_arrays, other_rest = eqx.partition(other, eqx.is_array)
    leaves, others = jax.tree.leaves(arrays), jax.tree.leaves(other_arrays)
    return bool(eqx.tree_equal(rest, other_rest)) and all(
        x.dtype == y.dtype and x.shape == y.shape and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(leaves, others, strict=True)
    )


def restored_from(directory, like):
    """The newest state and its extras."""
    with Checkpoints(directory) as checkpoints:
        return checkpoints.restore(like), checkpoints.extras()


def copy_of(state):
    return jax.tree.map(lambda leaf: jax.device_put(np.array(leaf)) if eqx.is_array(leaf) else leaf, state)


@pytest.fixture
def run(getkey):
    """A small training run: its first state, and its compiled step, which consumes the state it is given."""
    x = jnp.linspace(0.0, 1.0, 16)[:, None]
    u = jax.random.normal(getkey(), (20, 16, 1))
    data = Samples(u, x, u.cumsum(1) / 16, x=x)
    widths = {"lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,), "num_features": 4, "lift_size": 4}
    model = LOCA.create(data, key=getkey(), encoder=Sensors(16), **widths)
    optimizer = optax.adam(optax.exponential_decay(1e-3, 5, 0.9), mu_dtype=jnp.bfloat16)
    encoded = Encoded.of(model, data)

    @eqx.filter_jit(donate="all")
    def step(state):
        return advance(state, encoded.batch(0, state.step, 5), optimizer)[0]

    return State.start(model, optimizer), step


@pytest.mark.slow
def test_a_resumed_run_is_the_same_run(run, tmp_path):
    """Saved while training goes on and consumes the saved state; the optimizer has counters and bfloat16 momenta."""
    state, step = run
    like = copy_of(state)
    types = {str(leaf.dtype) for leaf in jax.tree.leaves(eqx.filter(like, eqx.is_array))}
    assert types >= {"float32", "bfloat16", "int32"}
    with Checkpoints(tmp_path) as checkpoints:
        for i in range(1, 7):
            state = step(state)
            if i == 3:
                at_three = copy_of(state)
                checkpoints.save(state, 3, extras={"history": [0.5, 0.25], "name": "run"})
    restored, extras = restored_from(tmp_path, like)
    assert same_bits(restored, at_three)
    assert not same_bits(restored, like)
    assert extras == {"history": [0.5, 0.25], "name": "run"}
    assert not any(leaf.committed for leaf in jax.tree.leaves(eqx.filter(restored, eqx.is_array)))  # no other program
    for _ in range(3):
        restored = step(restored)
    assert same_bits(restored, state)


def test_every_type_of_array(getkey, tmp_path):
    state = {
        "odd/na.me['x']": jnp.asarray([True, False]),
        "empty": jnp.zeros((0, 3)),
        "nan": jnp.asarray([jnp.nan, -0.0, jnp.inf]),
        "complex": jnp.asarray([1 + 2j]),
        "small": jnp.asarray([1, -1], jnp.int8),
        "half": jnp.asarray([1.5], jnp.float16),
        "function": jnp.tanh,
        "nothing": None,
        "number": 3,
    }
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(state | {"key": jax.random.key(7)}, 0)
    like = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, state)
    restored, extras = restored_from(tmp_path, like | {"key": jax.random.key(0)})
    key = restored.pop("key")
    assert same_bits(restored, state)
    assert jax.random.key_data(key).tolist() == jax.random.key_data(jax.random.key(7)).tolist()
    assert extras == {}


def test_keeps_the_newest(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.steps() == []
        assert checkpoints.extras() is None
        for step in (0, 3, 5, 6):
            checkpoints.save(numbers(step), step)
            checkpoints.wait()
            assert checkpoints.steps()[-1] == step
        assert checkpoints.steps() == [3, 5, 6]
        assert same_bits(checkpoints.restore(numbers(0)), numbers(6))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "5", "6", "lock"]


def test_refuses_what_does_not_fit(run, tmp_path):
    state, _ = run
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save({"a": jnp.zeros(3), "b": jnp.zeros((), jnp.int32)}, 4)
        checkpoints.wait()
        for like, words in [
            ({"a": jnp.zeros(4), "b": jnp.zeros((), jnp.int32)}, r"\['a'\] is float32\[3\] there, but float32\[4\] in"),
            ({"a": jnp.zeros(3)}, r"\['b'\] is int32\[\] there, but missing in this run"),
            (state, "Resume with the model and optimizer"),
        ]:
            with pytest.raises(ValueError, match=words):
                checkpoints.restore(like)


def test_any_changed_bit_is_refused(tmp_path):
    """A thousand times one bit, in every file there is; the message names the file."""
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(numbers(step), step, extras={"history": [1.0, 0.5]})
        checkpoints.wait()
        files = [path for path in (tmp_path / "2").rglob("*") if path.is_file() and path.stat().st_size]
        assert len(files) > 5
        assert tmp_path / "2" / MANIFEST in files
        like, rng = numbers(0), random.Random(0)
        for i in range(1000):
            path = files[i % len(files)]
            bit = rng.randrange(8 * path.stat().st_size)
            flip(path, bit)
            with pytest.raises(CorruptDataError, match=f"{re.escape(str(path))} .*delete it to resume from step 1"):
                checkpoints.restore(like)
            flip(path, bit)
        assert same_bits(checkpoints.restore(like), numbers(2))

        for path in files:
            whole = path.read_bytes()
            path.write_bytes(whole[:-1])
            with pytest.raises(CorruptDataError, match=re.escape(str(path))):
                checkpoints.extras()
            path.write_bytes(whole)
        files.remove(tmp_path / "2" / MANIFEST)
        files[0].unlink()
        with pytest.raises(CorruptDataError, match=f"{re.escape(str(files[0]))} is missing"):
            checkpoints.restore(like)
    shutil.rmtree(tmp_path / "2")
    assert same_bits(restored_from(tmp_path, like)[0], numbers(1))


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


@contextlib.contextmanager
def full_disk():
    """No file may grow beyond 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# of other writes of Orbax, which end after its event loop
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_raises_and_spoils_nothing(tmp_path, caplog):
    size = 100_000
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(numbers(1, size), 1)
        checkpoints.wait()
    for error in (None, KeyError("what went wrong first")):
        with (  # noqa: PT012
            full_disk(),
            pytest.raises((OSError, KeyError)) as raised,
            Checkpoints(tmp_path) as checkpoints,
        ):
            checkpoints.save(numbers(2, size), 2)
            if error:
                raise error
        said = raised.value.__notes__[0] if error else str(raised.value)
        assert re.search(r"step 2 could not be written .* step 1 is intact.*\n?.*too large", said)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.steps() == [1]
        assert same_bits(checkpoints.restore(numbers(0, size)), numbers(1, size))
        checkpoints.save(numbers(4, size), 4)
    assert same_bits(restored_from(tmp_path, numbers(0, size))[0], numbers(4, size))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "4", "lock"]
    assert "Traceback" not in caplog.text


@pytest.fixture(scope="module")
def lives():
    with zygote() as parent:
        yield parent


KILLS = int(os.environ.get("LOCA_KILLS", "100"))
"""How often a process is killed in the full tier."""


@pytest.mark.full
def test_killed_at_random_moments_of_saving(lives, tmp_path):
    """SIGKILL while saves follow each other: the newest step is right, and none that was waited for is lost."""
    directory, size, rng = tmp_path / "run", 250_000, random.Random(0)
    latest = -1
    hits = 0
    for kill in range(KILLS):
        life = lives.start("save_for_ever", directory, size)
        goal = life.until(bool)[0]["step"] + (3 if kill else 0)  # the first may die before its first save is complete
        life.until(lambda told, goal=goal: told[-1]["step"] >= goal)
        time.sleep(rng.uniform(0.0, 0.5))
        if kill % 2:
            wait_for_a_save(directory)
        life.kill()
        promised = life.told()[-1]["step"]
        hits += is_saving(directory)
        steps = Checkpoints(directory).steps()
        if not steps:  # killed before the first was there
            assert max(latest, promised) == -1
            continue
        step = steps[-1]
        assert step >= max(latest, promised)
        assert step <= promised + 2
        restored, extras = restored_from(directory, numbers(0, size))
        assert extras == {"step": step}
        assert same_bits(restored, numbers(step, size))
        latest = step
    assert latest > KILLS
    assert hits
    with Checkpoints(directory):
        assert not is_saving(directory)


def test_a_manifest_gets_its_name_when_what_it_lists_is_on_the_disk(tmp_path, monkeypatch):
    unsynced = find_unsynced(monkeypatch, "replace")
    (tmp_path / "arrays").mkdir()
    (tmp_path / "arrays" / "weights").write_bytes(b"1234")
    durable.seal(tmp_path, {})
    assert unsynced == {tmp_path / MANIFEST: []}


def test_a_checkpoint_without_a_manifest_does_not_count(tmp_path):
    """The moment between the end of a save and its manifest, which random kills are unlikely to meet."""
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(numbers(step), step)
    (tmp_path / "2" / MANIFEST).unlink()
    (tmp_path / "3.orbax-checkpoint-tmp").mkdir()
    assert Checkpoints(tmp_path).steps() == [1]
    with Checkpoints(tmp_path) as checkpoints:
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "lock"]
        assert same_bits(checkpoints.restore(numbers(0)), numbers(1))
        checkpoints.save(numbers(2), 2)
    assert checkpoints.steps() == [1, 2]


def test_a_second_process_is_refused(lives, tmp_path):
    directory = tmp_path / "run"
    life = lives.start("hold", directory)
    life.until(bool)
    with pytest.raises(RuntimeError, match="is being written by another process"), Checkpoints(directory):
        pass
    assert Checkpoints(directory).steps() == [1]  # reading is free
    life.kill()
    assert same_bits(restored_from(directory, numbers(0, 10))[0], numbers(1, 10))  # the lock of the dead is no lock


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_saved_on_some_devices_and_restored_on_others(devices, lives, tmp_path):
    lives.do("save_on", tmp_path / "run", devices)
    for others in {1, 4, 8} if devices == 2 else {2}:
        lives.do("restore_on", tmp_path / "run", others)


def test_a_request_to_stop_is_an_entry():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGINT):
        with stop_requests() as requested:
            assert not requested
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)  # patience
            assert requested == [number, signal.SIGTERM]
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_other_threads_leave_signals_alone():
    seen = []

    def elsewhere():
        with stop_requests() as requested:
            seen.append((requested, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [([], before)]
    assert signal.getsignal(signal.SIGINT) == before
