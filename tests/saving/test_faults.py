"""Saving that fails or is killed leaves the old file or the new one, complete."""

import os
import resource
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from crashing import Crash, crash_at, find_unsynced
from loca.saving import container, load, save


def test_a_full_disk_leaves_the_old_file(small, contents, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(contents)
    other = jax.block_until_ready(jax.tree.map(lambda a: a + 1, small))  # first, because JAX writes compiled programs
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            save(other, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == contents
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_gets_its_name_when_it_is_on_the_disk(small, tmp_path, monkeypatch):
    unsynced = find_unsynced(monkeypatch, "replace")
    save(small, tmp_path / "a")
    assert unsynced == {tmp_path / "a": []}


CHANGES = ((os, "fsync"), (container, "write_atomically"), (container, "sync"))
"""What changes the disk here, besides moving and removing files."""


def test_crashing_before_any_change_of_the_disk_leaves_a_complete_file(small, contents, tmp_path, monkeypatch):
    other = jax.block_until_ready(jax.tree.map(lambda a: a + 1, small))
    save(other, tmp_path / "new")
    new = (tmp_path / "new").read_bytes()
    found = []
    while True:
        path = tmp_path / str(len(found))
        path.write_bytes(contents)
        with monkeypatch.context() as patch:
            crash_at(patch, len(found), *CHANGES)
            try:
                save(other, path)
            except Crash:
                found.append(path.read_bytes())
            else:
                break
    assert path.read_bytes() == new
    assert set(found) == {contents, new}
    assert found == sorted(found, key=lambda each: each == new)  # first the old file, then the new one
    assert len(found) > 4


SAVES = """
import sys
import equinox as eqx, jax.numpy as jnp
from loca.saving import load, save

model = load(sys.argv[1])
others = [eqx.tree_at(lambda m: m.q.biases[0], model, jnp.full((1 << 18,), float(i))) for i in (1, 2)]
print("ready", flush=True)
while True:
    for other in others:
        save(other, sys.argv[1])
        print("saved", flush=True)
"""


@pytest.mark.parametrize(
    ("saves", "wait"),
    [
        pytest.param(0, 0.003, marks=pytest.mark.slow),
        pytest.param(2, 0.005, marks=pytest.mark.slow),
        *(pytest.param(saves, wait, marks=pytest.mark.full) for saves in (0, 1, 2) for wait in (0.0, 0.013, 0.031)),
    ],
)
def test_killed_while_saving(saves, wait, small, tmp_path):
    """Complete saves are kept, and the file is always complete."""
    path = tmp_path / "a"
    save(eqx.tree_at(lambda m: m.q.biases[0], small, jnp.zeros(1 << 18)), path)
    with subprocess.Popen([sys.executable, "-c", SAVES, path], stdout=subprocess.PIPE) as process:
        assert [process.stdout.readline() for _ in range(1 + saves)] == [b"ready\n", *[b"saved\n"] * saves]
        time.sleep(wait)
        process.kill()
    values = load(path).q.biases[0]
    assert (values == values[0]).all()
    assert values[0] in ((1.0, 2.0) if saves else (0.0, 1.0, 2.0))
