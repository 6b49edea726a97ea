"""Symmetries: their action on pairs, operators that have them, and which of them are found."""

import dataclasses
import sys
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca import FNO, choosing
from loca.configuration import check_configuration
from loca.data import Free, Indexed, Normalization, Samples, Shared
from loca.domains import Box, Sphere, Torus, grid
from loca.exporting import Program, export
from loca.gaussian import Hyperparameters, solve
from loca.gaussian.equation import Ranks
from loca.gaussian.solve import stages
from loca.gaussian.trials import Fold
from loca.inversion import acquire
from loca.models import Regression, at_queries, predict, predict_error_bars
from loca.models.predictor import predict_fixed
from loca.problems import Darcy
from loca.saving import load, save
from loca.symmetries import (
    AugmentedRecords,
    Evidence,
    Frame,
    Homogeneous,
    Symmetric,
    Symmetries,
    SymmetryReport,
    detect,
    symmetry,
)
from loca.training import fit
from loca.typing import Measurements, MultiInput
from stores import stored

GRIDS = {
    "closed": np.linspace(0.0, 1.0, 9),
    "cell-centered": (np.arange(8) + 0.5) / 8,
    "periodic": np.arange(8) / 8,
}


def f(y, a):
    """Functions of two coordinates with period 1, which are zero where a coordinate is 0 or 1."""
    x, y = y[..., 0], y[..., 1]
    return np.sin(np.pi * x) * np.sin(np.pi * y) * (a[0] * np.cos(2 * np.pi * x) + a[1] * np.sin(2 * np.pi * y) + a[2])


def pairs(axis, domain, queries="shared", count=3, channels=1):
    """u and s are different functions f of both coordinates."""
    rng = np.random.default_rng(0)
    x, a = grid(axis, axis), rng.normal(size=(count, 3 * channels))
    u = np.stack([np.stack([f(x, row[3 * c :]) for c in range(channels)], -1) for row in a])
    s = u[..., ::-1] * 2.0 if channels > 1 else np.stack([f(x, -row)[:, None] for row in a])
    data = Samples(u, Shared(jnp.asarray(x)), s, x=x, domain=domain)
    if queries == "shared":
        return data
    few = data.observe(jax.random.key(1), 20)
    return few if queries == "indexed" else dataclasses.replace(few, y=Free(few.y.locations(count)))


def box(axis):
    return Torus((0.0, 0.0), (1.0, 1.0)) if axis is GRIDS["periodic"] else Box.unit(2)


# ---- the action ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", ["shared", "indexed", "free"])
@pytest.mark.parametrize("kind", GRIDS)
def test_images_are_the_functions_at_moved_locations(kind, queries):
    """(g u)(x) = u(g⁻¹ x) and (g s)(y) = s(g⁻¹ y) for the reflection g about the middle and for a rotation."""
    axis = GRIDS[kind]
    data = pairs(axis, box(axis), queries)
    for name, back in (
        ("reflect x", lambda y: y * [-1, 1] + [1, 0]),
        ("rotate x y", lambda y: y[..., ::-1] * [1, -1] + [0, 1]),
    ):
        own = Symmetries.of(name, data)
        assert len(own.group) == (2 if name == "reflect x" else 4)
        images = own.augment(data)
        a = np.random.default_rng(0).normal(size=(3, 3))
        locations = np.asarray(images.y.locations(len(images)), np.float64)
        for n, row in enumerate(a):
            image = len(own.group) * n + 1
            np.testing.assert_allclose(images.u[image, :, 0], f(back(np.asarray(data.x)), row), atol=1e-6)
            np.testing.assert_allclose(images.s[image, :, 0], f(back(locations[image]), -row), atol=1e-6)
            np.testing.assert_array_equal(images.u[image - 1], data.u[n])
        assert type(images.y) is type(data.y)


@pytest.mark.slow
def test_a_half_open_grid_has_its_missing_row_from_the_next_ones():
    """Without periods a reflection about 1/2 maps the row at 0 to 1, which is no row."""
    axis = np.arange(32) / 32
    data = pairs(axis, Box((0.0, 0.0), (31 / 32, 31 / 32)))
    own = Symmetries.of("reflect x at 0.5", data)
    image, x = own.augment(data).take(jnp.asarray([1])), np.asarray(data.x)
    a = np.random.default_rng(0).normal(size=(3, 3))[0]
    there = np.where(x[:, :1] == 0.0, 31 / 32, 1.0 - x[:, :1])
    np.testing.assert_allclose(image.u[0, :, 0], f(np.c_[there, x[:, 1]], a), atol=1e-6)
    np.testing.assert_allclose(image.s[0, :, 0], f(x * [-1, 1] + [1, 0], -a), atol=0.05)  # O(h²) in the row, else exact
    inside = x[:, 0] > 0.0
    np.testing.assert_allclose(image.s[0, inside, 0], f(x * [-1, 1] + [1, 0], -a)[inside], atol=1e-6)
    few = own.augment(data.observe(jax.random.key(0), 200))  # no label is on the missing row
    y = np.asarray(few.y.locations(6))[1]
    np.testing.assert_allclose(few.s[1, :, 0], f(y * [-1, 1] + [1, 0], -a), atol=1e-6)
    operator = own.wrap(Regression.fit(data, components=2))
    weights = operator._weights(data.y)[1, 0, :, 0]
    np.testing.assert_array_equal(weights, inside)


def test_scattered_labels_are_moved():
    """Queries that are not closed under the map become locations of their own, those on the mirror line only once."""
    rng = np.random.default_rng(0)
    y = np.r_[rng.uniform(size=(7, 2)), [[0.5, 0.2]]]
    data = Samples(
        np.ones((2, 9, 1)), y, rng.normal(size=(2, 8, 1)), x=grid(*[np.linspace(0, 1, 3)] * 2), domain=Box.unit(2)
    )
    images = Symmetries.of("reflect x", data).augment(data)
    assert isinstance(images.y, Indexed)
    assert len(images.y.points) == 15
    np.testing.assert_allclose(images.y.locations(4)[3], y * [-1, 1] + [1, 0], atol=1e-6)


def test_vectors_turn_and_scalars_stay():
    data = pairs(GRIDS["closed"], Box.unit(2), channels=2)
    x, names = np.asarray(data.x), {"inputs": ["p", "q"], "outputs": ["v", "w"]}
    data = dataclasses.replace(data, **names)
    for name, back, turn in (
        ("reflect x: (p q) (v w)", lambda y: y * [-1, 1] + [1, 0], np.diag([-1, 1])),
        ("transpose x y: (p q) (v w)", lambda y: y[:, ::-1], np.eye(2)[::-1]),
        ("rotate x y: (p q) (v w)", lambda y: y[:, ::-1] * [1, -1] + [0, 1], np.array([[0, -1], [1, 0]])),
    ):
        g = symmetry(name, Frame.of(data))
        order = [np.flatnonzero(np.isclose(x, z).all(axis=1))[0] for z in back(x)]
        np.testing.assert_allclose(g.input(data.u), np.asarray(data.u)[:, order] @ turn.T, atol=1e-6)
        np.testing.assert_allclose(g.undo_output(g.output(data.s)), data.s)
        np.testing.assert_allclose(g.output(data.s), np.asarray(data.s) @ turn.T)
    several = dataclasses.replace(
        data, u=MultiInput((data.u,), jnp.ones((3, 1))), x=(data.x,), inputs=["p", "q", "viscosity"]
    )
    g = symmetry("odd", Frame.of(several))
    np.testing.assert_array_equal(g.input(several.u).fields[0], -data.u)
    np.testing.assert_array_equal(g.input(several.u).scalars, several.u.scalars)


def test_measurements_move_with_their_sensors():
    rng = np.random.default_rng(0)
    values, x = (jnp.asarray(rng.uniform(size=(2, 5, k)), jnp.float32) for k in (1, 2))
    u = Measurements(values, x, jnp.ones((2, 5), bool))
    y = grid(*[np.linspace(0.0, 1.0, 3)] * 2)
    data = Samples(u, y, rng.normal(size=(2, 9, 1)), domain=Box.unit(2))
    images = Symmetries.of("transpose x y", data).augment(data)
    np.testing.assert_allclose(images.u.x[1], x[0][:, ::-1], atol=1e-6)
    np.testing.assert_array_equal(images.u.u[1], data.u.u[0])


def test_sensors_without_time_and_longitudes_of_any_convention():
    x, t = np.linspace(0.0, 1.0, 5), np.linspace(0.0, 2.0, 3)
    u = np.arange(10.0).reshape(2, 5, 1)
    data = Samples(
        u, grid(x, t), np.zeros((2, 15, 1)), x=x[:, None], sensor_coordinates=["x"], query_coordinates=["x", "time"]
    )
    np.testing.assert_array_equal(symmetry("reflect x", Frame.of(data)).input(data.u), data.u[:, ::-1])
    with pytest.raises(ValueError, match="one only"):
        symmetry("transpose x time", Frame.of(dataclasses.replace(data, domain=Box((0.0, 0.0), (1.0, 1.0)))))
    places = grid(np.array([45.0, -45.0]), np.arange(-180.0, 180.0, 45.0))
    globe = Samples(
        np.arange(32.0).reshape(2, 16, 1), places, np.arange(32.0).reshape(2, 16, 1), x=places, domain=Sphere()
    )
    shifted = Symmetries.of("shift lon", globe)
    assert len(shifted.group) == 4
    np.testing.assert_array_equal(
        shifted.augment(globe).s[1].reshape(2, 8), np.roll(np.asarray(globe.s[0]).reshape(2, 8), 2, axis=1)
    )


def test_names_that_do_not_apply_are_refused():
    data = pairs(GRIDS["closed"], Box((0.0, 0.0), (1.0, 1.0)))
    own = Symmetries.of(["reflect x", "transpose x y"], data)
    assert len(own.group) == 8
    for name, message in (
        ("mirror x", "expected a symmetry such as"),
        ("reflect z", "coordinates are y1, y2"),
        ("shift x", "not periodic"),
        ("reflect x at 0.3", "not closed"),
        ("odd: -u1", "expected a symmetry"),
        ("reflect x: -u9", "channels that do not exist"),
        ("reflect x: u1", "expected changes"),
    ):
        with pytest.raises(ValueError, match=message):
            Symmetries.of(name, data)
    with pytest.raises(ValueError, match="one scale at most"):
        Symmetries.of(["scale", "scale -1"], data)
    periodic = pairs(GRIDS["periodic"], box(GRIDS["periodic"]))
    with pytest.raises(ValueError, match="more than 16 products"):
        Symmetries.of(["shift x", "shift y", "odd"], periodic)


# ---- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "model"), [("closed", "fno"), ("periodic", "ridge")])
def test_averages_are_equivariant(kind, model):
    """F(g u)(g y) = g F(u)(y) for an untrained network, ridge regression and all eight elements of the square."""
    axis = GRIDS[kind]
    data = dataclasses.replace(pairs(axis, box(axis), channels=2), inputs=["p", "q"], outputs=["v", "w"])
    data = dataclasses.replace(data, s=data.s + 1.0)  # with a mean that is no symmetric vector
    own = Symmetries.of(["reflect x: (p q) (v w)", "transpose x y: (p q) (v w)"], data)
    fno = model == "fno" and FNO.create(data, key=jax.random.key(0), modes=2, width=4, depth=1)
    operator = own.wrap(fno or Regression.fit(data, components=3))
    y = jnp.asarray(np.random.default_rng(1).uniform(size=(6, 2)), jnp.float32)
    moved = jnp.stack([g.locations(y) for g in own.group])
    u = jnp.concatenate([g.input(data.u[:1]) for g in own.group])
    found = predict_error_bars(operator, u, Free(moved), jnp.zeros(2))
    for g, each, std in zip(own.group, found.mean, found.std, strict=True):
        np.testing.assert_allclose(each, g.output(found.mean[0]), atol=2e-6)
        np.testing.assert_allclose(std, jnp.abs(g.output(found.std[0])), atol=2e-6)
    inner = np.stack(
        [g.undo_output(each) for g, each in zip(own.group, predict(operator.operator, u, Free(moved)), strict=True)]
    )
    np.testing.assert_allclose(found.mean[0], inner.mean(axis=0), atol=2e-6)
    np.testing.assert_allclose(found.std[0], inner.std(axis=0, ddof=1), atol=2e-6)
    fixed = predict_fixed(at_queries(operator, y), u[:1], None)[0]
    np.testing.assert_allclose(fixed, found.mean[0], atol=2e-6)
    few = predict(operator, u[:1], Indexed(y, jnp.asarray([[3, 1]])))
    np.testing.assert_allclose(few[0], found.mean[0][jnp.asarray([3, 1])], atol=2e-6)


def curves(count, seed=0, tilt=0.0, points=17):
    """s = ∫ exp(−|y − x|/0.3) tanh(u(x)) (1 + tilt x) dx: reflected with u if there is no tilt, and odd in u."""
    rng, x = np.random.default_rng(seed), np.linspace(0.0, 1.0, points)
    waves = np.stack([np.cos(np.pi * k * x) / (1 + k) for k in range(6)])
    u = 2.0 * rng.normal(size=(count, 6)) @ waves
    s = (np.tanh(u) * (1.0 + tilt * x)) @ np.exp(-np.abs(x[:, None] - x) / 0.3) / points
    return Samples(u[..., None], Shared(jnp.asarray(x)[:, None]), s[..., None], x=x[:, None], domain=Box.unit(1))


HYPER = Hyperparameters(length=2.0, noise=1e-6, location_lengths=(0.5,), amplitudes=(1.0,))


@pytest.mark.slow
def test_the_posterior_of_a_gaussian_process_given_all_images_is_equivariant():
    """The prior is invariant, because codes are isometric; so the average over the group changes nothing."""
    with jax.enable_x64(True):
        data = curves(12)
        found, report = solve(data, hyperparameters=HYPER, ranks=(100, 100), symmetries=["reflect y1", "odd"])
        assert isinstance(found, Symmetric)
        y, u = data.y.y[:5], data.u[0] + 0.1
        inner, g = found.operator, found.group[1]
        np.testing.assert_allclose(inner(g.input(u), g.locations(y)), g.output(inner(u, y)), atol=1e-5)
        np.testing.assert_allclose(found(u, y), inner(u, y), atol=1e-5)
        np.testing.assert_allclose(found.std(u, y), inner.std(u, y), atol=1e-5)
        candidates = curves(6, 1).u
        rows = [acquire(each, candidates, count=2, y=data.y.y).rows for each in (found, inner)]
        np.testing.assert_array_equal(*rows)  # errors of the average are those of the posterior
        plain, _ = solve(data, hyperparameters=HYPER, ranks=(100, 100))
        assert np.abs(plain(g.input(u), g.locations(y)) - g.output(plain(u, y))).max() > 1e-3
    assert [row.name for row in report.symmetries.tried] == ["reflect y1", "odd"]


@pytest.mark.slow
def test_the_search_solves_for_all_images_of_half_as_many_functions(monkeypatch):
    data = Darcy(resolution=12, preset="literal").sample(jax.random.key(0), 60)
    own, hyper = Symmetries.of(["reflect y", "scale"], data), Hyperparameters(location_lengths=(0.5, 0.5))
    assert stages(data, Ranks(2048, 1024), 60, own)[0].functions == 120
    train, held = data.take(jnp.arange(40)), data.take(jnp.arange(40, 60))
    folds = (Fold(train, held), 40), (Fold(train, held, own), 80)
    compared = [fold.comparison(hyper.of_codes, None, count) for fold, count in folds]
    errors = [each.error(hyper, Ranks(80, 100))[0] for each in compared]
    assert errors[1] < 0.9 * errors[0]
    seen = []

    def recorded(folds, best, plan, **options):
        seen.append((folds[0].own.names, plan[0].functions))
        return best, []

    monkeypatch.setattr(sys.modules["loca.gaussian.solve"], "search", recorded)
    solve(data, symmetries=["reflect y"], progress=False)
    assert seen == [(("reflect y",), 120)]


@pytest.mark.slow
def test_scales_have_the_exponent_of_the_problem_and_small_outputs_are_not_rounded():
    """s = ∫ u² has exponent 2, and ∫ 1/u has −1; a factor of 10⁻⁶ of u is one of its power of s."""
    sizes = jnp.exp(jax.random.normal(jax.random.key(0), (40, 1, 1)))
    u = sizes * (1.0 + 0.3 * jnp.tanh(curves(40).u))
    squares, data = (dataclasses.replace(curves(40), u=u, s=jnp.cumsum(u**power, axis=1) / 17) for power in (2.0, -1.0))
    assert Symmetries.of("scale", squares).scale.exponents == (2.0,)
    own = Symmetries.of(["scale", "reflect y1"], data)
    assert own.scale.exponents == (-1.0,)
    operator, y = own.wrap(Regression.fit(own.augment(data), components=3)), data.y
    assert isinstance(operator, Homogeneous)
    expected, small = (predict_error_bars(operator, c * u[:3], y, jnp.ones(1)) for c in (1.0, 1e-6))
    np.testing.assert_allclose(small.mean / 1e6, expected.mean, rtol=2e-5)
    np.testing.assert_allclose(small.std / 1e6, expected.std, rtol=1e-3)
    np.testing.assert_allclose(predict_fixed(at_queries(operator, y.y), u[:3], None), expected.mean, rtol=1e-5)
    assert Symmetries.of("scale -0.5", data).scale.exponents == (-0.5,)
    one = Symmetries.of("scale u1", data).scale
    np.testing.assert_allclose(one.size(3.0 * u[0]), 3.0 * one.size(u[0]), rtol=1e-6)
    with pytest.raises(ValueError, match="the inputs are u1"):
        Symmetries.of("scale u7", data)


@pytest.mark.slow
def test_models_with_symmetries_are_saved_and_run_as_programs(tmp_path):
    data = curves(20)
    own = Symmetries.of(["reflect y1", "scale 1"], data)
    operator = own.wrap(Regression.fit(own.augment(data), components=3))
    save(operator, tmp_path / "model.safetensors")
    restored, y = load(tmp_path / "model.safetensors"), data.y.y[:4]
    expected = predict_error_bars(operator, data.u[:3], Shared(y), operator.radius(0.9))
    found = jax.jit(Program.of(restored, level=0.9).function(in_chunks=False))(data.u[:3], y)
    for name, values in expected._asdict().items():
        np.testing.assert_allclose(found[name], values, atol=1e-5)
    assert len(operator.draws(jax.random.key(0), 2)) == 2
    export(operator, tmp_path / "model.stablehlo")  # for any number of functions and queries


def test_records_have_the_images_of_their_functions(tmp_path):
    data = curves(5)
    own = Symmetries.of(["reflect y1", "odd"], data)
    records = own.augment(stored(tmp_path / "data", data))
    assert isinstance(records, AugmentedRecords)
    images = own.augment(data)
    assert len(records) == len(images) == 20
    part = records.load([7, 2])
    np.testing.assert_array_equal(part.u, images.u[jnp.asarray([7, 2])])
    np.testing.assert_array_equal(records.load(slice(5, 9)).s, images.s[5:9])


# ---- detection -------------------------------------------------------------------------------------------------------


def gaussian(data, noise=None):
    hyper = dataclasses.replace(HYPER, noise=noise or HYPER.noise)
    return solve(data, hyperparameters=hyper, ranks=(400, 17), progress=False)[0]


@pytest.mark.slow
def test_true_symmetries_are_found_and_a_wrong_one_is_not():
    """With tilt, s is odd in u, but not reflected with it."""
    for tilt, expected in ((0.0, {"odd", "reflect y1"}), (1.0, {"odd"})):
        report = detect(curves(60, tilt=tilt), gaussian)
        assert {name.partition(":")[0] for name in report.adopted} == expected
        tried = [row for row in report.tried if row.without is not None]
        assert all(row.gain >= 3.0 and row.defect <= 1.2 for row in tried if row.adopted)
        assert {"even", "scale"} <= {row.name.split()[0] for row in tried}
        assert max(map(len, str(report).splitlines())) < 100
        assert SymmetryReport.from_json(report.as_json()) == report


def test_a_symmetry_that_nearly_holds_lowers_the_error_and_is_not_adopted():
    """With an offset of three percent, s is not odd in u: the residuals of an odd operator can be predicted."""
    data = curves(60)
    report = detect(dataclasses.replace(data, s=data.s + 0.03 * jnp.std(data.s)), gaussian)
    (row,) = (row for row in report.tried if row.name == "odd")
    assert row.with_it < 0.75 * row.without
    assert row.gain > 3.0
    assert row.defect > 1.2
    assert not row.adopted


def test_nothing_is_adopted_on_a_tie_or_from_few_functions():
    """The mean of data with all images is equivariant already."""
    data = Symmetries.of("reflect y1", curves(30)).augment(curves(30))
    assert not detect(data, lambda data, noise: Regression.fit(data, components=0)).adopted
    few = detect(curves(20), gaussian)
    assert not few.adopted
    assert "at least 24 functions" in str(few)


@pytest.mark.full
def test_training_sees_all_images_and_returns_the_average():
    """Also with a scale, for which the normalization of the model is fitted again."""
    data = curves(8)
    model = FNO.create(data, key=jax.random.key(0), modes=2, width=2, depth=1)
    names, options = ["reflect y1", "scale 1"], {"steps": 2, "batch_size": 4, "progress": False}
    trained, _ = fit(model, data, symmetries=names, **options)
    own = Symmetries.of(names, data)
    model = eqx.tree_at(lambda model: model.normalization, model, Normalization.fit(own.standardize(data)))
    by_hand, _ = fit(model, own.augment(data), **options)
    expected = predict(own.wrap(by_hand), data.u, data.y)
    np.testing.assert_allclose(predict(trained, data.u, data.y), expected, rtol=1e-5, atol=1e-7)
    _, history = fit(model, data, symmetries="auto", **options)
    assert "at least 24 functions" in str(history.symmetries)


def test_models_after_the_gaussian_operator_get_what_it_found(monkeypatch):
    """In `choose`; it is fitted again with them, too. Commands take names as text."""
    data = curves(4)
    tried = Evidence("reflect y1", 0.2, 0.1, 5.0, 0.1, adopted=True), Evidence("odd", 0.2, 0.3, -5.0)
    known = SymmetryReport(tried)
    report = SimpleNamespace(hyperparameters=HYPER, solve_seconds=1.0, symmetries=known, correction=None)
    history = SimpleNamespace(moments=[SimpleNamespace(seconds=1.0)])
    given, ridge = [], Regression.fit(data, components=0)
    monkeypatch.setattr(
        choosing, "solve", lambda data, **options: (given.append(options["symmetries"]) or ridge, report)
    )
    monkeypatch.setattr(
        choosing, "fit", lambda model, data, **options: (given.append(options["symmetries"]) or model, history)
    )
    monkeypatch.setattr(choosing, "steps_within", lambda model, task: 60)
    task = choosing.Task("", data, data, {}, 1.0, 0, False, None, symmetries=["auto"])
    _, settings = choosing.gaussian(task)
    train = choosing.Trained(lambda data, **options: Regression.fit(data, components=0))
    operator, trained = train(task._replace(symmetries=settings["symmetries"]))
    assert trained["symmetries"] == ["reflect y1"]
    choosing._refit(Symmetries.of(["reflect y1"], data).wrap(operator), settings, data, 0, False)
    assert given == [["auto"], ["reflect y1"], ["reflect y1"]]
    run = {"data": {"path": "data.nc"}, "symmetries": "reflect x: (u v),scale -1"}
    assert check_configuration(run, "").symmetries == ("reflect x: (u v)", "scale -1")
