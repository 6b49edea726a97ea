"""`loca invert`: observations in files, the posterior as NetCDF, and what is refused."""

import numpy as np
import pandas
import pytest
import xarray

import loca
from commands import command, words
from loca.data import Labeled
from loca.models import Regression

X = np.linspace(0.0, 1.0, 8)


def cases(count, seed):
    """s' = u, in units."""
    a = np.random.default_rng(seed).normal(size=(3, count, 1))
    u = a[0] + a[1] * X + 0.5 * a[2] * X**2
    s = a[0] * X + a[1] * X**2 / 2 + a[2] * X**3 / 6
    values = {
        "slope": (("case", "t"), u.astype("float32"), {"units": "m/s"}),
        "height": (("case", "t"), s.astype("float32"), {"units": "m"}),
    }
    return xarray.Dataset(values, {"t": ("t", X, {"units": "s"})})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("invert")
    for name, (count, seed) in {"train": (60, 0), "held": (20, 1), "truth": (1, 2)}.items():
        cases(count, seed).to_netcdf(place / f"{name}.nc", engine="h5netcdf")
    data = Labeled(cases(60, 0), "slope", "height", "case").load()
    roles = {"path": str(place / "train.nc"), "inputs": ["slope"], "outputs": ["height"], "sample": "case"}
    model = Regression.fit(data, components=3, strength=1e-9)
    loca.save(model, place / "model.safetensors", data=data, provenance={"data": roles})
    truth = cases(1, 2)["height"].to_numpy()[0]
    table = pandas.DataFrame({"t": X, "height": truth, "height_noise": 0.01})
    table.drop(columns="height_noise").to_csv(place / "observed.csv", index=False)
    table.to_csv(place / "noisy.csv", index=False)
    table.assign(height=truth).loc[1:].set_index("t").to_xarray().to_netcdf(place / "observed.nc", engine="h5netcdf")
    return place


def invert(place, name, *options, code=0):
    model, file = place / "model.safetensors", place / name
    return command("invert", model, "--observations", file, "--method", "laplace", *options, code=code)


@pytest.mark.slow
def test_the_posterior_is_written_with_coordinates_and_draws(place):
    truth = cases(1, 2)["slope"].to_numpy()[0]
    held = ("--held", place / "held.nc")
    said = invert(place, "observed.csv", "--out", place / "a.nc", "--noise", "0.01", *held, "--draws", "50")
    assert "posterior of slope given 8 observations, by laplace" in said
    with xarray.open_dataset(place / "a.nc", engine="h5netcdf") as found:
        assert found["slope"].dims == ("t",)
        assert found["slope_draws"].dims == ("draw", "t")
        assert found["slope_draws"].sizes["draw"] == 50
        assert found["slope"].attrs["units"] == "m/s"
        assert found.attrs["method"] == "laplace"
        np.testing.assert_allclose(found["observed_t"], X, rtol=1e-6)
        assert np.all(np.abs(found["slope"] - truth) < 4.0 * found["slope_std"])
        mean = found["slope"].to_numpy()
    invert(place, "noisy.csv", "--out", place / "b.nc", *held)
    with xarray.open_dataset(place / "b.nc", engine="h5netcdf") as found:
        np.testing.assert_allclose(found["slope"], mean, atol=1e-4)
    picture = place / "c.png"
    invert(place, "observed.nc", "--out", place / "c.nc", "--prior", place / "train.nc", *held, "--figure", picture)
    assert picture.stat().st_size > 1000
    again = invert(place, "noisy.csv", "--out", place / "b.nc", *held, code=2)
    assert "b.nc already exists; choose another name" in words(again)


@pytest.mark.parametrize(
    ("name", "options", "message", "code"),
    [
        ("observed.csv", ("--noise", "0.1"), "pass held-out functions, --held ..., or --surrogate-error 0.0", 1),
        ("observed.csv", (), "give the standard deviation of the noise, or columns height_noise", 2),
        ("noisy.csv", ("--noise", "0.1"), "the noise was given twice", 1),
        ("train.nc", ("--noise", "0.1"), "expected a column height, found", 1),
    ],
)
def test_what_cannot_be_inverted_is_refused(place, name, options, message, code):
    assert message in words(invert(place, name, "--out", place / "refused.nc", *options, code=code))
    assert not (place / "refused.nc").exists()


def test_a_model_that_does_not_know_its_data_needs_a_prior(place, tmp_path):
    model = loca.load(place / "model.safetensors")
    data = Labeled(cases(60, 0), "slope", "height", "case").load()
    loca.save(model, tmp_path / "model.safetensors", data=data)
    line = ("invert", tmp_path / "model.safetensors", "--observations", place / "noisy.csv", "--out", tmp_path / "a.nc")
    assert "the model does not know its training data; pass plausible inputs" in words(command(*line, code=2))
