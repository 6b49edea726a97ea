"""What every problem promises."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from loca.data import grid_shape
from loca.problems import Antiderivative, Darcy, ShallowWater, generate

PROBLEMS = [
    Antiderivative(),
    Antiderivative.multi_scale(),
    Darcy(),
    Darcy(preset="easy", resolution=16),
    ShallowWater(),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
def test_a_pair_depends_on_key_and_number_only(problem):
    key = jax.random.key(3)
    together = problem.pairs(key, range(3))
    for number in (2, 0):
        alone = problem.pairs(key, [number])
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], all_[number])
    other = problem.pairs(jax.random.key(4), [0])
    assert not np.allclose(other[0][0], together[0][0])


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
def test_samples_are_the_pairs_with_names_and_places(problem):
    key = jax.random.key(0)
    samples, (u, s) = problem.sample(key, 3), problem.pairs(key, range(3))
    np.testing.assert_array_equal(samples.u, u.astype(np.float32))
    np.testing.assert_array_equal(samples.s, s.astype(np.float32))
    assert (samples.inputs, samples.outputs) == (problem.inputs, problem.outputs)
    unit = problem.domain.to_unit(jnp.asarray(problem.y, jnp.float32))
    assert -1e-6 <= unit.min() <= unit.max() <= 1.0 + 1e-6
    assert grid_shape(samples.x) is not None
    assert type(problem)(**problem.arguments) == problem
    assert json.loads(json.dumps(problem.arguments)).keys() == problem.arguments.keys()


def test_generated_files_name_the_coordinates(tmp_path):
    """They once had no names, while `sample` returned them."""
    problem = ShallowWater(resolution=8, times=(0.11, 0.16))
    store, samples = generate(problem, 1, tmp_path / "waves.zarr"), problem.sample(jax.random.key(0), 1)
    assert [each.name for each in store.query_coordinates] == ["t", "x1", "x2"]
    assert (store.query_coordinates, store.sensor_coordinates) == (
        problem.query_coordinates,
        problem.sensor_coordinates,
    )
    assert samples.query_coordinates == problem.query_coordinates


def test_a_seed_gives_the_same_functions_for_ever():
    # Values recorded once: whoever changes the drawing of functions changes everybody's data, and should know it.
    u, s = Antiderivative().pairs(jax.random.key(0), [0])
    recorded = [float(u[0, 0, 0]), float(s[0, -1, 0])]
    u, s = Darcy().pairs(jax.random.key(0), [0])
    recorded += [float(u[0, 0, 0]), float(s[0, 500, 0])]
    u, s = ShallowWater().pairs(jax.random.key(0), [0])
    recorded += [float(u[0, 495, 0]), float(s[0, 700, 1])]
    np.testing.assert_allclose(recorded, EXPECTED, rtol=1e-9)


EXPECTED = [
    0.4520639433098797, 0.25304287767764866, 1.036821828446938,
    0.5827606666838917, 1.110732070040172, 0.04426380008654009,
]  # fmt: skip


def test_scales_of_antiderivatives_are_log_uniform():
    """The same draws with variance 1 leave √o as the ratio; log o is uniform by the test of Kolmogorov and Smirnov."""
    sizes = {"length": 1.0, "sensors": 2, "queries": 2}
    key, rows = jax.random.key(0), range(300)
    ranged, fixed = (Antiderivative(variance=o, **sizes).pairs(key, rows)[0] for o in ((0.01, 100.0), 1.0))
    ratio = ranged / fixed
    np.testing.assert_allclose(ratio[:, 0], ratio[:, 1], rtol=1e-9)
    t = (np.log10(ratio[:, 0, 0] ** 2) + 2.0) / 4.0
    assert scipy.stats.kstest(t, "uniform").pvalue > 0.01


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Antiderivative(length=-0.1), "length must be positive"),
        (lambda: Antiderivative(variance=(2.0, 1.0)), "variance must be positive"),
        (lambda: Darcy(preset="hard"), "literal, easy"),
        (lambda: Darcy(resolution=2).sample(jax.random.key(0), 1), "at least 3 nodes"),
        (lambda: ShallowWater(times=(0.11, 0.1105)), "multiples of the time step"),
    ],
)
def test_impossible_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
