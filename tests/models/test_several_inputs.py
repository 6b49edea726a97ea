"""Several inputs: fields on different sensors, and numbers beside fields."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import loca
from loca.data import Labeled, Normalization, Samples, Variable, convert
from loca.encoders import Joined, Scattering2D, Sensors, Standardized
from loca.models import FNO, LOCA, Regression, adapt, encode_functions
from loca.saving import inspect
from loca.typing import MultiInput

RUNS = 40


def dataset(count=RUNS, seed=0):
    """s(y) = ν mean(k) + f̄ y, from a field k(x1, x2), a curve f(t) on a grid of its own, and a number ν."""
    rng = np.random.default_rng(seed)
    k, f, nu = rng.normal(size=(count, 8, 8)), rng.normal(size=(count, 5)), rng.uniform(1.0, 3.0, count)
    y = np.linspace(0.0, 1.0, 6)
    s = nu[:, None] * k.mean(axis=(1, 2))[:, None] + f.mean(axis=1)[:, None] * y
    return xarray.Dataset(
        {
            "permeability": (("run", "x1", "x2"), k.astype(np.float32), {"units": "m2"}),
            "forcing": (("run", "t"), f.astype(np.float32)),
            "viscosity": ("run", nu.astype(np.float32), {"units": "Pa s"}),
            "pressure": (("run", "y"), s.astype(np.float32)),
        },
        {"x1": np.linspace(0, 1, 8), "x2": np.linspace(0, 2, 8), "t": np.linspace(0, 3, 5), "y": y},
    )


NAMES = ["viscosity", "permeability", "forcing"]


@pytest.fixture(scope="module")
def records():
    return Labeled(dataset(), NAMES, "pressure", "run")


@pytest.fixture(scope="module")
def samples(records):
    return records.load()


def test_variables_of_different_dimensions_are_read_as_fields_and_scalars(records):
    data = dataset()
    assert [v.name for v in records.inputs] == ["permeability", "forcing", "viscosity"]
    assert records.inputs[2] == Variable("viscosity", "Pa s")
    few = records.select([5, 2, 9]).load([2, 0])
    assert isinstance(few.u, MultiInput)
    np.testing.assert_array_equal(few.u.fields[0][..., 0], data.permeability.to_numpy()[[9, 5]].reshape(2, 64))
    np.testing.assert_array_equal(few.u.fields[1][..., 0], data.forcing.to_numpy()[[9, 5]])
    np.testing.assert_array_equal(few.u.scalars[:, 0], data.viscosity.to_numpy()[[9, 5]])
    assert [x.shape for x in few.x] == [(64, 2), (5, 1)]
    alone = Labeled(data, "viscosity", "pressure", "run").load()
    assert alone.u.shape == (RUNS, 1, 1)  # numbers alone are values at one sensor, as before


def test_channels_are_normalized_field_by_field(samples):
    data = dataset()
    found = Normalization.fit(samples)
    expected = [data[name].to_numpy() for name in ("permeability", "forcing", "viscosity")]
    np.testing.assert_allclose(found.u_shift, [each.mean() for each in expected], atol=1e-6)
    np.testing.assert_allclose(found.u_scale, [each.std() for each in expected], rtol=1e-5)
    u = found.standardize_input(samples.u)
    np.testing.assert_allclose(u.scalars[:, 0], (expected[2] - expected[2].mean()) / expected[2].std(), atol=1e-5)
    with pytest.raises(ValueError, match="u has 2 channels but the training data had 3"):
        found.standardize_input(MultiInput(samples.u.fields))


def test_parts_batches_and_noise(samples):
    k, f, nu = samples.parts
    assert [part.inputs[0].name for part in (k, f, nu)] == ["permeability", "forcing", "viscosity"]
    assert nu.u.shape == (RUNS, 1, 1)
    rows = jnp.array([3, 1])
    np.testing.assert_array_equal(samples.take(rows).u.scalars, samples.u.scalars[rows])
    noise = samples.corrupt(jax.random.key(0), 0.5).u
    steps = [np.asarray(a - b) for a, b in zip(jax.tree.leaves(noise), jax.tree.leaves(samples.u), strict=True)]
    assert np.std(steps[0]) == pytest.approx(0.5, rel=0.05)
    assert not np.isclose(steps[1].ravel()[0], steps[0].ravel()[0])  # noise of its own
    with pytest.raises(ValueError, match="sensors of 1 fields but u has 2"):
        Samples(samples.u, samples.y, samples.s, x=samples.x[0])


@pytest.mark.slow
def test_each_field_has_its_encoder_and_codes_are_joined_and_standardized(samples):
    model = LOCA.create(samples, key=jax.random.key(0))
    joined = model.encoder.encoder
    assert isinstance(model.encoder, Standardized)
    assert isinstance(joined, Joined)
    assert [type(each) for each in joined.encoders] == [Scattering2D, Sensors]
    assert joined.scalars == 1
    codes = np.asarray(encode_functions(model, samples.u))
    nu = np.asarray(samples.u.scalars[:, 0])
    np.testing.assert_allclose(codes[:, -1], (nu - nu.mean()) / nu.std(), atol=1e-4)
    one = MultiInput(tuple(field[0] for field in samples.u.fields), samples.u.scalars[0])
    parts = [joined.encoders[0](one.fields[0]), joined.encoders[1](one.fields[1]), one.scalars]
    np.testing.assert_allclose(joined(one), jnp.concatenate(parts), rtol=1e-6)


def test_an_fno_takes_scalars_as_constant_channels(samples):
    u = MultiInput(samples.u.fields[:1], samples.u.scalars)
    y = samples.x[0]
    data = Samples(u, y, jnp.ones((RUNS, 64, 1)), x=samples.x[:1])
    model = FNO.create(data, key=jax.random.key(0), modes=2, width=3, depth=1)
    one = jax.tree.map(lambda a: a[4], u)
    code = np.asarray(model.encode(one))
    np.testing.assert_allclose(code[..., 1], code[0, 0, 1])
    nu = np.asarray(u.scalars[:, 0])
    assert code[0, 0, 1] == pytest.approx((nu[4] - nu.mean()) / nu.std(), abs=1e-4)
    wide = Samples(
        jnp.concatenate([u.fields[0], jnp.broadcast_to(u.scalars[:, None], (RUNS, 64, 1))], axis=-1), y, data.s, x=y
    )
    same = FNO.create(wide, key=jax.random.key(0), modes=2, width=3, depth=1)
    np.testing.assert_allclose(code, same.encode(wide.u[4]), atol=1e-5)


@pytest.mark.full
def test_several_inputs_are_stored_trained_saved_evaluated_checked_and_drawn(records, samples, tmp_path):
    store = convert(records, tmp_path / "a.zarr")
    again = store.load([4, 0])
    for a, b in zip(jax.tree.leaves((again.u, again.x)), jax.tree.leaves((samples.u, samples.x)), strict=True):
        np.testing.assert_array_equal(a, b[jnp.array([4, 0])] if a.shape != b.shape else b)

    small = dict.fromkeys(("lift_widths", "proposal_widths", "feature_widths"), (16,))
    model = LOCA.create(samples, key=jax.random.key(0), num_features=8, lift_size=8, **small)
    model, history = loca.fit(model, samples, steps=200, batch_size=20)
    assert history.moments[-1].loss < 0.2, "the mean field has a loss of 1"
    loca.save(model, tmp_path / "model", data=samples)
    loaded = loca.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(samples.u, samples.y), model.predict(samples.u, samples.y))
    assert [x.shape for x in loaded.sensors] == [(64, 2), (5, 1)]
    assert loca.evaluate(loaded, store).errors["relative_l2"].shape == (RUNS, 1)
    assert loca.evaluate(Regression.fit(samples, 5), samples).errors["relative_l2"].shape == (RUNS, 1)
    assert not [f for f in loca.checks.check(samples, samples.take(jnp.arange(9))).findings if f.name == "mismatch"]
    assert loca.figures.sheet(samples, rows=1).axes


@pytest.mark.slow
def test_fields_and_numbers_in_another_order_are_those_of_the_model(records, samples, tmp_path):
    model = Regression.fit(samples, 5)
    other = dataset().isel(x2=slice(None, None, -1), t=[3, 0, 4, 1, 2]).transpose("x2", "run", ...)
    turned = Labeled(other, ["forcing", "viscosity", "permeability"], "pressure", "run")
    for data in (turned, convert(turned, tmp_path / "turned.zarr")):
        found = adapt(model, data).load()
        for a, b in zip(jax.tree.leaves((found.u, found.x)), jax.tree.leaves((samples.u, samples.x)), strict=True):
            np.testing.assert_array_equal(a, b)
        assert (found.inputs, found.sensor_coordinates) == (samples.inputs, samples.sensor_coordinates)
    assert adapt(model, samples) is samples
    coarse = Labeled(dataset().isel(t=[0, 2, 4]), NAMES, "pressure", "run")
    with pytest.raises(ValueError, match=r"grid of 3 \(t from 0 to 3\), but the model was made for a grid of 5"):
        adapt(model, coarse)
    field, curve = adapt(model, coarse, regrid=True).load().u.fields
    np.testing.assert_array_equal(field, samples.u.fields[0])
    np.testing.assert_allclose(curve[:, 1], 0.5 * (curve[:, 0] + curve[:, 2]), atol=1e-6)
    single = Samples(samples.u.fields[0], samples.y, samples.s, x=samples.x[0])
    with pytest.raises(ValueError, match=r"has the inputs u1, but the model was made for permeability \(m2\), forcing"):
        adapt(model, single)


@pytest.mark.slow
def test_a_model_of_broadcast_numbers_gets_them_by_name_or_refuses():
    data = dataset()
    wide = jnp.stack(
        [np.broadcast_to(data.viscosity.to_numpy()[:, None, None], (RUNS, 8, 8)), data.permeability.to_numpy()], -1
    )
    names = [Variable("viscosity", "Pa s"), Variable("permeability", "m2")]
    x = jnp.asarray(np.stack(np.meshgrid(data.x1, data.x2, indexing="ij"), -1).reshape(-1, 2), jnp.float32)
    before = Samples(jnp.asarray(wide).reshape(RUNS, 64, 2), x, jnp.ones((RUNS, 64, 1)), x=x, inputs=names)
    model = FNO.create(before, key=jax.random.key(0), modes=2, width=3, depth=1)
    now = Labeled(data, ["permeability", "viscosity"], (), "run")
    assert isinstance(now.load().u, MultiInput)
    np.testing.assert_array_equal(adapt(model, now).load().u, before.u)
    with pytest.raises(ValueError, match=r"the values of one field .* got MultiInput"):
        model.predict(now.load().u, x)
    beside = FNO.create(
        Samples(MultiInput((before.u[..., 1:],), before.u[:, 0, :1]), x, before.s, x=x, inputs=names[::-1]),
        key=jax.random.key(0), modes=2, width=3, depth=1,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"has the field .*, but the model was made for .* and the numbers viscosity"):
        adapt(beside, before)


@pytest.mark.slow
def test_transforms_of_several_inputs(samples, tmp_path):
    names = {"viscosity": "log", "permeability": "asinh", "forcing": "per-location", "pressure": "per-location"}
    model = Regression.fit(samples, 5, transforms=names)
    u = model.normalization.standardize_input(samples.u)
    log = np.log(np.asarray(samples.u.scalars))
    np.testing.assert_allclose(u.scalars, (log - log.mean()) / log.std(), atol=1e-5)
    np.testing.assert_allclose(u.fields[1].mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(u.fields[1].std(axis=0), 1.0, rtol=1e-4)
    bad = MultiInput(samples.u.fields, samples.u.scalars.at[7].set(-1.0))
    with pytest.raises(ValueError, match=r"input `viscosity` is -1 in function 7"):
        model.predict(bad, samples.y)
    loca.save(model, tmp_path / "model", data=samples)
    assert inspect(tmp_path / "model").transforms == names
    loaded = loca.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(samples.u, samples.y), model.predict(samples.u, samples.y))
    numbers = Normalization.fit(samples, {"viscosity": "per-location"})  # a number is only standardized
    assert not numbers.u_transforms
