"""Local rules: regression on features of a neighborhood, and operators that it corrects."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import loca
from loca.data import Free, Normalization, Samples, Shared
from loca.domains import Box, Torus, grid
from loca.exporting import Program
from loca.local import Corrected, correct
from loca.local.corrections import LocalRule, grid_of, points
from loca.metrics import relative_l2
from loca.models import Grid, Operator, Signature, Uncertain
from loca.typing import Measurements
from stores import stored


class Copy(Operator):
    """F(u)(y) = u(y) on a grid, for as many channels as there are outputs; 1 + |y| is its error."""

    normalization: Normalization
    grid: Grid

    def encode(self, u):
        return u[:, : len(self.normalization.s_shift)].ravel()

    def respond(self, codes, queries):
        fields = codes.reshape(len(codes), -1, len(self.normalization.s_shift))
        return loca.models.operator.interpolate(self.grid.interpolation(queries.points), queries, fields)


class UncertainCopy(Uncertain, Copy):
    def spread(self, codes, queries):
        return jnp.ones_like(self.respond(codes, queries))


def problem(shape, periodic, channels=(1, 1), count=60, most=1300, kind=Copy, seed=0):
    """An operator that copies a channel of the input, and functions that differ from it by a random local rule."""
    d = len(shape)
    axes = [np.arange(n) / (n if wraps else n - 1) for n, wraps in zip(shape, periodic, strict=True)]
    x, (inputs, outputs) = grid(*axes), channels
    domain = Torus((0.0,) * d, (1.0,) * d, periodic=periodic) if any(periodic) else Box.unit(d)
    key = jax.random.key(seed)
    u = jax.random.normal(key, (count, len(x), inputs))
    places = Grid(tuple(jnp.asarray(axis, jnp.float32) for axis in axes), tuple(domain.periods))
    rule = LocalRule.largest(places, inputs, jnp.ones(outputs), most)
    weights = jax.random.normal(jax.random.fold_in(key, 1), rule.weights.shape) / math.sqrt(rule.count)
    rule = dataclasses.replace(rule, weights=weights)
    samples = Samples(u, x, jax.vmap(rule)(u, u[..., :outputs]) + u[..., :outputs], x=x, domain=domain)
    operator = kind(Normalization.identity(inputs, outputs), places, signature=Signature.of(samples))
    return operator, samples, rule


CASES = [
    pytest.param((24,), (True,), (1, 1), marks=pytest.mark.full),
    ((9, 12), (False, True), (2, 2)),
    pytest.param((10, 10), (False, False), (2, 1), marks=pytest.mark.full),
    pytest.param((8, 8, 8), (False, False, True), (1, 1), marks=pytest.mark.full),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "periodic", "channels"), CASES)
def test_a_local_rule_is_recovered_from_few_labels(shape, periodic, channels, monkeypatch):
    monkeypatch.setattr("loca.local.corrections.FEATURES", 100)
    operator, data, rule = problem(shape, periodic, channels, count=120, most=100)
    few = data.observe(jax.random.key(2), min(40, data.y.count))
    found, report = correct(operator, few)
    assert report.adopted
    assert isinstance(found, Corrected)
    assert found.rule.count == rule.count == report.features
    assert report.error < 1e-3 * report.before
    new = problem(shape, periodic, channels, count=3, most=100, seed=0)[1]
    error = np.abs(np.asarray(found.predict(new.u, new.y) - new.s)).max() / float(jnp.std(new.s - new.u[..., :1]))
    assert error < 1e-2
    s = found.at(new.y.points)(new.u[0])
    np.testing.assert_allclose(s, found(new.u[0], new.y.points), atol=1e-4)


@pytest.mark.full
def test_labels_between_points_and_at_own_locations_determine_the_same_rule(monkeypatch):
    monkeypatch.setattr("loca.local.corrections.FEATURES", 100)
    operator, data, _ = problem((24,), (True,), count=100, most=100)
    exact, _ = correct(operator, data)
    y = jax.random.uniform(jax.random.key(4), (100, 20, 1))
    free = Samples(data.u, Free(y), exact.predict(data.u, Free(y)), x=data.x, domain=data.domain)
    found, report = correct(operator, free)
    assert report.error < 1e-3 * report.before
    np.testing.assert_allclose(found.predict(data.u, data.y), data.s, atol=2e-2)


class Memory(Operator):
    """Exact for functions that it was fitted to, zero for others: functions are numbered by their first value."""

    normalization: Normalization
    numbers: jax.Array
    s: jax.Array

    def encode(self, u):
        return u[0]

    def respond(self, codes, queries):
        same = jnp.abs(codes - self.numbers) < 0.5
        known = jnp.where(same.any(axis=1)[:, None, None], self.s[jnp.argmax(same, axis=1)], 0.0)
        return known if queries.count == known.shape[1] else jnp.zeros((len(codes), queries.count, 1))


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 3])
def test_residuals_are_those_of_functions_that_an_operator_has_not_seen(together):
    _, data, _ = problem((16,), (False,), count=60)
    data = dataclasses.replace(data, u=data.u.at[:, 0, 0].set(jnp.arange(60.0)))
    seen = []

    def refit(part):
        seen.append(np.asarray(part.u[:, 0, 0]).astype(int))
        return Memory(Normalization.identity(1, 1), part.u[:, 0, 0], part.s, signature=Signature.of(part))

    _, report = correct(refit(data), data, refit=refit, together=together)
    np.testing.assert_allclose(report.before, 1.0, rtol=1e-6)  # 0 if it had seen them
    held = [np.setdiff1d(np.arange(60), each) for each in seen[1:]]
    assert sorted(np.concatenate(held)) == list(range(60))
    for each in held:
        assert np.array_equal(
            np.bincount(each // together)[np.unique(each // together)], [together] * (len(each) // together)
        )


@pytest.mark.slow
def test_on_a_torus_the_correction_commutes_with_shifts(monkeypatch):
    monkeypatch.setattr("loca.local.corrections.FEATURES", 100)
    operator, data, _ = problem((12, 10), (True, True), most=100)
    found, _ = correct(operator, data)
    shifted = jnp.roll(data.u.reshape(-1, 12, 10, 1), (3, 4), axis=(1, 2)).reshape(data.u.shape)
    expected = jnp.roll(found.predict(data.u, data.y).reshape(-1, 12, 10, 1), (3, 4), axis=(1, 2))
    np.testing.assert_allclose(found.predict(shifted, data.y), expected.reshape(data.s.shape), atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))])
def test_a_correction_of_noise_is_not_adopted(seed):
    operator, data, _ = problem((16,), (False,), count=80, seed=seed)
    noise = 0.1 * jax.random.normal(jax.random.key(seed + 10), data.s.shape)
    found, report = correct(operator, dataclasses.replace(data, s=data.u + noise))
    assert found is operator
    assert not report.adopted
    assert "not adopted" in str(report)


@pytest.mark.slow
def test_error_bars_shrink_to_the_size_of_what_is_left():
    operator, data, _ = problem((16,), (False,), count=200, kind=UncertainCopy)
    noise = 0.03 * jax.random.normal(jax.random.key(3), data.s.shape)
    found, _ = correct(operator, dataclasses.replace(data, s=data.s + noise))
    new = problem((16,), (False,), count=50, seed=0)[1]
    sigma = found.std(new.u[0], new.y.points)
    np.testing.assert_allclose(sigma, 0.03, rtol=0.2)
    draws = jnp.stack([each(new.u[0], new.y.points) for each in found.draws(jax.random.key(5), 40)])
    np.testing.assert_allclose(jnp.std(draws, axis=0), 0.03, rtol=0.4)
    np.testing.assert_allclose(jnp.mean(draws, axis=0), found(new.u[0], new.y.points), atol=0.02)


@pytest.mark.full
def test_solve_corrects_and_the_model_is_saved_and_runs_as_a_program(tmp_path, monkeypatch):
    monkeypatch.setattr("loca.local.corrections.FEATURES", 100)
    train, test = (loca.problems.Darcy(resolution=10).sample(jax.random.key(i), n) for i, n in enumerate((100, 30)))
    few = train.observe(jax.random.key(2), 30)
    known = {"length": 2.0, "noise": 1e-3, "location_lengths": (0.2, 0.2), "amplitudes": (1.0,)}
    known |= {"transforms": (("permeability", "log"),)}
    options = {"hyperparameters": known, "symmetries": ["reflect y", "scale"]}
    operator, report = loca.solve(few, correct=True, **options)
    assert report.correction.adopted
    assert "local correction adopted" in str(report)
    plain, _ = loca.solve(few, **options)
    errors = [float(jnp.mean(relative_l2(each.predict(test.u, test.y), test.s))) for each in (operator, plain)]
    assert errors[0] < 0.9 * errors[1]
    loca.save(operator, tmp_path / "model.safetensors", data=few)
    loaded = loca.load(tmp_path / "model.safetensors")
    s = operator.predict(test.u[:2], test.y)
    np.testing.assert_array_equal(loaded.predict(test.u[:2], test.y), s)
    np.testing.assert_allclose(loaded.at(test.y.points)(test.u[0]), s[0], atol=1e-5)
    expected = operator.predict_error_bars(test.u[:2], test.y)
    found = jax.jit(Program.of(loaded, level=0.9).function(in_chunks=False))(test.u[:2], test.y.points)
    for name, values in expected._asdict().items():
        np.testing.assert_allclose(found[name], values, atol=1e-4 * float(jnp.max(s)))


@pytest.mark.slow
def test_a_correction_of_functions_in_a_file_is_that_of_functions_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("loca.local.corrections.FEATURES", 100)
    operator, data, _ = problem((24,), (True,), count=60, most=100, kind=UncertainCopy)
    (expected, there), (found, here) = (
        correct(operator, each) for each in (data, stored(tmp_path / "store.zarr", data))
    )
    assert here._replace(seconds=there.seconds) == there
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.full
def test_solve_corrects_functions_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("loca.local.corrections.FEATURES", 100)
    data = loca.problems.Darcy(resolution=10).sample(jax.random.key(0), 100).observe(jax.random.key(2), 30)
    known = {"length": 2.0, "noise": 1e-3, "location_lengths": (0.2, 0.2), "amplitudes": (1.0,)}
    options = {"hyperparameters": known, "symmetries": ["reflect y"], "correct": True, "ranks": (64, 64)}
    report = loca.solve(stored(tmp_path / "store.zarr", data), **options)[1].correction
    assert report.adopted
    assert report.error < 0.9 * report.before


def test_inputs_off_grids_are_refused():
    operator, data, _ = problem((16,), (False,))
    own = Measurements(data.u, jnp.broadcast_to(data.x, (60, 16, 1)), jnp.ones((60, 16), bool))
    flat = Samples(jnp.ones((60, 16, 1)), Shared(jnp.ones((4, 2))), jnp.ones((60, 4, 1)), x=data.x, domain=Box.unit(2))
    for each in (dataclasses.replace(data, u=own, x=None), flat):
        with pytest.raises(ValueError, match="a local correction needs inputs on one grid"):
            grid_of(each)
    with pytest.raises(ValueError, match="labels where the sensors are"):
        grid_of(dataclasses.replace(data, x=0.3 * data.x))
    with pytest.raises(ValueError, match="at least 10 functions"):
        correct(operator, data.take(jnp.arange(6)))


def test_points_of_a_grid_are_in_the_order_of_its_sensors():
    axes = np.array([0.0, 1.0, 3.0], np.float32), np.array([5.0, 4.0], np.float32)
    np.testing.assert_array_equal(points(Grid(tuple(map(jnp.asarray, axes)), (None, None))), grid(*axes))
