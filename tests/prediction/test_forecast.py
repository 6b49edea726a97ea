"""Forecasts with the labels of the start, in memory and in files that survive a kill."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from loca.data import Normalization, Trajectories
from loca.models import Noise, Operator, Stepper
from loca.prediction import forecast, forecast_to

DAYS = np.datetime64("2001-01-01", "ns") + np.arange(30) * np.timedelta64(1, "D")
LAT, LON = np.linspace(60.0, -60.0, 5), np.arange(0.0, 360.0, 45.0)
RANDOM = np.random.default_rng(0)


class East(Operator):
    """The fields move east by one point a day; the tide is added."""

    normalization: Normalization

    def encode(self, u):
        return u

    def respond(self, codes, queries):
        field = codes[:, :, 0].reshape(-1, 5, 8)
        moved = (jnp.roll(field, 1, axis=2) - field).reshape(codes.shape[0], 40) + codes[:, :, -1]
        return self.normalization.at(queries).standardize(moved[..., None])


def sea():
    sst = RANDOM.normal(size=(30, 5, 8))
    sst[:, 1] = np.nan  # a belt of land
    return xarray.Dataset(
        {
            "sst": (("time", "lat", "lon"), sst, {"units": "K"}),
            "depth": (("lat", "lon"), RANDOM.normal(size=(5, 8))),
            "tide": ("time", 0.01 * np.arange(30.0)),
        },
        {"time": DAYS, "lat": LAT, "lon": LON},
    )


SEA = sea()


def stepper():
    data = Trajectories.from_xarray(SEA, "sst", static="depth", forcing="tide").load()
    found = Stepper.of(East(Normalization.fit(data.samples())), data)
    errors = 0.01 * jnp.asarray(RANDOM.normal(size=(4, 40, 1)))
    return dataclasses.replace(found, noise=Noise(errors, jnp.ones((1, 1))))


STEPPER = stepper()


def test_labels_come_back():
    start = SEA[["sst"]].isel(time=slice(3, 6))
    found = forecast(STEPPER, start, 4, forcing=SEA[["tide"]])
    assert list(found.sst.dims) == ["sample", "time", "lat", "lon"]
    np.testing.assert_array_equal(found.time, DAYS[6:10])
    np.testing.assert_allclose(found.lat, LAT)
    assert found.sst.attrs["units"] == "K"
    assert np.isnan(found.sst[:, :, 1]).all()
    expected = np.roll(SEA.sst[5].to_numpy(), 1, axis=1) + 0.05
    np.testing.assert_allclose(found.sst[0, 0], expected, atol=1e-5)
    north_up = start.isel(lat=slice(None, None, -1)).roll(lon=3, roll_coords=True)
    np.testing.assert_array_equal(forecast(STEPPER, north_up, 4, forcing=SEA[["tide"]]).sst, found.sst)
    one = forecast(STEPPER, start.isel(time=-1), 4, forcing=SEA[["tide"]])  # a single frame with its date
    xarray.testing.assert_identical(one, found)
    with pytest.raises(ValueError, match=r"covers time from 11323 to 11352, but 30 steps need it .*pass forcing"):
        forecast(STEPPER, start, 30, forcing=SEA[["tide"]])
    with pytest.raises(ValueError, match=r"40 locations of .*interpolate the start"):
        forecast(STEPPER, start.assign_coords(lat=LAT + 1.0), 4, forcing=SEA[["tide"]])
    with pytest.raises(ValueError, match=r"no values \(NaN\) at some locations"):
        forecast(STEPPER, start.where(start.lat < 50.0), 4, forcing=SEA[["tide"]])


def files(path):
    return {p.relative_to(path): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_killed_forecast_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    start, tide = SEA[["sst"]].isel(time=slice(0, 1)), np.zeros((1, 100, 1), np.float32)
    options = {"forcing": tide, "draws": 3, "seed": 1}
    whole = forecast_to(STEPPER, start, tmp_path / "whole.zarr", 100, **options)
    assert whole.sst.dims == ("sample", "draw", "time", "lat", "lon")
    np.testing.assert_array_equal(whole.time, DAYS[0] + np.arange(1, 101) * np.timedelta64(1, "D"))
    np.testing.assert_array_equal(whole.sst, forecast(STEPPER, start, 100, **options).sst)
    from loca.prediction.predict import write_tile

    written = []

    def killed(path, values):
        written.append(path)
        if len(written) == 4:
            raise KeyboardInterrupt
        write_tile(path, values)

    monkeypatch.setattr("loca.prediction.forecasts.write_tile", killed)
    with pytest.raises(KeyboardInterrupt):
        forecast_to(STEPPER, start, tmp_path / "killed.zarr", 100, **options)
    assert not (tmp_path / "killed.zarr").exists()
    done = []
    forecast_to(STEPPER, start, tmp_path / "killed.zarr", 100, progress=lambda *each: done.append(each), **options)
    assert done[0] == (9, 100)
    assert done[-1] == (100, 100)
    assert files(tmp_path / "killed.zarr") == files(tmp_path / "whole.zarr")
    count = len(written)
    forecast_to(STEPPER, start, tmp_path / "killed.zarr", 100, **options)  # the same command again
    assert len(written) == count
    with pytest.raises(FileExistsError, match="steps is 100, now requested: 50"):
        forecast_to(STEPPER, start, tmp_path / "killed.zarr", 50, **options)
    with pytest.raises(FileExistsError, match="start is "):
        forecast_to(STEPPER, SEA[["sst"]].isel(time=[3]), tmp_path / "killed.zarr", 100, **options)
