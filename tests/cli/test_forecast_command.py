"""From a file of trajectories to a forecast with a spread, by commands."""

import numpy as np
import pytest
import xarray

import loca
from commands import command, words
from loca.data import Trajectories
from loca.evaluation import LeadTimes
from loca.models import Stepper
from loca.saving import load
from moving import well_file

SMALL = ("--model", "fno", "--modes", 3, "--width", 8, "--depth", 2, "--steps", 80, "--batch-size", 16)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("forecast")
    well_file(place / "moving.hdf5", N=6, T=33)
    frames = Trajectories.open(place / "moving.hdf5").load()
    values = frames.s[0, :4].reshape(4, *frames.shape, 2)
    fields = {name: (("time", "x", "y"), values[..., i]) for i, name in enumerate(("density", "energy"))}
    still = {"wall": (("x", "y"), frames.static[0, :, 1].reshape(frames.shape)), "speed": frames.static[0, 0, 0]}
    axes = dict(zip(("x", "y"), frames.axes, strict=True))
    dataset = xarray.Dataset({**fields, **still}, {"time": frames.times[0, :4], **axes})
    dataset.to_netcdf(place / "start.nc", engine="h5netcdf")
    return place


@pytest.mark.slow
def test_train_calibrate_evaluate_forecast(place):
    file, run = place / "moving.hdf5", place / "run"
    said = command("train", file, "--time", "time", *SMALL, "--history", 2, "--noise", 0.01, "--out", run)
    assert "mean relative L2 error on validation data" in words(said)
    stepper = load(run / "model.safetensors")
    assert isinstance(stepper, Stepper)
    assert (stepper.history, stepper.static_names) == (2, ("speed", "wall"))
    command("calibrate", run, file)
    said = command("evaluate", run, file, "--steps", 30, "--draws", 4, "--out", run / "errors.json")
    assert "climatology" in said
    report = LeadTimes.load(run / "errors.json")
    assert report.of("vrmse")[0].max() < 0.7
    for first, last in ((1, 1), (6, 12), (13, 30)):  # the windows of The Well
        assert np.isfinite(report.window(first, last)).all()
    options = ("--steps", 5, "--draws", 3, "--out")
    assert "5 steps" in command("forecast", run, place / "start.nc", *options, place / "next.nc")
    found = xarray.open_dataset(place / "next.nc")
    assert found.density.dims == ("sample", "draw", "time", "x", "y")
    np.testing.assert_allclose(found.time, 1.5 + 0.5 * np.arange(1, 6))
    said = command("forecast", run, place / "start.nc", *options, place / "next.zarr")
    assert "is complete" in said
    np.testing.assert_array_equal(xarray.open_zarr(place / "next.zarr", chunks=None).energy, found.energy)
    assert "already exists" in command("forecast", run, place / "start.nc", *options, place / "next.zarr")


@pytest.mark.slow
def test_a_step_is_solved_for(place):
    run = place / "solved"
    said = command("train", place / "moving.hdf5", "--time", "time", "--model", "gaussian", "--out", run)
    assert "mean relative L2 error on validation data" in words(said)
    report = loca.evaluate(load(run / "model.safetensors"), Trajectories.open(place / "moving.hdf5"))
    vrmse = [report.window(*each).max() for each in ((1, 1), (6, 12), (13, 30))]
    assert vrmse[0] < 0.01, vrmse
    assert vrmse[2] < 0.1, vrmse


def test_refusals(place):
    said = command("train", place / "moving.hdf5", "--time", "time", "--inputs", "wall", "--out", place / "no", code=1)
    assert "trajectories have no inputs" in words(said)
    assert not (place / "no").exists()
