"""Data in another order, on another grid or of other variables: reordered, interpolated if asked, or refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from loca.data import Free, Labeled, Normalization, Samples, Shared, convert
from loca.domains import Box, OutsideDomainWarning, Sphere
from loca.evaluation import evaluate
from loca.models import Adaptation, DeepONet, Operator, Signature, adapt
from loca.training import fit
from loca.typing import Measurements

X, Y = np.linspace(0.0, 1.0, 5), np.linspace(0.0, 1.0, 4)


class Weighted(Operator):
    """F(u)(y) = c Σᵢ i·u(xᵢ) · (1 + y₁, 1 + 3y₂): every sensor, channel and coordinate counts differently."""

    normalization: Normalization
    c: jax.Array

    def encode(self, u):
        values = u.u if isinstance(u, Measurements) else u
        return jnp.sum(values.ravel() * jnp.arange(1.0, values.size + 1.0))[None]

    def respond(self, codes, queries):
        y = queries.locations(len(codes))
        return self.c * codes[:, None] * jnp.stack([1.0 + y[..., 0], 1.0 + 3.0 * y[..., 1]], axis=-1)


def weighted(data):
    identity = Normalization.identity(data.input_size, data.output_size)
    return Weighted(identity, jnp.asarray(1.0), signature=Signature.of(data))


def plane(x=X, y=Y, functions=3):
    """Two inputs and two outputs on a grid; values are bilinear, so that interpolation is exact."""
    a = np.random.default_rng(0).normal(size=(4, functions, 4, 1, 1))
    u, v = np.meshgrid(x, y, indexing="ij")
    fields = a[:, :, 0] + a[:, :, 1] * u + a[:, :, 2] * v + a[:, :, 3] * u * v
    units = {"depth": "m", "speed": "m/s", "height": "m", "flow": ""}
    values = {
        name: (("case", "x", "y"), field.astype(np.float32), {"units": unit} if unit else {})
        for (name, unit), field in zip(units.items(), fields, strict=True)
    }
    return xarray.Dataset(values, {"x": x, "y": y})


def labeled(dataset, inputs=("depth", "speed"), outputs=("height", "flow"), sample="case"):
    return Labeled(dataset, inputs, outputs, sample)


CHANGES = {
    "reversed": lambda data: data.isel(y=slice(None, None, -1)),
    "transposed": lambda data: data.transpose("case", "y", "x"),
    "both": lambda data: data.isel(x=slice(None, None, -1)).transpose("y", "case", "x"),
    "rounded": lambda data: data.assign_coords(x=data.x.astype(np.float32) * np.float32(1.0 + 1e-7)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", ["both", "rounded", *(pytest.param(n, marks=pytest.mark.full) for n in ("reversed", "transposed"))]
)
def test_the_same_functions_in_another_order_have_the_same_errors_and_predictions(change, tmp_path):
    data = plane()
    model, other = weighted(labeled(data).load()), labeled(CHANGES[change](data))
    expected, found = evaluate(model, labeled(data)), evaluate(model, other)
    for name, errors in expected.errors.items():
        np.testing.assert_allclose(found.errors[name], errors, rtol=2e-6)
    samples, adapted = labeled(data).load(), adapt(model, other)
    prediction = model.predict(samples.u, samples.y)
    here = adapted.load()
    back = adapted.label(np.asarray(model.predict(here.u, here.y)))
    xarray.testing.assert_allclose(
        back.transpose("case", "x", "y").sortby(["x", "y"]).drop_vars(["x", "y"]),
        labeled(data).label(np.asarray(prediction)).drop_vars(["x", "y"]),
        rtol=1e-5,
    )
    store = convert(other, tmp_path / "other.zarr")  # names of coordinates survive in a store
    assert store.load().query_coordinates == other.load().query_coordinates
    np.testing.assert_array_equal(adapt(model, store).load().u, here.u)


def test_weights_and_references_follow_their_queries():
    data = plane()
    weights, reference = np.arange(1.0, 21.0), np.random.default_rng(1).normal(size=(20, 2))
    model = weighted(labeled(data).load())
    expected = evaluate(model, labeled(data), weights=weights / weights.sum(), reference=reference)
    order = np.arange(20).reshape(5, 4).T.ravel()
    other = labeled(CHANGES["transposed"](data), outputs=("flow", "height"))
    found = evaluate(model, other, weights=weights[order] / weights.sum(), reference=reference[order][:, ::-1])
    for name, errors in expected.errors.items():
        np.testing.assert_allclose(found.errors[name], errors, rtol=1e-5)
    assert [variable.name for variable in found.outputs] == ["height", "flow"]


def test_permuted_points_are_reordered():
    x = np.random.default_rng(0).uniform(size=(30, 2)).astype(np.float32)
    u = np.random.default_rng(1).normal(size=(3, 30, 2)).astype(np.float32)
    order = np.random.default_rng(2).permutation(30)
    y, s = jnp.ones((4, 2)) * jnp.linspace(0.0, 1.0, 4)[:, None], jnp.zeros((3, 4, 2))
    model = weighted(Samples(jnp.asarray(u), y, s, x=jnp.asarray(x)))
    found = adapt(model, Samples(jnp.asarray(u[:, order]), y, s, x=jnp.asarray(x[order])))
    np.testing.assert_array_equal(found.u, u)
    with pytest.raises(ValueError, match=r"30 points \(x1 from .* to .*, x2 from .*\), but the model was made for 30"):
        adapt(model, Samples(jnp.asarray(u), y, s, x=jnp.asarray(x).at[7, 1].add(1e-3)))


def globe(latitudes, longitudes):
    """One input and output of degree 1 on the globe, the same field on any grid."""
    a = np.random.default_rng(0).normal(size=(3, 3, 1, 1))
    lat, lon = np.meshgrid(np.radians(latitudes), np.radians(longitudes), indexing="ij")
    field = a[:, 0] * np.sin(lat) + a[:, 1] * np.cos(lat) * np.cos(lon) + a[:, 2] * np.cos(lat) * np.sin(lon)
    values = {name: (("time", "lat", "lon"), field.astype(np.float32)) for name in ("t", "p", "q")}
    return xarray.Dataset(values, {"lat": latitudes, "lon": longitudes})


def test_north_to_south_and_the_other_convention_of_longitudes_are_the_same_sensors():
    latitudes = np.linspace(-80.0, 80.0, 9)
    data, other = globe(latitudes, np.arange(0.0, 360.0, 30.0)), globe(latitudes[::-1], np.arange(-180.0, 180.0, 30.0))
    roles = {"inputs": "t", "outputs": ("p", "q"), "sample": "time"}
    model = weighted(labeled(data, **roles).load())
    assert model.domain == Sphere()
    renamed = other.rename(lat="latitude", lon="longitude").transpose("time", "longitude", "latitude")
    for each in (other, renamed):
        np.testing.assert_allclose(
            adapt(model, labeled(each, **roles)).load().u, labeled(data, **roles).load().u, atol=1e-6
        )
    finer = globe(np.linspace(-80.0, 80.0, 33), np.arange(-180.0, 180.0, 7.5))
    found = adapt(model, labeled(finer, **roles), regrid=True).load()
    np.testing.assert_allclose(found.u, labeled(data, **roles).load().u, atol=1e-5)  # its sensors are among the finer


def test_queries_in_the_other_convention_of_longitudes_are_turned_into_a_region():
    latitudes, longitudes = np.linspace(40.0, 50.0, 4), np.linspace(-10.0, 10.0, 5)
    roles = {"inputs": "t", "outputs": ("p", "q"), "sample": "time"}
    data = globe(latitudes, longitudes)
    model = weighted(labeled(data, **roles).load())
    found = adapt(model, labeled(data.assign_coords(lon=longitudes + 360.0), **roles)).load()
    np.testing.assert_allclose(found.y.points, labeled(data, **roles).load().y.points, atol=1e-4)
    np.testing.assert_array_equal(found.u, labeled(data, **roles).load().u)


def test_channels_are_matched_by_name():
    data = plane()
    model = weighted(labeled(data).load())
    permuted = labeled(data, ("speed", "depth"), ("flow", "height"))
    expected, found = labeled(data).load(), adapt(model, permuted).load()
    np.testing.assert_array_equal(found.u, expected.u)
    np.testing.assert_array_equal(found.s, expected.s)
    assert (found.inputs, found.outputs) == (expected.inputs, expected.outputs)
    with pytest.raises(ValueError, match=r"inputs depth \(m\), width, but the model was made for depth \(m\), speed"):
        adapt(model, labeled(data.rename(speed="width").assign(width=data.speed.drop_attrs()), ("depth", "width")))
    with pytest.raises(ValueError, match=r"depth \(km\).*made for depth \(m\).*units of depth differ"):
        adapt(model, labeled(data.assign(depth=data.depth.assign_attrs(units="km"))))
    unnamed = Samples(expected.u, expected.y, expected.s, x=expected.x)
    assert adapt(model, unnamed) is unnamed
    assert adapt(weighted(unnamed), expected) is expected


def test_another_grid_is_refused_with_both_descriptions_and_interpolated_if_asked():
    model = weighted(labeled(plane()).load())
    fine = labeled(plane(x=np.linspace(0.0, 1.0, 12), y=np.linspace(1.0, 0.0, 7)).transpose("case", "y", "x"))
    both = r"a grid of 7 × 12 \(y from 1 to 0, x from 0 to 1\), but the model was made for a grid of 5 × 4 \(x from"
    with pytest.raises(ValueError, match=both):
        evaluate(model, fine)
    adaptation = Adaptation.of(model, fine, regrid=True)
    assert "interpolated from a grid of 7 × 12" in adaptation.notes[0]
    np.testing.assert_allclose(adaptation.apply(fine).load().u, labeled(plane()).load().u, atol=1e-5)
    assert len(evaluate(model, fine, regrid=True).errors["rmse"]) == 3
    half = labeled(plane(x=np.linspace(0.0, 0.5, 12)))
    with pytest.raises(ValueError, match=r"x from 0 to 0.5.*cannot be interpolated: .* extend 0.5 beyond"):
        adapt(model, half, regrid=True)


@pytest.mark.parametrize("dimension", [1, 2])
def test_scattered_sensors_are_interpolated(dimension):
    random = np.random.default_rng(0)
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * dimension), axis=-1).reshape(-1, dimension)
    x, slopes = np.concatenate([corners, random.uniform(size=(40, dimension))]), random.normal(size=(dimension, 2))
    there = random.uniform(size=(9, dimension))
    y, s = jnp.linspace(0.0, 1.0, 8).reshape(4, 2), jnp.zeros((1, 4, 2))
    model = weighted(Samples(jnp.zeros((1, 9, 2)), y, s, x=jnp.asarray(there, jnp.float32)))
    data = Samples(jnp.asarray(x @ slopes, jnp.float32)[None], y, s, x=jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(adapt(model, data, regrid=True).u[0], there @ slopes, atol=1e-5)


def test_other_coordinates_are_refused():
    data = plane()
    model = weighted(labeled(data).load())
    with pytest.raises(ValueError, match="has the coordinates of the sensors a, y, but the model was made for x, y"):
        adapt(model, labeled(data.rename(x="a")))
    line = Samples(jnp.zeros((1, 20, 2)), jnp.zeros((3, 1)), jnp.zeros((1, 3, 2)), domain=Box.unit(1))
    with pytest.raises(ValueError, match=r"queries have 1 coordinates.*made for 2, x, y"):
        adapt(model, line)


def test_a_model_for_sensors_of_every_function_takes_shared_ones():
    data = labeled(plane()).load()
    x = jnp.broadcast_to(data.x, (3, *data.x.shape))
    own = dataclasses.replace(data, u=Measurements(data.u, x, jnp.ones(x.shape[:2], bool)), x=None)
    found = adapt(weighted(own), labeled(CHANGES["transposed"](plane())))
    assert isinstance(found.load().u, Measurements)
    assert found.load().u.x[0, 1].tolist() == [0.25, 0.0]  # columns in the model's order, sensors in that of the data
    assert adapt(weighted(data), own) is own  # it carries its locations; an encoder that cannot use them refuses


@pytest.mark.slow
def test_training_reorders_its_data_and_validates_on_reordered_data():
    data, other = labeled(plane()).load(), labeled(CHANGES["both"](plane())).load()
    model = DeepONet.create(data, key=jax.random.key(0), num_features=3, branch_widths=(4,), trunk_widths=(4,))
    options = {"steps": 2, "batch_size": 3, "every": 1}
    _, expected = fit(model, data, validate=data, **options)
    _, found = fit(model, other, validate=other, **options)
    for one, two in zip(expected.moments, found.moments, strict=True):
        np.testing.assert_allclose([two.loss, two.validation], [one.loss, one.validation], rtol=1e-5)


def test_queries_outside_the_domain_warn_with_the_distance():
    data = labeled(plane()).load()
    model = weighted(data)
    y = jnp.array([[0.5, 0.5], [0.5, 1.25], [-0.1, 0.5]])
    message = r"2 of 3 queries lie outside the domain of the model, up to 0.25 beyond y from 0 to 1"
    calls = (
        lambda: model(data.u[0], y),
        lambda: model.jvp(data.u[0], data.u[0], y),
        lambda: model.predict(data.u, Free(jnp.stack([y, y, y]))),
        lambda: evaluate(model, dataclasses.replace(data, y=Shared(y), s=jnp.ones((3, 3, 2)))),
    )
    for count, call in zip((2, 2, 6, 2), calls, strict=True):
        with pytest.warns(
            OutsideDomainWarning, match=message.replace("2 of 3", f"{count} of {3 * count // 2}")
        ) as caught:
            call()
        assert len(caught) == 1
    jax.jit(lambda u, y: model(u, y))(data.u[0], y)  # values are unknown while compiling, so nothing is said
    model(data.u[0], data.y.points + 1e-6)  # round-off
