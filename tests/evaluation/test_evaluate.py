"""Evaluation reports the errors of every function, whatever way the data comes in."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from known_operator import Scaled, lines

import loca
from loca.data import Free, Samples, convert
from loca.domains import Sphere, area_weights
from loca.encoders import Sensors
from loca.evaluation import MEASURES, evaluate, mean_field
from loca.metrics import relative_l2, rmse, skill


@pytest.fixture
def data():
    return lines()


@pytest.fixture(scope="module")
def model_and_fields():
    axis = jnp.linspace(0.0, 1.0, 16)
    y = jnp.stack(jnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    u = jax.random.normal(jax.random.key(0), (30, 256, 1))
    data = Samples(u, y, jnp.cumsum(u, axis=1), x=y)
    widths = dict.fromkeys(("lift_widths", "proposal_widths", "feature_widths"), (8,))
    return loca.LOCA.create(data, key=jax.random.key(1), encoder=Sensors(256, 1), num_features=10, **widths), data


def test_errors_of_a_model_that_is_ten_percent_too_large(data):
    report = evaluate(Scaled(1.1), data)
    truth = np.asarray(data.s, np.float64)
    # answers are of single precision: 0.1 of them is known to 10 · 6e-8 · a few roundings
    np.testing.assert_allclose(report.errors["relative_l2"], 0.1, rtol=5e-6)
    np.testing.assert_allclose(report.errors["rmse"], 0.1 * np.sqrt(np.mean(truth**2, axis=1)), rtol=5e-6)
    np.testing.assert_allclose(report.errors["max_absolute"], 0.1 * np.abs(truth).max(axis=1), rtol=5e-6)
    assert report.unit("rmse", "speed") == "m s-1"
    assert report.unit("relative_l2", "speed") == ""
    assert report.outputs == data.outputs
    np.testing.assert_array_equal(report.of("rmse", "speed"), report.errors["rmse"][:, 1])


def test_errors_are_those_of_predictions(model_and_fields):
    model, data = model_and_fields
    report = evaluate(model, data, metrics=("relative_l2",), batch_size=7)
    s = eqx.filter_jit(lambda model, data: model.predict(data.u, data.y))(model, data)
    expected = relative_l2(np.asarray(s, np.float64), np.asarray(data.s, np.float64))
    # two orders of the same sums in single precision
    np.testing.assert_allclose(report.errors["relative_l2"], expected, rtol=1e-5)


def test_data_in_files_gives_the_same_bits(model_and_fields, tmp_path):
    model, data = model_and_fields
    records = convert(Watched(data), tmp_path / "data.zarr")
    options = {"batch_size": 8, "reference": mean_field(data)}
    in_memory, in_files = evaluate(model, data, **options), evaluate(model, records, **options)
    assert in_files.source == records.source
    for name, values in in_memory.errors.items():
        np.testing.assert_array_equal(in_files.errors[name], values)
    np.testing.assert_array_equal(mean_field(records, batch_size=8), mean_field(data, batch_size=8))


class Watched(loca.data.Records):
    """Data in memory that says how much of it is asked for at once."""

    def __init__(self, samples):
        self.samples, self.inputs, self.outputs, self.domain = samples, samples.inputs, samples.outputs, samples.domain
        self.source, self.asked = "watched", []

    def __len__(self):
        return len(self.samples)

    def load(self, rows=slice(None)):
        numbers = np.arange(len(self))[rows]
        self.asked.append(len(numbers))
        return self.samples.take(jnp.asarray(numbers))

    def label(self, s, rows=slice(None)):
        pytest.fail("errors need no labels")


def test_files_are_read_once_in_blocks_and_everything_compiles_once(data):
    records, traced = Watched(data), []

    class Counted(Scaled):
        def encode(self, u):
            traced.append(u.shape)
            return super().encode(u)

    report = evaluate(Counted(1.1), records, batch_size=10)
    assert dataclasses.replace(report, source="") == evaluate(Scaled(1.1), data)
    assert records.asked == [1, 10, 10, 3]  # one function to compare with the model, then all in blocks
    assert len(traced) == 1


def test_the_order_of_functions_does_not_matter(data):
    order = jax.random.permutation(jax.random.key(1), len(data))
    moved, report = evaluate(Scaled(0.7), data.take(order)), evaluate(Scaled(0.7), data)
    for name, values in report.errors.items():
        np.testing.assert_array_equal(moved.errors[name], values[np.asarray(order)])


def test_queries_of_their_own_give_the_same_errors(data):
    free = eqx.tree_at(lambda d: d.y, data, Free(data.y.locations(len(data))))
    everywhere = evaluate(Scaled(1.3), free)
    assert set(everywhere.errors) == {"relative_l2", "rmse", "max_absolute"}  # no grid that all share
    shared = evaluate(Scaled(1.3), data, metrics=tuple(everywhere.errors))
    for name, values in shared.errors.items():
        np.testing.assert_allclose(everywhere.errors[name], values, rtol=1e-5)


def test_metrics_are_those_that_the_data_admits(model_and_fields, data):
    model, fields = model_and_fields
    needs_more = {"relative_l2_squared", "spectral", "skill", "coverage", "contained", "width", "std", "crps"}
    assert set(evaluate(Scaled(), data).errors) == set(MEASURES) - needs_more
    # 16 points have at most 8√2 < 13 waves in any direction
    assert "rmse_high" not in evaluate(model, fields).errors
    chosen = evaluate(model, fields, metrics=("spectral", "relative_l2"))
    assert list(chosen.errors) == ["relative_l2", "spectral"]
    with pytest.raises(ValueError, match="two dimensions"):
        evaluate(Scaled(), data, metrics=("spectral",))


def test_uneven_grids_have_no_bands(data):
    uneven = eqx.tree_at(lambda d: d.y.y, data, data.y.y**2)
    assert not any("rmse_" in name for name in evaluate(Scaled(), uneven).errors)


def test_the_mean_field_is_beside_and_beaten(data):
    mean = mean_field(data)
    report = evaluate(Scaled(1.1), data, reference=mean)
    truth = np.asarray(data.s, np.float64)
    reference = np.broadcast_to(mean, truth.shape)
    np.testing.assert_allclose(report.baseline["rmse"], rmse(reference, truth), rtol=1e-12)
    assert "skill" not in report.baseline  # of itself it would be 0
    prediction = np.float64(jnp.float32(1.1)) * truth
    np.testing.assert_allclose(report.errors["skill"], skill(prediction, truth, reference), rtol=1e-4)
    error, spread = (np.sum((each - truth) ** 2, axis=(0, 1)) for each in (prediction, reference))
    expected = 1.0 - error / spread
    assert [report.overall_skill(c) for c in range(2)] == pytest.approx(expected, rel=1e-5)
    each = evaluate(Scaled(1.1), data, reference=reference, batch_size=5)  # one field per function
    np.testing.assert_array_equal(each.errors["skill"], report.errors["skill"])


def test_each_function_is_compared_with_its_own_reference_field(data):
    truth = np.asarray(data.s, np.float64)
    reference = np.linspace(0.5, 1.5, len(data))[:, None, None] * mean_field(data)
    report = evaluate(Scaled(1.1), data, reference=reference, batch_size=10)
    np.testing.assert_allclose(report.baseline["rmse"], rmse(reference, truth), rtol=1e-12)
    np.testing.assert_allclose(report.errors["skill"], skill(1.1 * truth, truth, reference), rtol=1e-4)


def test_the_mean_field_of_few_labels_is_the_mean_of_what_is_there():
    data = lines(count=400, points=6)
    few = data.observe(jax.random.key(0), count=2)
    index, s = np.asarray(few.y.index), np.asarray(few.s, np.float64)
    by_hand = [[s[..., c][index == place].mean() for c in range(2)] for place in range(6)]
    np.testing.assert_allclose(mean_field(few), by_hand, rtol=1e-12)
    np.testing.assert_allclose(mean_field(data), np.asarray(data.s, np.float64).mean(axis=0), rtol=1e-12)
    with pytest.raises(ValueError, match="2 of 6 locations have no label"):
        mean_field(few.take(jnp.flatnonzero((index < 4).all(axis=1))))


def test_errors_on_a_sphere_are_weighted_by_area():
    latitude, longitude = np.arange(-80.0, 81.0, 20.0), np.arange(0.0, 360.0, 30.0)
    y = jnp.asarray(np.stack(np.meshgrid(latitude, longitude, indexing="ij"), -1).reshape(-1, 2), jnp.float32)
    u = jnp.ones((3, 5, 1))
    s = jax.vmap(Scaled().field, (0, None))(u[:, 0], y) + jnp.cos(jnp.radians(y[:, :1]))
    data = Samples(u, y, s, x=jnp.arange(5.0)[:, None], domain=Sphere())
    weights = area_weights(data.domain, y)
    report = evaluate(Scaled(), data, weights=weights)
    assert report.is_weighted
    assert not any("rmse_" in name for name in report.errors)  # latitudes and longitudes have no common waves
    prediction, truth = (np.asarray(each, np.float64) for each in (jax.vmap(lambda u: Scaled()(u, y))(u), s))
    np.testing.assert_allclose(report.errors["rmse"], rmse(prediction, truth, weights), rtol=1e-12)
    np.testing.assert_allclose(report.errors["relative_l2"], relative_l2(prediction, truth, weights), rtol=1e-12)
