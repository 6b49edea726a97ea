"""Data in memory: query forms, labels, noise, splits, normalization, order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loca.data import Free, Indexed, Normalization, Samples, Shared, Variable, batch_rows, grid_axes, grid_shape
from loca.domains import Box
from loca.typing import Measurements


def samples(key, functions=6, sensors=5, grid=8, d_u=2, d_s=3):
    u_key, s_key = jax.random.split(key)
    y = jnp.linspace(0.0, 1.0, grid)[:, None]
    return Samples(
        u=jax.random.normal(u_key, (functions, sensors, d_u)),
        y=y,
        s=jax.random.normal(s_key, (functions, grid, d_s)),
        x=jnp.linspace(0.0, 1.0, sensors)[:, None],
    )


@pytest.mark.slow
def test_observed_labels_are_those_of_their_locations(getkey):
    """s = y²: whatever is observed, the pairing of values and locations survives, in every form."""
    y = jnp.linspace(0.0, 2.0, 10)[:, None]
    square = jnp.broadcast_to(y**2, (4, 10, 1))
    free = jax.random.uniform(getkey(), (4, 10, 1))
    for form, values in ((Shared(y), square), (Free(free), free**2)):
        data = Samples(jnp.zeros((4, 3, 1)), form, values)
        once = data.observe(getkey(), 6)
        twice = once.observe(getkey(), 3)
        for observed, count in ((once, 6), (twice, 3)):
            locations = observed.y.locations(4)
            assert jnp.allclose(observed.s, locations**2)
            assert all(len(np.unique(row)) == count for row in np.asarray(locations[:, :, 0]))  # without replacement


def test_observing_keeps_a_shared_grid_shared(getkey):
    data = samples(getkey()).observe(getkey(), 3)
    assert isinstance(data.y, Indexed)
    assert data.y.y.shape == (8, 1)


def test_every_location_is_observed_equally_often(getkey):
    data = samples(getkey(), functions=4000, grid=8).observe(getkey(), 2)
    frequency = np.bincount(np.asarray(data.y.index).ravel(), minlength=8) / 4000
    assert frequency == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / 4000))


def test_observing_everything_shows_everything(getkey):
    """Drawn with replacement, as the reference scripts do, 1024 of 1024 would show 63 % of the grid."""
    data = samples(getkey()).observe(getkey(), 8)
    assert jnp.array_equal(data.y.index, jnp.tile(jnp.arange(8), (6, 1)))


def test_noise_has_the_standard_deviation_asked_for(getkey):
    clean = samples(getkey(), functions=2000)
    noisy = clean.corrupt(getkey(), noise_std=0.15)
    noise = noisy.u - clean.u
    assert float(noise.std()) == pytest.approx(0.15, rel=0.02)
    assert abs(float(noise.mean())) < 0.01
    assert jnp.array_equal(noisy.s, clean.s)


def test_noise_on_measurements_leaves_places_alone(getkey):
    measured = Measurements(jnp.zeros((2, 5, 1)), jnp.ones((2, 5, 2)), jnp.ones((2, 5), bool))
    noisy = Samples(measured, jnp.linspace(0, 1, 3)[:, None], jnp.zeros((2, 3, 1))).corrupt(getkey(), 1.0)
    assert jnp.array_equal(noisy.u.x, measured.x)
    assert noisy.u.u.std() > 0.3


def test_parts_of_a_split_are_disjoint(getkey):
    data = samples(getkey(), functions=20)
    tagged = Samples(jnp.arange(20.0)[:, None, None], data.y, data.s)
    train, validation, test = tagged.split(getkey(), 12, 3, 5)
    tags = np.concatenate([np.asarray(part.u).ravel() for part in (train, validation, test)])
    assert sorted(tags) == list(range(20))
    assert (len(train), len(validation), len(test)) == (12, 3, 5)
    assert jnp.array_equal(train.s[0], data.s[int(train.u[0, 0, 0])])


def test_normalization_per_channel(getkey):
    data = samples(getkey(), functions=500)
    data = Samples(data.u * jnp.array([2.0, 50.0]) + 7.0, data.y, data.s * jnp.array([1.0, 1e-3, 1e3]) - 4.0)
    norm = Normalization.fit(data)
    u, s = norm.standardize_input(data.u), norm.at(data.y).standardize(data.s)
    assert np.allclose(u.mean((0, 1)), 0, atol=1e-4)
    assert np.allclose(u.std((0, 1)), 1, atol=1e-4)
    assert np.allclose(s.mean((0, 1)), 0, atol=1e-3)
    assert np.allclose(s.std((0, 1)), 1, atol=1e-2)
    assert np.allclose(norm.at(data.y).restore(s), data.s, rtol=1e-4)


def test_a_constant_channel_is_not_divided_by_round_off():
    data = Samples(jnp.full((3, 4, 1), 1 / 3), jnp.linspace(0, 1, 2)[:, None], jnp.zeros((3, 2, 1)))
    norm = Normalization.fit(data)
    assert norm.u_scale == 1.0
    assert norm.s_scale == 1.0


def test_masked_measurements_do_not_count():
    u = jnp.array([[[1.0], [3.0], [1e6]], [[5.0], [7.0], [-1e6]]])
    mask = jnp.array([[True, True, False]] * 2)
    data = Samples(Measurements(u, jnp.zeros((2, 3, 1)), mask), jnp.linspace(0, 1, 2)[:, None], jnp.zeros((2, 2, 1)))
    norm = Normalization.fit(data)
    assert norm.u_shift == 4.0
    assert norm.u_scale == pytest.approx(np.std([1, 3, 5, 7]))


@pytest.mark.parametrize(
    ("count", "size"),
    [
        (1, 1),
        (2, 3),
        (17, 5),
        *(pytest.param(*pair, marks=pytest.mark.full) for pair in ((16, 4), (100, 100), (257, 40), (1000, 73))),
    ],
)
@settings(max_examples=10)
@given(seed=st.integers(0, 2**31 - 1))
def test_every_function_comes_once_per_epoch(count, size, seed):
    steps = jnp.arange(-(-2 * count // size))
    stream = np.asarray(jax.vmap(lambda step: batch_rows(seed, step, size, count))(steps)).ravel()
    for epoch in (stream[:count], stream[count : 2 * count]):
        assert sorted(epoch) == list(range(count))


def test_order_is_a_pure_function_of_seed_and_step():
    rows = [batch_rows(3, step, 32, 1000) for step in range(5)]
    later = jax.jit(lambda seed, step: batch_rows(seed, step, 32, 1000))(3, 4)
    assert jnp.array_equal(rows[4], later)
    assert not jnp.array_equal(rows[4], batch_rows(4, 4, 32, 1000))
    assert not jnp.array_equal(rows[0], batch_rows(3, 1000, 32, 1000))  # the same place, a thousand steps on


def test_order_looks_random():
    """Neighbors in the order are unrelated: rank correlation of the permutation and of its steps near zero."""
    count = 4096
    order = np.asarray(batch_rows(0, 0, count, count))
    assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < 4 / np.sqrt(count)
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 4 / np.sqrt(count)
    pairs = np.histogram2d(order[1:], order[:-1], bins=8)[0]
    assert ((pairs - count / 64) ** 2 / (count / 64)).sum() < 63 + 5 * np.sqrt(2 * 63)  # χ² with 63 degrees of freedom


def test_a_million_functions_cost_no_more_than_a_thousand():
    compiled = jax.jit(lambda step: batch_rows(0, step, 100, 10**6)).lower(0).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100_000  # no permutation of a million is ever made
    assert int(compiled(7).max()) < 10**6


def test_functions_that_do_not_exist_are_not_taken(getkey):
    data = samples(getkey(), functions=5)
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        data.take(jnp.array([0, 5]))


def test_domain_and_names_are_read_off_or_kept(getkey):
    data = samples(getkey())
    assert data.domain == Box((0.0,), (1.0,))
    assert [v.name for v in data.outputs] == ["s1", "s2", "s3"]
    pressure = Samples(data.u[..., :1], data.y, data.s[..., :1], outputs=[Variable("pressure", "Pa")])
    assert pressure.observe(getkey(), 2).split(getkey(), 3)[0].outputs == (Variable("pressure", "Pa"),)


@pytest.mark.parametrize("names", [["a", "b", "c"], [("a", ""), Variable("b"), "c"]])
def test_names_may_be_strings(names, getkey):
    data = samples(getkey())
    named = Samples(data.u[..., 0], data.y, data.s, x=data.x, inputs="heating", outputs=names, query_coordinates=["t"])
    assert named.inputs == (Variable("heating"),)
    assert named.outputs == (Variable("a"), Variable("b"), Variable("c"))
    assert named.query_coordinates == (Variable("t"),)


def test_grids_are_recognized():
    x1, x2 = np.linspace(0, 1, 4), np.linspace(90, -90, 3)
    grid = np.stack(np.meshgrid(x1, x2, indexing="ij"), -1).reshape(-1, 2)
    assert grid_shape(jnp.asarray(grid)) == (4, 3)
    assert all(map(np.array_equal, grid_axes(grid), (x1, x2)))
    assert grid_shape(jnp.asarray(grid[::-1])) == (4, 3)
    assert grid_shape(jnp.asarray(np.random.default_rng(0).permutation(grid))) is None
    assert grid_shape(jnp.asarray(grid[:-1])) is None
    column_major = np.stack(np.meshgrid(x1, x2, indexing="xy"), -1).reshape(-1, 2)
    assert grid_shape(jnp.asarray(column_major)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"s": jnp.zeros((5, 8, 3))}, "6 functions but s holds 5"),
        ({"s": jnp.zeros((6, 7, 3))}, "7 values per function but y has 8"),
        ({"x": jnp.zeros((4, 1))}, "4 sensors but u has 5"),
        ({"domain": Box.unit(2)}, "1 columns but .* 2-dimensional"),
        ({"s": 3.0}, r"expected s as an array of shape \(N, P, d_s\) or \(N, P\), got a single number"),
        ({"s": np.zeros((6, 8, 3), complex)}, "with real numbers, got complex128"),
    ],
)
def test_what_does_not_fit_is_refused(getkey, change, message):
    data = samples(getkey())
    with pytest.raises(ValueError, match=message):
        Samples(**({"u": data.u, "y": data.y, "s": data.s, "x": data.x} | change))


@pytest.mark.parametrize(
    "convert", [np.ndarray.tolist, lambda a: a.astype(np.int64), lambda a: a.astype(np.float64), lambda a: a]
)
def test_arrays_may_be_lists_integers_or_double_precision_and_lack_the_axis_of_one_channel(convert):
    rng = np.random.default_rng(0)
    u, s = (rng.integers(-9, 9, (3, count)).astype(np.float32) for count in (5, 4))
    x, y = np.arange(5.0, dtype=np.float32), np.arange(4.0, dtype=np.float32)
    data = Samples(convert(u), convert(y), convert(s), x=convert(x))
    for array, expected in ((data.u, u), (data.s, s), (data.x, x), (data.y.points, y)):
        assert array.dtype == jnp.float32
        np.testing.assert_array_equal(array, expected[..., None])
    free = Samples(convert(u), convert(np.stack([y[:, None]] * 3)), convert(s))
    np.testing.assert_array_equal(free.y.locations(3), data.y.locations(3))


def test_measurements_may_be_arrays_as_users_have_them(unchecked):
    rng = np.random.default_rng(0)
    u, x, mask = rng.integers(-9, 9, (3, 5)), rng.uniform(size=(3, 5, 2)), np.arange(5) < [[3], [4], [5]]
    y, s = rng.uniform(size=(4, 2)), np.zeros((3, 4))
    for measured in (Measurements(u, x, mask), Measurements(u.tolist(), x.tolist(), mask.astype(int))):
        data = Samples(measured, y, s)
        assert (data.u.u.dtype, data.u.x.dtype, data.u.mask.dtype) == (jnp.float32, jnp.float32, bool)
        np.testing.assert_array_equal(data.u.u, u[..., None])
        assert data.input_size == 1
    for wrong in (Measurements(u, x[:, :4], mask), Measurements(u, x, mask[:, 0])):
        with pytest.raises(ValueError, match="pass one location and one entry of the mask for each value"):
            Samples(wrong, y, s)


def test_impossible_requests_are_refused(getkey):
    data = samples(getkey())
    with pytest.raises(ValueError, match="cannot keep 9 labels per function: there are 8"):
        data.observe(getkey(), 9)
    with pytest.raises(ValueError, match="cannot split 6 functions"):
        data.split(getkey(), 5, 2)
