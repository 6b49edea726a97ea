"""Workers beside each other."""

import functools
from pathlib import Path

import jax.numpy as jnp
import pytest

from loca.workers import carry_out

TASKS = Path("/proc/self/task")


def compute(directory: Path, piece: int) -> None:
    """Write down how many threads JAX has in this process."""
    jnp.ones((300, 300)).sum().block_until_ready()
    names = [(task / "comm").read_text() for task in TASKS.iterdir()]
    (directory / str(piece)).write_text(str(sum(name.startswith("tf_XLAEigen") for name in names)))


@pytest.mark.skipif(not TASKS.exists(), reason="threads have names where /proc is")
def test_jax_has_one_thread_in_each_worker(tmp_path):
    """More would fight for cores, and sums that they share would depend on how many cores there are."""
    for _ in carry_out(functools.partial(compute, tmp_path), range(2), workers=2):
        pass
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1", "1"]
