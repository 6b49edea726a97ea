"""Saving that fails or is killed leaves the file of before, or the new one, whole."""

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

from loca.saving import load, save


def test_a_full_disk_leaves_the_old_file(small, contents, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(contents)
    other = jax.block_until_ready(jax.tree.map(lambda a: a + 1, small))  # before: JAX writes what it has compiled
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


def test_a_directory_that_cannot_be_written(small, tmp_path):
    with pytest.raises(FileNotFoundError):
        save(small, tmp_path / "missing" / "a")
    with pytest.raises(OSError, match="/proc/self"):  # nobody may make files there, not even root
        save(small, "/proc/self/a")


def test_a_directory_without_permission_leaves_the_old_file(small, contents, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = tmp_path / "a"
    path.write_bytes(contents)
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        save(small, path)
    tmp_path.chmod(0o700)
    assert path.read_bytes() == contents


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
"""


def test_killed_while_saving(small, tmp_path):
    path = tmp_path / "a"
    seen = set()
    for wait in (0.0, 0.013, 0.031, 0.057):
        save(eqx.tree_at(lambda m: m.q.biases[0], small, jnp.zeros(1 << 18)), path)
        process = subprocess.Popen([sys.executable, "-c", SAVES, path], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(wait)
        process.kill()
        process.communicate()
        values = load(path).q.biases[0]
        assert (values == values[0]).all()
        seen.add(float(values[0]))
    assert seen <= {0.0, 1.0, 2.0}
    assert len(seen) > 1
