"""Own files by commands: other orders and grids, cases that have not been solved, points, tables, remembered names."""

import importlib.util

import jax
import numpy as np
import pandas
import pytest
import xarray

from commands import command, words
from loca.configuration import check_configuration
from loca.data import Labeled, convert
from loca.domains import Mesh
from loca.evaluation import Report
from loca.models import DeepONet
from loca.runs import read_run
from loca.saving import save

X, Y = np.linspace(0.0, 1.0, 6), np.linspace(0.0, 2.0, 5)
ROLES = {"inputs": ["permeability"], "outputs": ["pressure"], "sample": "case"}


def wells(count, x=X, y=Y):
    """Pressure for a permeability, on a grid."""
    a = np.random.default_rng(count).normal(size=(2, count, 1, 1))
    u, v = np.meshgrid(x, y, indexing="ij")
    values = {
        "permeability": (("case", "x", "y"), (a[0] * np.sin(u) + a[1] * v).astype("float32"), {"units": "m2"}),
        "pressure": (("case", "x", "y"), (a[0] * np.cos(u) - a[1] * v).astype("float32"), {"units": "Pa"}),
    }
    return xarray.Dataset(values, {"x": ("x", x, {"units": "m"}), "y": y})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files, and a model as `loca train` saves it: with the variables of its data."""
    place = tmp_path_factory.mktemp("wells")
    test = wells(7)
    files = {
        "test": test,
        "reversed": test.isel(y=slice(None, None, -1)),
        "transposed": test.transpose("case", "y", "x"),
        "fine": wells(7, x=np.linspace(0.0, 1.0, 11)),
        "inputs": test[["permeability"]],
    }
    for name, content in files.items():
        content.to_netcdf(place / f"{name}.nc", engine="h5netcdf")
    data = Labeled(wells(20), "permeability", "pressure", "case").load()
    model = DeepONet.create(data, key=jax.random.key(0), num_features=3, branch_widths=(4,), trunk_widths=(4,))
    save(model, place / "model.safetensors", data=data, provenance={"data": {"path": "train.nc", **ROLES}})
    return place


def errors(place, name, *options):
    said = command("evaluate", place / "model.safetensors", place / f"{name}.nc", "--out", place / "r.json", *options)
    return said, Report.load(place / "r.json").errors["relative_l2"]


@pytest.mark.slow
def test_evaluate_reorders_and_says_so(place):
    said, expected = errors(place, "test")
    assert "reordered" not in said
    for name in ("reversed", "transposed"):
        said, found = errors(place, name)
        assert "sensors are reordered" in said
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_another_grid_needs_regrid(place):
    said = " ".join(command("evaluate", place / "model.safetensors", place / "fine.nc", code=2).split())
    assert "grid of 11 × 5" in said
    assert "made for a grid of 6 × 5" in said.replace("│ ", "")
    said, found = errors(place, "fine", "--regrid")
    assert "interpolated from a grid of 11 × 5" in said
    np.testing.assert_allclose(found, errors(place, "test")[1], rtol=0.1)


@pytest.mark.slow
def test_cases_that_have_not_been_solved_are_predicted(place):
    predict = ["predict", place / "model.safetensors", place / "inputs.nc", "--out"]
    command("predict", place / "model.safetensors", place / "test.nc", "--out", place / "solved.nc")
    command(*predict, place / "own.nc")  # at the queries of the model
    solved, own = (xarray.open_dataset(place / f"{name}.nc") for name in ("solved", "own"))
    np.testing.assert_allclose(own.pressure, solved.pressure, rtol=1e-5, atol=1e-6)
    assert own.pressure.dims == solved.pressure.dims == ("case", "x", "y")
    assert own.pressure.attrs == {"units": "Pa"}
    command(*predict, place / "grid.nc", "--grid", "3x4")
    grid = xarray.open_dataset(place / "grid.nc")
    assert dict(grid.sizes) == {"case": 7, "x": 3, "y": 4}
    assert grid.x.attrs == {"units": "m"}
    command(*predict, place / "grid.zarr", "--grid", "3x4")
    xarray.testing.assert_allclose(xarray.open_zarr(place / "grid.zarr").drop_attrs(), grid.drop_attrs())
    assert "has no variable pressure" in words(command("evaluate", *predict[1:3], code=2))
    said = command(*predict, place / "p.nc", "--outputs", "p", code=2)  # a typo is no choice
    assert "has no variable p;" in words(said)


@pytest.mark.slow
def test_predictions_at_points_of_a_table(place):
    (place / "at.csv").write_text("name, y, x\na, 0.5, 0.4\nb, 1, 0.6\nc, 2.5, 0\n")
    predict = ["predict", place / "model.safetensors", place / "inputs.nc", "--at", place / "at.csv", "--out"]
    said = command(*predict, place / "p.csv")
    assert "1 of 3 queries lie outside the domain of the model, up to 0.5 beyond y from 0 to 2" in said
    rows = (place / "p.csv").read_text().splitlines()
    assert rows[0] == "case,x,y,pressure"
    table = np.loadtxt(rows[1:], delimiter=",")
    np.testing.assert_allclose(table[:4, :3], [[0, 0.4, 0.5], [0, 0.6, 1], [0, 0, 2.5], [1, 0.4, 0.5]])
    command(*predict, place / "p.nc")
    found = xarray.open_dataset(place / "p.nc")
    np.testing.assert_allclose(found.pressure.to_numpy().ravel(), table[:, 3], rtol=1e-5)
    found[["x", "y"]].to_netcdf(place / "at.nc", engine="h5netcdf")
    command("predict", *predict[1:3], "--at", place / "at.nc", "--out", place / "q.nc")
    np.testing.assert_array_equal(xarray.open_dataset(place / "q.nc").pressure, found.pressure)
    (place / "at.csv").write_text("x,z\n1,2\n")
    assert "has no column y; expected x, y, found x, z" in command(*predict, place / "r.nc", code=1)


def test_a_file_has_the_format_of_its_name_or_is_refused(place, monkeypatch):
    predict = ["predict", place / "model.safetensors", place / "test.nc", "--out"]
    said = words(command(*predict, place / "p.txt", code=2))
    assert "expected a name that ends in .nc, .zarr, .csv" in said
    assert not (place / "p.txt").exists()
    command(*predict, place / "p.parquet")
    assert list(pandas.read_parquet(place / "p.parquet").columns) == ["case", "x", "y", "pressure"]
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    assert "loca-jax[parquet]" in command(*predict, place / "q.parquet", code=2)
    assert "either --grid or --at" in command(*predict, place / "p.nc", "--grid", "3x3", "--at", "p.csv", code=2)


def test_one_name_is_a_string_in_toml():
    content = {"data": {"path": "a.nc", "inputs": "permeability", "outputs": ["p", "q"]}}
    data = check_configuration(content, "run.toml").data
    assert (data.inputs, data.outputs) == (("permeability",), ("p", "q"))


@pytest.mark.slow
def test_a_run_remembers_the_names_of_its_data(place):
    wells(30).to_netcdf(place / "train.nc", engine="h5netcdf")
    line = ["--inputs", "permeability", "--outputs", "pressure", "--sample", "case", "--format", "netcdf"]
    options = ["--steps", 4, "--batch-size", 10, "--every", 2, "--rate", 0.001, "--seed", 3, "--model", "deeponet"]
    command("train", "--data", place / "train.nc", *line, *options, "--out", place / "run")
    run = read_run(place / "run")
    assert (run.data.inputs, run.data.sample, run.training.every) == (("permeability",), "case", 2)
    assert "reordered" in command("evaluate", place / "run", place / "transposed.nc")
    command("predict", place / "run", place / "inputs.nc", "--out", place / "remembered.csv")
    command("figures", place / "run", place / "reversed.nc", "--out", place / "figures")
    assert (place / "figures/fields.png").exists()


@pytest.mark.slow
def test_a_mesh_is_described_and_predictions_outside_of_it_are_missing(tmp_path):
    corner = np.add.outer(X, Y) < 2.0
    shape = Mesh.from_mask(corner, (X, Y))
    data = wells(9).where(corner)
    whole = Labeled(data, "permeability", "pressure", "case", domain=shape)
    store = convert(whole, tmp_path / "wells.zarr")
    samples = store.load()
    model = DeepONet.create(samples, key=jax.random.key(0), num_features=3, branch_widths=(4,), trunk_widths=(4,))
    save(model, tmp_path / "model.safetensors", data=samples)
    said = command("inspect", tmp_path / "model.safetensors")
    assert f"Mesh(vertices {len(shape.vertices)} × 2, cells {len(shape.cells)} × 3" in said
    said = command(
        "predict", tmp_path / "model.safetensors", tmp_path / "wells.zarr", "--grid", "9x11", "--out", tmp_path / "p.nc"
    )
    assert "outside the domain" not in said
    found = xarray.open_dataset(tmp_path / "p.nc").pressure
    places = np.stack(np.meshgrid(found.x, found.y, indexing="ij"), -1).reshape(-1, 2)
    np.testing.assert_array_equal(np.isfinite(found[0]).to_numpy().ravel(), shape.contains(places, 1e-5))
    data[["permeability"]].to_netcdf(tmp_path / "inputs.nc", engine="h5netcdf")
    options = ("--inputs", "permeability", "--sample", "case", "--out", tmp_path / "p.csv")
    command("predict", tmp_path / "model.safetensors", tmp_path / "inputs.nc", *options)
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + 9 * corner.sum()


def test_messages_spell_arguments_as_options(place):
    said = words(command("check", place / "test.nc", "--inputs", "permeability", "--outputs", "pressure", code=2))
    assert "--sample" in said
    assert "sample=" not in said
