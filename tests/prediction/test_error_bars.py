"""Error bars in files, reports and on the command line."""

import json

import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import xarray
from scipy.stats import spearmanr

import loca
from commands import command
from loca.data import Labeled
from loca.evaluation import RELIABILITY_LEVELS, Report
from loca.models import Regression
from loca.prediction import QueryGrid, predict_dataset, predict_to, write_dataset
from loca.uncertainty import UnfamiliarInputWarning


def rods(count=40, seed=0, scale=1.0):
    """Temperatures that are not a linear function of the heating."""
    rng = np.random.default_rng(seed)
    x, a = np.linspace(0.0, 1.0, 7), scale * rng.normal(size=(count, 2))
    q = a[:, :1] + a[:, 1:] * np.sin(3.0 * x)
    t = a[:, :1] * x + 0.2 * a[:, 1:] ** 2 * x * (1.0 - x) + 0.01 * rng.normal(size=(count, 7))
    return xarray.Dataset(
        {"q": (("run", "x"), q, {"units": "W"}), "t": (("run", "x"), t, {"units": "K", "long_name": "temperature"})},
        {"x": ("x", x, {"units": "m"})},
    )


def records(dataset):
    return Labeled(dataset, ["q"], ["t"], "run")


@pytest.fixture(scope="module")
def model():
    return loca.calibrate(Regression.fit(records(rods()).load()), records(rods(seed=1)))


@pytest.mark.slow
@pytest.mark.parametrize("queries", [None, "grid"])
def test_files_hold_error_bars_and_p_values(model, tmp_path, queries):
    data = records(rods(12, seed=2))
    grid = None if queries is None else QueryGrid.even(data.domain, (5,), data.load([0]).query_coordinates)
    found = predict_dataset(model, data, queries=grid, level=0.8)
    y = jnp.linspace(0.0, 1.0, 7 if grid is None else 5)[:, None]
    u = data.load([3]).u[0]
    lower, upper = model.bands(u, y, 0.8)
    for name, values in {"t": model(u, y), "t_std": model.std(u, y), "t_lower": lower, "t_upper": upper}.items():
        np.testing.assert_allclose(found[name].isel(run=3), values[:, 0], atol=1e-5)
        assert found[name].attrs["units"] == "K"
    assert found["t"].attrs["long_name"] == "temperature"
    assert found["t_upper"].attrs["long_name"] == "upper end of pointwise 80 % bands of t"
    np.testing.assert_allclose(found["in_distribution"], model.in_distribution(data.load().u), atol=1e-6)
    write_dataset(found, tmp_path / "found.csv")
    table = pandas.read_csv(tmp_path / "found.csv").set_index("run")
    np.testing.assert_allclose(table["t_std"][3], found["t_std"].isel(run=3), rtol=1e-6)
    stored = predict_to(model, data, tmp_path / "found.zarr", queries=grid, level=0.8)
    xarray.testing.assert_allclose(stored.load(), found)
    with pytest.raises(FileExistsError, match=r"holds something else .provenance.level is 0.8"):
        predict_to(model, data, tmp_path / "found.zarr", queries=grid, level=0.9)


def test_unfamiliar_inputs_cause_a_warning(model):
    with pytest.warns(UnfamiliarInputWarning, match="8 of 8 input functions are unlike"):
        predict_dataset(model, records(rods(8, seed=2, scale=30.0)))


@pytest.mark.slow
def test_a_report_counts_what_bands_contain(model, tmp_path):
    data = records(rods(60, seed=3)).load()
    report = loca.evaluate(model, data, level=0.8, batch_size=25)
    y, s = data.y.points, np.asarray(data.s, np.float64)
    bands = [model.bands(u, y, 0.8) for u in data.u]
    inside = np.array([(b.lower <= t) & (t <= b.upper) for b, t in zip(bands, s, strict=True)])
    np.testing.assert_allclose(report.errors["coverage"], inside.mean(axis=1), atol=1e-6)
    whole = [model.bands(u, y, 0.8, simultaneous=True) for u in data.u]
    contained = [((b.lower <= t) & (t <= b.upper)).all(axis=0) for b, t in zip(whole, s, strict=True)]
    np.testing.assert_allclose(report.errors["contained"], contained)
    np.testing.assert_allclose(report.errors["width"], [(b.upper - b.lower).mean(0) for b in bands], rtol=1e-5)
    place = RELIABILITY_LEVELS.index(0.8)
    assert report.reliability["pointwise"][place, 0] == pytest.approx(inside.mean(), abs=1e-6)
    assert report.reliability["simultaneous"][place, 0] == pytest.approx(np.mean(contained))
    assert np.all(np.diff(report.reliability["pointwise"], axis=0) >= 0.0)
    report.save(tmp_path / "report.json")
    assert Report.load(tmp_path / "report.json") == report
    assert "80 % bands" in str(report)
    assert "coverage" not in loca.evaluate(model.operator, data).errors
    with pytest.raises(ValueError, match="needs a model that knows its error"):
        loca.evaluate(model.operator, data, metrics=["coverage"])


def test_rank_correlation_is_spearmans():
    rng = np.random.default_rng(0)
    errors = {name: rng.normal(size=(30, 1)) for name in ("rmse", "std")}
    report = Report(records(rods(2)).outputs, errors)
    expected = spearmanr(errors["std"][:, 0], errors["rmse"][:, 0]).statistic
    assert report.rank_correlation() == pytest.approx(expected)
    assert "rank" in str(report)
    constant = Report(report.outputs, errors | {"std": np.ones((30, 1))})
    assert "nan" not in str(constant)


@pytest.mark.slow
def test_commands_calibrate_predict_and_evaluate(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, seed, scale in (("held", 1, 1.0), ("new", 2, 1.0), ("far", 2, 30.0)):
        rods(40, seed, scale).to_netcdf(f"{name}.nc")
    loca.save(model.operator, "model.safetensors", data=records(rods()).load())

    names = ("--inputs", "q", "--outputs", "t", "--sample", "run")
    assert "bands from 40 functions" in command("calibrate", "model.safetensors", "held.nc", *names)
    command("predict", "model.safetensors", "new.nc", "--out", "new_s.nc")  # the model knows its variables
    with xarray.open_dataset("new_s.nc") as found:
        assert {"t", "t_std", "t_lower", "t_upper", "in_distribution"} <= set(found.data_vars)
    output = command("predict", "model.safetensors", "far.nc", "--out", "far_s.nc", *names)
    assert "warning: 40 of 40 input functions are unlike those" in output
    output = command("evaluate", "model.safetensors", "new.nc", "--out", "report.json", "--level", "0.8", *names)
    assert "coverage" in output
    assert json.loads((tmp_path / "report.json").read_text())["level"] == 0.8
    output = command("figures", "model.safetensors", "new.nc", "--out", "drawn", *names)
    assert "reliability.png" in output
    assert "error_bars.png" in output
