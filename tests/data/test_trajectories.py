"""Trajectories: what is refused, pieces, the pairs of one step, and locations without values."""

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import loca
from loca.data import Trajectories, Variable
from loca.domains import Torus, grid
from moving import well_file

RANDOM = np.random.default_rng(0)
X = np.linspace(0.0, 1.0, 8, endpoint=False)
Y = grid(X, X[:6])


def waves(N=3, T=7, **options):
    """u and v on a grid of 8 × 6 points."""
    s = RANDOM.normal(size=(N, T, len(Y), 2)).astype(np.float32)
    return Trajectories(s, Y, fields=("u", Variable("v", "m")), **options)


def test_pairs_of_a_step():
    orography = RANDOM.normal(size=(len(Y), 1))
    tide = RANDOM.normal(size=(3, 7, 1))
    data = waves(static=orography, forcing=tide, static_names="height", forcing_names="tide")
    samples = data.samples(history=2)
    assert [v.name for v in samples.inputs] == ["u@-1", "v@-1", "u", "v", "height", "tide"]
    assert [str(v) for v in samples.outputs] == ["u_increment", "v_increment (m)"]
    assert samples.u.shape == (3 * 5, len(Y), 6)
    assert samples.s.shape == (3 * 5, len(Y), 2)
    i, t = 1, 2  # row i·5 + t starts at frame t
    row = samples.u[i * 5 + t]
    np.testing.assert_array_equal(row[:, :4], np.concatenate([data.s[i, t], data.s[i, t + 1]], axis=-1))
    np.testing.assert_allclose(row[:, 4], orography[:, 0], rtol=1e-6)
    np.testing.assert_allclose(row[:, 5], tide[i, t + 1, 0], rtol=1e-6)
    np.testing.assert_array_equal(samples.s[i * 5 + t], data.s[i, t + 2] - data.s[i, t + 1])
    ahead = data.steps(2, ahead=3).load([i * 3 + 1])
    assert [v.name for v in ahead.outputs[2:4]] == ["u_increment@+1", "v_increment@+1"]
    np.testing.assert_array_equal(ahead.s[0][:, 2:4], data.s[i, 4] - data.s[i, 2])
    np.testing.assert_allclose(ahead.u[0][0, 5:], tide[i, 2:5, 0], rtol=1e-6)


def test_noise_leads_to_the_true_next_frame():
    data = waves()
    clean, noisy = data.samples(), data.samples(noise=0.1)
    change = np.asarray(noisy.u - clean.u)
    assert 0.09 < change.std() / data.moments.std.mean() < 0.11
    np.testing.assert_allclose(noisy.u + noisy.s, clean.u + clean.s, atol=1e-6)
    np.testing.assert_array_equal(noisy.take(jnp.asarray([4])).u, data.steps(noise=0.1).load([4]).u)


def test_splits_and_pieces():
    data = waves(N=5, T=9, times=0.1 * np.arange(9), time=("t", "s"))
    parts = data.split(jax.random.key(0), 3, 2)
    assert [len(part) for part in parts] == [3, 2]
    both = np.concatenate([part.s for part in parts])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(data.s, axis=0))
    cut = data.cut(4)
    assert len(cut) == 10
    assert cut.step == pytest.approx(0.1)
    np.testing.assert_array_equal(cut.s[3], data.s[1, 4:8])
    assert cut.times[3, 0] == pytest.approx(0.4)
    assert data.stride(2).step == pytest.approx(0.2)
    assert data.stride(2).frames == 5
    with pytest.raises(ValueError, match=r"cannot split 1 trajectories.*cut\(frames\)"):
        waves(N=1).split(jax.random.key(0), 1, 1)
    blocks = list(data.blocks(2))
    assert [len(block) for block in blocks] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate([block.s for block in blocks]), data.s)


def test_moments():
    data = waves()
    found = data.moments
    np.testing.assert_allclose(found.std, data.s.std(axis=(0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(found.increment_mean, np.diff(data.s, axis=1).mean(axis=(0, 1, 2)), atol=1e-6)
    np.testing.assert_array_equal(found.high, data.s.max(axis=(0, 1, 2)))


def test_locations_without_values_stay_on_the_grid():
    values = RANDOM.normal(size=(2, 5, len(Y), 2))
    values[:, :, 7] = np.nan
    data = Trajectories(values, Y)
    assert data.mask is not None
    assert not data.mask[7]
    assert data.mask.sum() == len(Y) - 1
    assert data.shape == (8, 6)
    samples = data.samples(noise=0.1)
    assert samples.inputs[-1].name == "mask"
    np.testing.assert_array_equal(samples.u[0, :, -1], data.mask)
    np.testing.assert_array_equal(samples.s[:, 7], 0.0)
    assert data.take([1]).mask is data.mask
    assert data.take([1]).s[0, 0, 7, 0] == data.s[0, 0, 7, 0]
    values[0, 2, 3] = np.nan
    with pytest.raises(ValueError, match="2 of 960 values of s are NaN or infinite, at locations where other frames"):
        Trajectories(values, Y)


def test_dates_and_cycles():
    dates = np.datetime64("2000-01-01", "ns") + np.arange(7) * np.timedelta64(6, "h")
    data = waves(times=dates, cycles=(1.0, 365.25))
    assert data.step == 0.25
    assert data.unit == "days"
    assert "since" in data.time.unit
    samples = data.samples()
    assert [v.name for v in samples.inputs[2:]] == ["sine 1", "sine 365.25", "cosine 1", "cosine 365.25"]
    np.testing.assert_allclose(samples.u[:4, 0, 2], [0.0, 1.0, 0.0, -1.0], atol=1e-6)  # of the time of day


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.arange(7)[::-1], "time does not increase: 6 is followed by 5; sort"),
        (np.array([0, 1, 2, 3, 4, 5, 7.0]), "steps from 1 to 2"),
        (np.arange(6), "one for each frame"),
        (np.datetime64("2000-01") + np.arange(7), "number the frames instead"),  # months
    ],
)
def test_refused_times(times, message):
    with pytest.raises(ValueError, match=message):
        waves(times=times)


def test_refused_shapes():
    s = np.zeros((2, 5, 10, 1))
    for given, message in (
        ({"y": np.zeros(9)}, "m = 9 locations"),
        ({"static": np.zeros((9, 1))}, "expected static of shape"),
        ({"forcing": np.zeros((2, 4, 1))}, "expected forcing of shape"),
        ({"fields": ("a", "b")}, "pass one name each"),
    ):
        with pytest.raises(ValueError, match=message):
            Trajectories(s, **{"y": np.linspace(0, 1, 10), **given})


def test_any_operator_learns_the_pairs():
    y = np.linspace(0.0, 2.0 * np.pi, 16, endpoint=False)
    phase = RANDOM.uniform(0, 6, size=(4, 1, 1)) + 0.3 * np.arange(9)[:, None]
    data = Trajectories(np.sin(y - phase), y, domain=Torus([0.0], [2.0 * np.pi]))
    pairs = data.steps()
    model = loca.FNO.create(pairs.load(), key=jax.random.key(0), modes=4, width=8, depth=2)
    assert model.grid.periods == (pytest.approx(2.0 * np.pi),)
    assert model.predict(pairs.load([0, 5]).u, data.y).shape == (2, 16, 1)
    labels = pairs.label(np.asarray(pairs.load([0, 5]).s), [0, 5])
    assert labels["u1_increment"].shape == (2, 16)


def test_a_file_of_the_well(tmp_path):
    data = Trajectories.open(well_file(tmp_path / "moving.hdf5"))
    assert [v.name for v in data.fields] == ["density", "energy"]
    assert [v.name for v in data.static_names] == ["speed", "wall"]
    assert (len(data), data.frames, data.shape, data.step) == (6, 33, (12, 10), 0.5)
    assert data.domain.periods == (pytest.approx(1.0), pytest.approx(1.0))
    part = data.take([3, 1]).cut(11).stride(2)
    assert not isinstance(part.s, np.ndarray)
    assert part.load().s.shape == (6, 6, 120, 2)
    np.testing.assert_array_equal(part.load().s[1], data.load().s[3, 11:22:2])
    some = part.steps(history=2).load([5, 0])
    np.testing.assert_array_equal(some.u[0, :, :2], np.asarray(data.s)[3, 13])
    assert [v.name for v in some.inputs][-2:] == ["speed", "wall"]
    np.testing.assert_array_equal(some.u[:, 0, -2], 2.0)
    only = Trajectories.open(tmp_path / "moving.hdf5", "energy", static="wall")
    assert (only.d, [v.name for v in only.static_names]) == (1, ["wall"])


def test_files_of_other_formats(tmp_path):
    u = RANDOM.normal(size=(3, 6, 4, 8)).astype(np.float32)
    fields = {"u": (("case", "time", "lat", "x"), u), "v": (("case", "time", "lat", "x"), 2.0 * u)}
    still = {"oro": (("lat", "x"), u[0, 0]), "nu": ("case", np.arange(3.0))}
    axes = {"time": np.arange(6), "lat": np.linspace(60, -60, 4), "x": np.arange(8) / 8}
    xarray.Dataset({**fields, **still}, axes).to_netcdf(tmp_path / "some.nc", engine="h5netcdf")
    roles = {"sample": "case", "static": ["oro", "nu"], "periods": {"x": 1.0}}
    data = Trajectories.open(tmp_path / "some.nc", ["u", "v"], **roles)
    assert data.static.shape == (3, 32, 2)
    assert data.domain.periods == (None, 1.0)
    np.testing.assert_array_equal(data.load().s[..., 1].reshape(u.shape), 2.0 * u)
    with pytest.raises(ValueError, match="does not define fields; pass their names"):
        Trajectories.open(tmp_path / "some.nc")
    with h5py.File(tmp_path / "bench.h5", "w") as root:
        root["tensor"], root["x-coordinate"], root["t-coordinate"] = u[:, :, 0], axes["x"], 0.1 * np.arange(7)
    bench = Trajectories.open(tmp_path / "bench.h5", split="train", periods={"x": 1.0})
    assert (len(bench), bench.frames, bench.domain.periods) == (3, 6, (1.0,))


def test_from_xarray():
    days = np.datetime64("2001-01-01", "ns") + np.arange(20) * np.timedelta64(1, "D")
    sst = np.random.default_rng(0).normal(size=(20, 5, 8)).astype(np.float32)
    sst[:, 1, 2] = np.nan
    dataset = xarray.Dataset(
        {
            "sst": (("time", "lat", "lon"), sst, {"units": "K"}),
            "depth": (("lat", "lon"), np.ones((5, 8)), {"units": "m"}),
            "index": (("time",), np.arange(20.0)),
        },
        {"time": days, "lat": np.linspace(60, -60, 5), "lon": np.arange(0, 360, 45.0)},
    )
    data = Trajectories.from_xarray(dataset, "sst", static="depth", forcing="index", cycles=(365.25,))
    assert (len(data), data.frames, data.step, data.unit) == (1, 20, 1.0, "days")
    assert data.domain.periods == (None, 360.0)
    assert [str(v) for v in (*data.fields, *data.static_names, *data.coordinates)] == [
        "sst (K)",
        "depth (m)",
        "lat",
        "lon",
    ]
    assert not data.mask[10]
    np.testing.assert_array_equal(data.load().s[0, :, 9, 0], sst[:, 1, 1])
    pairs = data.samples()
    assert [v.name for v in pairs.inputs] == ["sst", "depth", "mask", "index", "sine 365.25", "cosine 365.25"]
    one = Trajectories.from_xarray(dataset.isel(time=3), "sst", time="time")
    assert one.frames == 1
    np.testing.assert_array_equal(one.load().s[0, 0, data.mask], data.load().s[0, 3, data.mask])
    sst[4, 0, 0] = np.nan
    with pytest.raises(ValueError, match="1 of 800 values of trajectory 0 are NaN"):
        Trajectories.from_xarray(dataset, "sst").load()
    with pytest.raises(ValueError, match=r"depth of xarray.Dataset do not change along 'time'; pass them as static="):
        Trajectories.from_xarray(dataset, ["sst", "depth"])
    with pytest.raises(ValueError, match="time does not increase"):
        Trajectories.from_xarray(dataset.isel(time=slice(None, None, -1)), "sst")
