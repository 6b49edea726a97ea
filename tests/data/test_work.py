"""Workers that run concurrently."""

import functools
from pathlib import Path

import jax.numpy as jnp
import pytest

from loca.workers import run_tasks

TASKS = Path("/proc/self/task")


def compute(directory: Path, piece: int) -> None:
    """Write the number of threads that JAX has in this process."""
    jnp.ones((300, 300)).sum().block_until_ready()
    names = [(task / "comm").read_text() for task in TASKS.iterdir()]
    (directory / str(piece)).write_text(str(sum(name.startswith("tf_XLAEigen") for name in names)))


@pytest.mark.slow
@pytest.mark.skipif(not TASKS.exists(), reason="threads have names where /proc is")
def test_jax_has_one_thread_in_each_worker(tmp_path):
    """More would compete for cores, and sums split among them would depend on the number of cores."""
    for _ in run_tasks(functools.partial(compute, tmp_path), range(2), workers=2):
        pass
    assert [path.read_text() for path in tmp_path.iterdir()] == ["1", "1"]
