"""Normal equations: closed forms, and the same sums on several devices."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from loca.local.equations import NormalEquations


def given(rule, block):
    return block


def test_they_leave_a_part_out_and_have_the_solution_of_least_squares():
    x, r = np.random.default_rng(0).normal(size=(60, 1, 5)), np.random.default_rng(1).normal(size=(60, 1, 2))
    equations = NormalEquations(3, 5, 2)
    for k in range(3):
        equations.add(k, given, None, (x[k * 20 :], r[k * 20 :]), 8)
        equations.add(k, given, None, (x[k * 20 + 8 :], r[k * 20 + 8 :]), 12)
    x, r, rest = x[:, 0].astype(np.float32), r[:, 0].astype(np.float32), np.r_[0:20, 40:60]
    np.testing.assert_allclose(equations.solve([0.0])[0], np.linalg.lstsq(x, r, rcond=None)[0], rtol=1e-4)
    np.testing.assert_allclose(
        equations.solve([0.0], 1)[0], np.linalg.lstsq(x[rest], r[rest], rcond=None)[0], rtol=1e-4
    )
    kept = np.array([True, False, True, True, False])
    few = equations.solve([0.0], kept=kept)[0]
    np.testing.assert_allclose(few[kept], np.linalg.lstsq(x[:, kept], r, rcond=None)[0], rtol=1e-4)
    assert not few[~kept].any()
    scaled, size = x / np.linalg.norm(x, axis=0), np.linalg.norm(x, axis=0)[:, None]
    ridge = np.linalg.solve(scaled.T @ scaled + 0.1 * np.eye(5), scaled.T @ r) / size
    np.testing.assert_allclose(equations.solve([0.1])[0], ridge, rtol=1e-4)


ON_MESH = """
import json
import jax, jax.numpy as jnp, numpy as np
from loca.data import Normalization
from loca.local.corrections import Block, LocalRule, weighted
from loca.local.equations import NormalEquations
from loca.local.patches import Axis, Patch, Torus
from loca.local.steps import Frames, LocalStep, Noisy, pairs
from loca.models import Grid

mesh, rng, found = jax.make_mesh((2,), ("functions",)), np.random.default_rng(0), []
random = lambda *shape: rng.normal(size=shape).astype(np.float32)
grid = Grid((jnp.arange(8) / 8,), (1.0,))
rule = LocalRule.largest(grid, 1, jnp.ones(1), 100)
corners = rng.integers(0, 8, (6, 2, 5)), np.full((6, 2, 5), 0.5, np.float32)
step = LocalStep(
    Normalization.identity(1, 1), grid, Torus((Axis(8, "periodic"),)), (Patch((3.0, 2.0), 1, ()),), 0,
    jnp.zeros((23, 1)), jnp.zeros((23, 1)), jnp.ones(1), jnp.ones((1, 5)),
)
noisy = Noisy(step, jnp.asarray(0.1), jnp.ones((1, 5)), jnp.ones(8, bool))
for regression, rule, block in (
    (weighted, rule, Block(random(6, 8, 1), random(6, 8, 1), *corners, random(6, 5, 1), random(6, 1, 1))),
    (pairs, noisy, Frames(random(6, 8, 1), random(6, 8, 1), np.uint32(range(6)), np.tile(np.arange(8), (6, 1)))),
):
    sums = []
    for each in (None, mesh):
        count = jax.eval_shape(regression, rule, block)[0].shape[-1]
        sums.append(NormalEquations(1, count, 1, each))
        sums[-1].add(0, regression, rule, block, 5)
    for name in ("matrix", "right"):
        one, two = (getattr(each, name)[0] for each in sums)
        found.append(float(abs(two - one).max() / abs(one).max()))
print(json.dumps(found))
"""


@pytest.mark.slow
def test_two_devices_find_the_same_sums_as_one():
    environment = {"XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ON_MESH], capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert max(json.loads(done.stdout)) < 1e-6  # features are in single precision
