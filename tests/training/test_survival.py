"""A run that is killed, stopped or refused: what it leaves, and that it ends where an undisturbed one ends."""

import os
import random
import signal
import subprocess
import sys

import jax
import pytest

from loca.encoders import Sensors
from loca.models import LOCA
from loca.problems import Antiderivative
from loca.training import History, fit

KILLS = int(os.environ.get("LOCA_KILLS", "5"))
"""How often the run is killed; `LOCA_KILLS=100` for the record."""

RUN = """
import hashlib, sys
import equinox as eqx, jax, numpy as np
from loca.encoders import Sensors
from loca.models import LOCA
from loca.problems import Antiderivative
from loca.training import StoppedError, fit

problem = Antiderivative(length=0.3, sensors=40, queries=20)
train, test = problem.sample(jax.random.key(0), 200), problem.sample(jax.random.key(1), 50)
widths = dict(lift_widths=(16,), proposal_widths=(16,), feature_widths=(16,), num_features=10, lift_size=8)
model = LOCA.create(train, key=jax.random.key(1), encoder=Sensors(40), **widths)
going = iter(["going"])
try:
    model, history = fit(
        model, train, steps=int(sys.argv[2]), batch_size=50, validate=test, every=1000,
        directory=sys.argv[1], checkpoint_seconds=0.3, callbacks=[lambda _: [print(w, flush=True) for w in going]],
    )
except StoppedError as stopped:
    sys.exit(print(stopped))
digest = hashlib.sha256()
for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array)):
    digest.update(np.asarray(leaf).tobytes())
print(digest.hexdigest(), [(m.step, m.loss, m.validation) for m in history])
"""


def start(directory, steps):
    line = [sys.executable, "-W", "ignore", "-c", RUN, str(directory), str(steps)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_state(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    steps = 4000 * KILLS
    undisturbed, _ = start(tmp_path / "undisturbed", steps).communicate(timeout=600)
    rng, kills = random.Random(0), 0
    while True:
        process = start(tmp_path / "killed", steps)
        assert process.stdout.readline() == "going\n"
        try:
            rest, _ = process.communicate(timeout=rng.uniform(0.0, 1.5) if kills < KILLS else 600)
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    assert kills >= KILLS // 2, "it was too quick to be killed"
    # the same bits, and the same losses and errors on the way
    assert rest == undisturbed.removeprefix("going\n")


def test_asked_to_stop_it_saves_and_ends_well(tmp_path):
    directory = tmp_path / "run"
    process = start(directory, 10**6)
    assert process.stdout.readline() == "going\n"
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopped at step" in said
    assert "run the same to go on" in said
    assert any((directory / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def data():
    return Antiderivative(length=0.3, sensors=40, queries=20).sample(jax.random.key(0), 60)


@pytest.fixture(scope="module")
def model(data):
    widths = {"lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}
    return LOCA.create(data, key=jax.random.key(1), encoder=Sensors(40), num_features=4, lift_size=4, **widths)


def test_the_directory_tells_what_happened_and_knows_its_run(model, data, tmp_path):
    arguments = {"steps": 20, "batch_size": 20, "every": 10, "directory": tmp_path / "run"}
    _, history = fit(model, data, **arguments)
    assert History.read(tmp_path / "run/history.jsonl") == history
    _, again = fit(model, data, **arguments)  # it is done already
    assert again == history
    with pytest.raises(ValueError, match="has seed=0, but seed=1 was asked for"):
        fit(model, data, seed=1, **arguments)


def test_two_at_once_are_refused(model, data, tmp_path):
    said = []

    def second(_):
        with pytest.raises(RuntimeError, match="another process") as refusal:
            fit(model, data, steps=2, batch_size=20, directory=tmp_path / "run")
        said.append(refusal)

    fit(model, data, steps=1, batch_size=20, directory=tmp_path / "run", callbacks=[second])
    assert len(said) == 1
