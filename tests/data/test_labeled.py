"""From xarray to samples and back: values, places, names and units survive."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import loca
from loca.data import Free, Labeled, Variable
from loca.data import open as open_records
from loca.domains import Box, Mesh, Sphere, Torus
from loca.typing import Measurements

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def weather(latitudes, longitudes, dims=("time", "lat", "lon"), days=6):
    """Two fields on a grid, as NCEP publishes them."""
    sizes = {"time": days, "lat": len(latitudes), "lon": len(longitudes)}
    shape = [sizes[dim] for dim in dims]
    return xarray.Dataset(
        {
            "air": (dims, normal(*shape), {"units": "degK", "long_name": "temperature"}),
            "pres": (dims, normal(*shape), {"units": "Pascals"}),
        },
        {
            "time": np.datetime64("2000-01-01", "ns") + np.arange(days) * np.timedelta64(1, "D"),
            "lat": ("lat", np.asarray(latitudes, np.float32), {"units": "degrees_north"}),
            "lon": ("lon", np.asarray(longitudes, np.float32), {"units": "degrees_east"}),
        },
        {"title": "daily"},
    )


GLOBE = np.linspace(90, -90, 5), np.arange(0, 360, 45.0)


@pytest.mark.parametrize("dims", [("time", "lat", "lon"), ("lon", "time", "lat"), ("lat", "time", "lon")])
def test_round_trip_is_exact_whatever_the_order_of_dimensions(dims):
    dataset = weather(*GLOBE, dims)
    records = Labeled(dataset, "air", "pres", "time")
    samples = records.load()
    back = records.label(np.asarray(samples.s))
    xarray.testing.assert_identical(back, dataset[["pres"]])
    # latitude comes first and runs slowest, wherever it is in the file
    expected = [(lat, lon) for lat in GLOBE[0] for lon in GLOBE[1]]
    assert np.array_equal(samples.y.points, np.float32(expected))
    assert np.array_equal(samples.x, np.float32(expected))
    for i, (lat, lon) in enumerate(expected):
        assert np.array_equal(samples.u[:, i, 0], dataset.air.sel(lat=lat, lon=lon))
    assert samples.inputs == (Variable("air", "degK"),)
    assert samples.outputs == (Variable("pres", "Pascals"),)
    assert samples.domain == Sphere()
    assert samples.s.dtype == samples.u.dtype == jnp.float32


def test_a_coordinate_that_is_named_as_the_sample_is_noticed():
    x = np.linspace(0.0, 1.0, 6)
    sheets = xarray.Dataset({name: (("run", "x"), normal(4, 6)) for name in "us"}, {"x": x})
    with pytest.warns(UserWarning, match="sample='x' has values from 0 to 1, .* pass sample='run'"):
        Labeled(sheets, "u", "s", "x")
    with pytest.warns(UserWarning, match="pass sample='run'"):
        Labeled(sheets.assign_coords(run=np.arange(4)), "u", "s", "x")
    # all of these are right: what counts, a parameter that was varied, time, and a grid without coordinates
    Labeled(sheets, "u", "s", "run")
    Labeled(sheets.assign_coords(run=np.linspace(0.1, 0.2, 4)), "u", "s", "x")
    Labeled(sheets.rename(x="time"), "u", "s", "time")
    Labeled(sheets.rename(x="viscosity").expand_dims(y=3), "u", "s", "viscosity")


def test_some_rows_in_any_order():
    dataset = weather(*GLOBE)
    records = Labeled(dataset, "air", ["pres", "air"], "time")
    rows = [4, 0, -1]
    samples = records.load(rows)
    assert np.array_equal(samples.s[..., 0].reshape(3, 5, 8), dataset.pres.to_numpy()[rows])
    xarray.testing.assert_identical(
        records.label(np.asarray(samples.s), rows), dataset[["pres", "air"]].isel(time=rows)
    )
    chosen = records.select([5, 2, 1])
    assert len(chosen) == 3
    assert np.array_equal(chosen.load(slice(1, 3)).u, records.load([2, 1]).u)
    xarray.testing.assert_identical(
        chosen.label(np.asarray(chosen.load([0]).s), [0]), dataset[["pres", "air"]].isel(time=[5])
    )


def test_region_is_a_box_in_degrees_and_points_spread_over_the_globe_are_a_sphere():
    region = Labeled(weather(np.linspace(30, 55, 11), np.linspace(-15, 15, 13)), "air", "pres", "time")
    assert region.domain == Box([30.0, -15.0], [55.0, 15.0])
    half = Labeled(weather(np.linspace(-90, 90, 5), np.arange(0, 180, 10.0)), "air", "pres", "time")
    assert half.domain == Box([-90.0, 0.0], [90.0, 170.0])
    z, angle = 1 - 2 * (np.arange(200) + 0.5) / 200, np.arange(200) * 137.5
    spiral = xarray.Dataset(
        {
            "t": (("sample", "point"), normal(3, 200)),
            "lat": ("point", np.degrees(np.arcsin(z))),
            "lon": ("point", angle % 360),
        }
    )
    records = Labeled(spiral, "t", "t", "sample")
    assert records.domain == Sphere()
    assert np.array_equal(records.load().y.points, np.stack([spiral.lat, spiral.lon], -1).astype(np.float32))


@pytest.mark.slow
def test_longitudes_around_the_globe_are_periodic_without_the_poles(getkey):
    zone = Labeled(weather(np.linspace(60, -60, 9), np.arange(0.0, 360.0, 10.0)), "air", "pres", "time")
    assert zone.domain == Sphere(-60.0, 60.0)
    assert zone.domain.contains(np.array([[0.0, 355.0], [70.0, 0.0]])).tolist() == [True, False]
    west = Labeled(weather(np.linspace(-30, 60, 9), np.arange(-180.0, 180.0, 20.0)), "air", "pres", "time")
    assert west.domain == Sphere(-30.0, 60.0)
    sizes = {"num_features": 4, "lift_size": 4}
    model = loca.LOCA.create(zone.load(), key=getkey(), **sizes)
    y = np.array([[12.0, 357.5], [12.0, -2.5]])
    np.testing.assert_allclose(*model(zone.load().u[0], y), atol=1e-5)


def test_longitudes_around_the_globe_are_periodic_beside_time(getkey):
    dataset = weather(*GLOBE).rename(time="hour").expand_dims(run=3).copy()
    records = Labeled(dataset, "air", "pres", "run", input_times=[0], output_times=[1, 2], time="hour")
    assert records.domain == Torus((1.0, -90.0, 0.0), (2.0, 90.0, 360.0), (False, False, True))
    samples = records.load()
    model = loca.models.DeepONet.create(samples, key=getkey(), num_features=4, branch_widths=(8,), trunk_widths=(8,))
    y = np.array([[1.5, 12.0, 357.5], [1.5, 12.0, -2.5]])
    np.testing.assert_allclose(*model(samples.u[0], y), atol=1e-5)


def test_curvilinear_grid_has_its_own_latitudes_and_longitudes():
    lat, lon = np.meshgrid(np.linspace(10, 20, 3), np.linspace(40, 60, 4), indexing="ij")
    turned = lat + 0.1 * lon, lon - 0.2 * lat
    dataset = xarray.Dataset(
        {"t": (("time", "j", "i"), normal(2, 3, 4))},
        {
            "nav_lat": (("j", "i"), turned[0], {"units": "degrees_north"}),
            "nav_lon": (("j", "i"), turned[1], {"units": "degree_east"}),
        },
    )
    samples = Labeled(dataset, "t", "t", "time").load()
    assert np.array_equal(samples.y.points, np.stack([t.ravel() for t in turned], -1).astype(np.float32))


def test_land_is_left_out_and_comes_back_as_missing():
    dataset = weather(np.linspace(30, 50, 4), np.linspace(0, 20, 5))
    land = np.zeros((4, 5), bool)
    land[1, 2:] = land[3, 0] = True
    dataset["pres"] = dataset.pres.where(~land)
    dataset["pres"][2, 0, 0] = np.nan  # a hole on one day is not land
    records = Labeled(dataset, "air", "pres", "time")
    samples = records.load()
    assert samples.u.shape == (6, 20, 1)
    assert samples.s.shape == (6, 16, 1)
    assert np.array_equal(np.asarray(samples.y.points), np.asarray(samples.x)[~land.ravel()])
    xarray.testing.assert_identical(records.label(np.asarray(samples.s)), dataset[["pres"]])
    # a part of the rows keeps the same points, even if another one is missing in its own first row
    assert records.select([2, 3]).load().s.shape == (2, 16, 1)


def test_inputs_with_fewer_dimensions_are_constant():
    dataset = xarray.Dataset(
        {
            "a": (("run", "x", "y"), normal(4, 3, 2)),
            "viscosity": ("run", normal(4), {"units": "m2/s"}),
            "height": ("y", normal(2)),
            "profile": (("x", "run"), normal(3, 4)),
            "s": (("run", "t", "x"), normal(4, 5, 3)),
        },
        {"x": [0.0, 0.5, 2.0], "t": [1.0, 2.0, 3.0, 4.0, 5.0]},
    )
    samples = Labeled(dataset, ["viscosity", "a", "height", "profile"], "s", "run").load([3, 1])
    assert samples.inputs == (Variable("a"), Variable("height"), Variable("profile"), Variable("viscosity", "m2/s"))
    np.testing.assert_array_equal(samples.u.scalars[:, 0], dataset.viscosity.to_numpy()[[3, 1]])
    (u,) = samples.u.fields
    u = np.asarray(u).reshape(2, 3, 2, 3)
    for b, run in enumerate([3, 1]):
        for i in range(3):
            for j in range(2):
                values = [v.isel(run=run, missing_dims="ignore") for v in (dataset.a, dataset.height, dataset.profile)]
                assert np.array_equal(u[b, i, j], [float(v.isel(x=i, y=j, missing_dims="ignore")) for v in values])
    # y has no coordinate: equal steps from 0 to 1
    assert np.array_equal(samples.x[0], np.float32([(x, y) for x in (0.0, 0.5, 2.0) for y in (0.0, 1.0)]))
    assert samples.domain == Box([1.0, 0.0], [5.0, 2.0])


def test_numbers_only_are_one_sensor():
    dataset = xarray.Dataset({"k": ("run", normal(4)), "f": ("run", normal(4)), "s": (("run", "x"), normal(4, 5))})
    samples = Labeled(dataset, ["k", "f"], "s", "run").load()
    assert np.array_equal(samples.u[:, 0], np.stack([dataset.k, dataset.f], -1))
    assert samples.x.shape == (1, 1)


def test_trajectories_become_channels_before_and_a_coordinate_after():
    days = np.datetime64("2001-01-01T00", "ns") + np.arange(5) * np.timedelta64(6, "h")
    dataset = xarray.Dataset(
        {"v": (("member", "time", "x"), normal(3, 5, 4), {"unit": "m/s"}), "k": (("member", "x"), normal(3, 4))},
        {"time": days, "x": np.linspace(0, 1, 4)},
    )
    records = Labeled(dataset, ["v", "k"], "v", "member", input_times=slice(0, 2), output_times=slice(2, None))
    samples = records.load()
    assert samples.inputs == (Variable("v@t0", "m/s"), Variable("v@t1", "m/s"), Variable("k"))
    assert np.array_equal(samples.u[..., 0], dataset.v[:, 0])
    assert np.array_equal(samples.u[..., 1], dataset.v[:, 1])
    assert np.array_equal(samples.s[..., 0], dataset.v[:, 2:].to_numpy().reshape(3, -1))
    # days since the first time of the file, not of the part
    assert np.allclose(np.unique(samples.y.points[:, 0]), [0.5, 0.75, 1.0])
    xarray.testing.assert_identical(records.label(np.asarray(samples.s)), dataset[["v"]].isel(time=slice(2, None)))
    # at one time only, time is no coordinate, and comes back all the same
    records = Labeled(dataset, "v", "v", "member", input_times=[0], output_times=[4])
    samples = records.load()
    assert samples.inputs == (Variable("v", "m/s"),)
    assert np.array_equal(samples.y.points[:, 0], dataset.x.astype(np.float32))
    xarray.testing.assert_identical(records.label(np.asarray(samples.s)), dataset[["v"]].isel(time=[4]))


def test_places_that_depend_on_the_sample():
    dataset = xarray.Dataset(
        {"c": (("sample", "node"), normal(3, 6)), "u": (("sample", "node"), normal(3, 6))},
        {"x": (("sample", "node"), normal(3, 6)), "y": (("sample", "node"), normal(3, 6))},
    )
    dataset["c"][1, 4] = np.nan
    records = Labeled(dataset, "c", "u", "sample")
    samples = records.load([2, 1])
    places = np.stack([dataset.x, dataset.y], -1)[[2, 1]]
    assert isinstance(samples.u, Measurements)
    assert isinstance(samples.y, Free)
    assert samples.x is None
    assert np.array_equal(samples.u.x, places)
    assert np.array_equal(samples.y.y, places)
    assert np.array_equal(samples.u.mask, ~np.isnan(dataset.c.to_numpy()[[2, 1]]))
    assert np.array_equal(samples.u.u[..., 0], np.nan_to_num(dataset.c.to_numpy()[[2, 1]]))
    every = np.stack([dataset.x, dataset.y], -1).reshape(-1, 2)
    assert records.domain == Box(every.min(0).tolist(), every.max(0).tolist())
    assert records.select([0]).domain == records.domain
    xarray.testing.assert_identical(records.label(np.asarray(samples.s), [2, 1]), dataset[["u"]].isel(sample=[2, 1]))


def test_places_that_move_in_time():
    dataset = xarray.Dataset(
        {"u": (("sample", "time", "node"), normal(3, 4, 6))},
        {"x": (("sample", "time", "node"), normal(3, 4, 6)), "y": (("time", "node"), normal(4, 6))},
    )
    records = Labeled(dataset, "u", "u", "sample", time="time", input_times=[0, 1], output_times=slice(1, None))
    samples = records.load([2, 0])
    x, y = dataset.x.to_numpy()[[2, 0]], np.broadcast_to(dataset.y, (2, 4, 6))
    times = np.broadcast_to(np.float32([1 / 3, 2 / 3, 1])[:, None], (2, 3, 6))
    assert np.array_equal(samples.u.x, np.stack([x[:, 0], y[:, 0]], -1))
    assert np.array_equal(samples.y.y, np.stack([times, x[:, 1:], y[:, 1:]], -1).reshape(2, 18, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": "rain"}, r"no variable rain; it holds\n  air\(time: 6, lat: 5, lon: 8\) \[degK\]"),
        ({"sample": "lat", "output_times": slice(0, 0)}, r"slice\(0, 0, None\) selects none of the 6 steps"),
        ({"inputs": "name"}, "name of .* hold no numbers"),
        ({"outputs": ["pres", "other"]}, "'other' has dimensions .* interpolate"),
        ({"outputs": ["pres", "mean"]}, r"output 'mean' .* every output must have the dimensions"),
        ({"inputs": "void"}, "missing .* everywhere"),
    ],
)
def test_errors_say_what_is_there(change, message):
    dataset = weather(*GLOBE)
    dataset["other"] = (("time", "z"), normal(6, 3))
    dataset["mean"] = ("time", normal(6))
    dataset["name"] = ("time", list("abcdef"))
    dataset["void"] = dataset.air * np.nan
    with pytest.raises(ValueError, match=message):
        Labeled(dataset, **{"inputs": "air", "outputs": "pres", "sample": "time", **change}).load()


def test_nodes_in_a_file_lie_in_a_mesh(tmp_path):
    x, y = np.float32([[0, 1, 1, 0], [0, 0, 1, 2]])
    mesh = Mesh(np.stack([x, y], axis=1), [[0, 1, 2], [0, 2, 3]])
    runs = xarray.Dataset(
        {"nu": ("run", np.arange(4.0)), "p": (("run", "node"), np.arange(4.0)[:, None] * x)},
        {"x": ("node", x), "y": ("node", y)},
    )
    runs.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    records = open_records(tmp_path / "a.nc", inputs="nu", outputs="p", sample="run", domain=mesh)
    assert records.domain == records.load([1]).domain == mesh
    with pytest.raises(ValueError, match=r"1-dimensional but outputs .* have the coordinates \['x', 'y'\]"):
        Labeled(runs, "nu", "p", "run", domain=Box.unit(1))
