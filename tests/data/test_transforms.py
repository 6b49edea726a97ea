"""Transforms of variables: closed forms, every model, files, and the rules by which they are chosen."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca import load, save
from loca.data import (
    Asinh,
    Chain,
    Free,
    Identity,
    Log,
    Normalization,
    PerLocation,
    Samples,
    Shared,
    Variable,
    recommend,
)
from loca.data.transforms import Affine
from loca.domains import Box, Sphere, Torus
from loca.models import FNO, LOCA, DeepONet, Regression, TilePredictor
from loca.training import Encoded, fit
from loca.typing import Measurements

KEY = jax.random.key(0)
GRID = jnp.linspace(0.0, 1.0, 12)[:, None]


def functions(key=KEY, count=40):
    """Positive inputs over decades, and outputs of both signs about a mean field much larger than their variation."""
    u = jnp.exp(3.0 * jax.random.normal(key, (count, 12, 1)))
    noise = jax.random.normal(jax.random.fold_in(key, 1), (count, 12, 1))
    s = 1000.0 * jnp.cos(3.0 * GRID) + (1.0 + GRID) * noise
    names = {"inputs": [Variable("permeability")], "outputs": [Variable("pressure")]}
    return Samples(u, GRID, s, x=GRID, domain=Box.unit(1), **names)


BOTH = {"permeability": "log", "pressure": "per-location"}


@pytest.mark.parametrize(
    "transform",
    [Identity(), Log(), Asinh(jnp.asarray(0.3)), Affine(jnp.arange(5.0), jnp.arange(1.0, 6.0)),
     Chain((Log(), Affine(jnp.arange(5.0), jnp.arange(1.0, 6.0))))],
)  # fmt: skip
def test_a_transform_is_undone_by_its_inverse(transform):
    v = jnp.exp(jax.random.normal(KEY, (7, 5)))
    np.testing.assert_allclose(transform.invert(transform.apply(v)), v, rtol=1e-5)


def test_log_normal_values_become_normal():
    g = jax.random.normal(KEY, (50, 12, 1))
    data = Samples(jnp.exp(2.0 * g + 5.0), GRID, jnp.exp(3.0 * g - 1.0), x=GRID)
    norm = Normalization.fit(data, {"u1": "log", "s1": "log"})
    expected = (g - g.mean()) / g.std()
    np.testing.assert_allclose(norm.standardize_input(data.u), expected, atol=1e-4)
    np.testing.assert_allclose(norm.at(data.y).standardize(data.s), expected, atol=1e-4)
    np.testing.assert_allclose(norm.at(data.y).restore(expected), data.s, rtol=1e-4)
    np.testing.assert_allclose(norm.restore_input(expected), data.u, rtol=1e-4)


def test_asinh_is_linear_below_its_width_and_logarithmic_above():
    transform = Asinh.fit(np.array([-3.0, 3.0]))
    assert transform.width == 3.0
    np.testing.assert_allclose(transform.apply(jnp.array([1e-3, -1e-3])), [1e-3 / 3, -1e-3 / 3], rtol=1e-5)
    np.testing.assert_allclose(transform.apply(jnp.array([3e4])), np.log([2e4]), rtol=1e-5)


@pytest.mark.parametrize("labels", [pytest.param(12, marks=pytest.mark.full), 6])
def test_values_at_every_location_have_mean_0_and_deviation_1(labels):
    """A fixed field plus noise of a fixed scale, for all labels or some, of outputs and of inputs."""
    data = functions(count=200).observe(KEY, labels)
    norm = Normalization.fit(data, {"permeability": "log+per-location", "pressure": "per-location"})
    s = np.asarray(norm.at(data.y).standardize(data.s))[..., 0]
    u = np.asarray(norm.standardize_input(data.u))[..., 0]
    for place in range(12):
        here = s[np.asarray(data.y.index) == place]
        np.testing.assert_allclose([here.mean(), here.std()], [0.0, 1.0], atol=1e-3)
    np.testing.assert_allclose(u.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(u.std(axis=0), 1.0, atol=1e-4)
    np.testing.assert_allclose(norm.at(data.y).restore(jnp.asarray(s)[..., None]), data.s, rtol=1e-5)


def per_location(y, field, domain):
    """Means `field` and scales 1 + `field`."""
    return PerLocation.on(Affine(field, 1.0 + field), y, domain)


@pytest.mark.slow
def test_between_the_points_of_a_grid_means_and_scales_are_linear():
    y = jnp.stack(jnp.meshgrid(jnp.linspace(0, 1, 5), jnp.linspace(2, 1, 4), indexing="ij"), -1).reshape(-1, 2)
    transform = per_location(y, 1.0 + 2.0 * y[:, 0] + 3.0 * y[:, 1], Box((0.0, 1.0), (1.0, 2.0)))
    queries = Free(jax.random.uniform(KEY, (3, 6, 2)) + jnp.array([0.0, 1.0]))
    here = transform.at(queries)
    expected = 1.0 + 2.0 * queries.y[..., 0] + 3.0 * queries.y[..., 1]
    np.testing.assert_allclose(here.shift, expected, rtol=1e-5)
    np.testing.assert_allclose(here.scale, 1.0 + expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("domain", "points", "query"),
    [
        (Box.unit(2), [[0.1, 0.1], [0.2, 0.7], [0.9, 0.4]], [0.8, 0.6]),
        (Torus.unit(2), [[0.5, 0.1], [0.4, 0.7], [0.9, 0.4]], [0.05, 0.35]),
        (Sphere(), [[0.0, 100.0], [10.0, 200.0], [5.0, 350.0]], [5.0, 9.0]),
        (Sphere(), [[60.0, 100.0], [10.0, 200.0], [85.0, 10.0]], [85.0, 180.0]),
    ],
)
def test_away_from_scattered_locations_the_nearest_counts(domain, points, query):
    """Across the seam of a periodic coordinate, and over the pole; the nearest is always the last."""
    transform = per_location(jnp.array(points), jnp.array([1.0, 2.0, 3.0]), domain)
    assert transform.shape is None
    assert transform.at(Shared(jnp.array([query]))).shift == 3.0


@pytest.mark.slow
def test_a_location_with_a_fixed_value_is_not_divided_by_zero():
    """As under a boundary condition; all other locations have the scale 2."""
    noise = jax.random.normal(KEY, (30, 12, 1))
    s = 2.0 * (noise - noise.mean(axis=0)) / noise.std(axis=0)
    data = functions(count=30)
    data = Samples(data.u, GRID, s.at[:, 0].set(7.0), x=GRID)
    outputs = Normalization.fit(data, {"s1": "per-location"}).at(data.y)
    assert outputs.transforms[0].scale[0] == pytest.approx(0.02 * np.sqrt(11 / 12), rel=1e-4)
    np.testing.assert_allclose(outputs.restore(outputs.standardize(data.s)), data.s, rtol=1e-5, atol=1e-5)


def test_masked_measurements_stay_finite():
    """Padding is often zero, which has no logarithm."""
    mask = jnp.array([[True, True, False]] * 2)
    u = Measurements(jnp.array([[[1.0], [3.0], [0.0]], [[9.0], [27.0], [0.0]]]), jnp.zeros((2, 3, 1)), mask)
    norm = Normalization.fit(Samples(u, GRID, jnp.zeros((2, 12, 1))), {"u1": "log"})
    values = norm.standardize_input(u).u
    assert jnp.isfinite(values).all()
    np.testing.assert_allclose(values[mask].ravel(), (np.arange(4) - 1.5) / np.std(np.arange(4)), rtol=1e-5)


# ---- models ----------------------------------------------------------------------------------------------------------


CREATE = {
    "loca": lambda data: LOCA.create(
        data, key=KEY, num_features=4, lift_size=4, lift_widths=(4,), proposal_widths=(4,), feature_widths=(4,),
        transforms=BOTH,
    ),
    "deeponet": lambda data: DeepONet.create(
        data, key=KEY, num_features=4, branch_widths=(4,), trunk_widths=(4,), transforms=BOTH
    ),
    "fno": lambda data: FNO.create(data, key=KEY, modes=3, width=4, depth=2, transforms=BOTH),
    "ridge": lambda data: Regression.fit(data, components=3, transforms=BOTH),
    "mean field": lambda data: Regression.fit(data, components=0, transforms=BOTH),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "ridge" else pytest.param(name, marks=pytest.mark.full) for name in CREATE]
)
def test_every_model_predicts_in_the_units_of_the_data(name, tmp_path):
    """All forms of prediction are respond() undone at the queries by hand, on the grid and between its points."""
    data = functions()
    model = CREATE[name](data)
    y = jnp.concatenate([GRID, jnp.array([[0.33], [0.77]])])
    u = data.u[:3]
    shift, scale = (jnp.interp(y[:, 0], GRID[:, 0], moment(data.s[..., 0], axis=0)) for moment in (jnp.mean, jnp.std))
    norm = model.normalization
    codes = jax.vmap(model.encode)(u)
    standard = norm.s_shift + norm.s_scale * model.respond(codes, Shared(y))
    expected = shift[:, None] + scale[:, None] * standard
    free = Free(jnp.stack([y, y[::-1], y]))
    predictions = {
        "call": jnp.stack([model(one, y) for one in u]),
        "shared": model.predict(u, Shared(y)),
        "at": jax.vmap(model.at(y))(u),
        "free": model.predict(u, free).at[1].set(model.predict(u, free)[1][::-1]),
        "indexed": model.predict(u, Shared(y).choose(jnp.broadcast_to(jnp.arange(len(y)), (3, len(y))))),
    }
    tiles = TilePredictor(model, y)
    predictions["tiles"] = tiles.together(tiles.of_functions(u), tiles.of_queries(y))
    for how, prediction in predictions.items():
        np.testing.assert_allclose(prediction, expected, rtol=1e-4, atol=2e-3, err_msg=how)
    save(model, tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(u, Shared(y)), predictions["shared"])


@pytest.mark.slow
def test_a_power_law_is_linear_in_logarithms():
    """s = c(y) ∏ᵢ u(xᵢ)^aᵢ(y): regression of logarithms is exact."""
    data = functions(count=60)
    a = jax.random.normal(KEY, (12, 12)) / 12.0
    s = jnp.exp(jnp.einsum("ps,nsd->npd", a, jnp.log(data.u)) + GRID)
    data = Samples(data.u, GRID, s, x=GRID)
    model = Regression.fit(data, components=12, strength=0.0, transforms={"u1": "log", "s1": "log"})
    np.testing.assert_allclose(model.predict(data.u, data.y), data.s, rtol=1e-3)


@pytest.mark.full
def test_training_compares_transformed_outputs_and_validates_in_units():
    data = functions()
    model = CREATE["deeponet"](data)
    encoded = Encoded.of(model, data)
    np.testing.assert_allclose(encoded.s.mean(axis=0), 0.0, atol=1e-3)
    np.testing.assert_allclose(encoded.s.std(axis=0), 1.0, atol=1e-3)
    trained, history = fit(model, data, steps=2, batch_size=10, validate=data)
    prediction = trained.predict(data.u, data.y)
    error = jnp.linalg.norm(prediction - data.s, axis=1) / jnp.linalg.norm(data.s, axis=1)
    assert history.moments[-1].validation == pytest.approx(float(error.mean()), rel=1e-4)
    assert error.mean() < 1e-2  # the mean field itself, before anything is learned


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_log_names_the_function_and_the_variable():
    data = functions()
    wrong = data.u.at[17, 3].set(-0.5)
    message = r"input `permeability` is -0.5 in function 17 \(value 3; 1 values in all .* log needs positive values"
    with pytest.raises(ValueError, match=message):
        Normalization.fit(Samples(wrong, GRID, data.s, x=GRID, inputs=data.inputs), {"permeability": "log"})
    model = CREATE["ridge"](data)
    with pytest.raises(ValueError, match=message):
        model.predict(wrong, data.y)


@pytest.mark.parametrize(
    ("transforms", "message"),
    [
        ({"pressure": "sqrt"}, "the transform of pressure is 'sqrt'; choose one of standardize, log, asinh"),
        ({"pressure": "log"}, "output `pressure` is .* in function 0"),
    ],
)
def test_a_wrong_transform_is_refused(transforms, message):
    with pytest.raises(ValueError, match=message):
        Normalization.fit(functions(), transforms)


def test_per_location_needs_common_locations_with_values():
    data = functions()
    own = Samples(data.u, Free(data.y.locations(len(data))), data.s, x=GRID)
    with pytest.raises(ValueError, match="every function has its own for output `s1`"):
        Normalization.fit(own, {"s1": "per-location"})
    norm = Normalization.fit(data, {"permeability": "per-location"})
    with pytest.raises(ValueError, match=r"values at 5 locations were given, .* known at 12"):
        norm.standardize_input(data.u[0, :5])


# ---- choices ---------------------------------------------------------------------------------------------------------


def planted(values):
    """The output with these values (N, 12)."""
    inputs = jnp.ones((len(values), 12, 1))
    return Samples(inputs, GRID, jnp.asarray(values, jnp.float32)[..., None], x=GRID)


@pytest.mark.parametrize(
    ("values", "transform", "reason"),
    [
        (lambda g, y: g, "standardize", ""),
        (lambda g, y: 10.0 ** (0.5 * g), "log", "all values are positive and span 2.3 decades"),
        (lambda g, y: 10.0 ** (0.3 * g), "standardize", ""),  # 1.4 decades
        (lambda g, y: g * np.exp(1.5 * np.abs(g)), "asinh", "kurtosis"),
        (lambda g, y: np.abs(g) * np.exp(1.5 * np.abs(g)) * (g > 0), "standardize", ""),  # one sign, with zeros
        (lambda g, y: 3.0 * np.sin(9.0 * y) + g, "per-location", r"the mean field has 8\d% of the variance"),
        (lambda g, y: 0.5 * np.sin(9.0 * y) + g, "standardize", ""),
        (lambda g, y: 10.0 ** (4.0 * y + 0.3 * g), "log+per-location", "positive .*, and the mean field"),
    ],
)
def test_the_rules_choose_as_stated(values, transform, reason):
    g = np.random.default_rng(0).standard_normal((400, 12))
    found = recommend(planted(values(g, np.asarray(GRID)[:, 0])))[1]
    assert found.transform == transform
    assert re.search(reason, found.reason) if reason else found.reason == ""


def test_auto_prints_and_fits_its_choice(capsys):
    data = functions()
    norm = Normalization.fit(data, "auto")
    assert isinstance(norm.u_transforms[0], Log)
    assert isinstance(norm.s_transforms[0], PerLocation)
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("transform of input `permeability`: log (all values are positive and span")
    assert out[1] == "transform of output `pressure`: per-location (the mean field has 100% of the variance)"
    assert Normalization.fit(data, {"pressure": "auto"}).u_transforms == (Identity(),)
    plain = Normalization.fit(data)
    assert plain.u_transforms == plain.s_transforms == ()
