"""`loca train --model gaussian`, `--model best` and `loca choose`: runs like those of trained models."""

import functools
import json

import numpy as np
import pytest
import xarray

from commands import command
from loca.choosing import COMPETITORS, ChoiceReport, gaussian
from loca.configuration import check_configuration
from loca.data import Store
from loca.evaluation import Report
from loca.gaussian import GaussianOperator, Hyperparameters, solve
from loca.problems import Antiderivative, generate
from loca.runs import ConfigurationError, read_configuration, read_run
from loca.saving import load

PROBLEM = Antiderivative(length=0.3, sensors=20, queries=10)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("solved")
    generate(PROBLEM, 40, place / "train.zarr")
    generate(PROBLEM, 8, place / "test.zarr", seed=1)
    return place


@pytest.fixture(autouse=True)
def _without_search(monkeypatch):
    """The hyperparameters are given: searching for them takes most of the time."""
    quick = functools.partial(solve, hyperparameters=Hyperparameters())
    monkeypatch.setattr("loca.choosing.solve", quick)
    monkeypatch.setattr("loca.runs.solve", quick)
    monkeypatch.setattr("loca.choosing.COMPETITORS", {"ridge": COMPETITORS["ridge"], "Gaussian": gaussian})


def check_use(run, files):
    """Evaluation and prediction by commands are those of the model of a run."""
    command("evaluate", run, files / "test.zarr", "--out", run / "errors.json")
    command("predict", run, files / "test.zarr", "--out", run / "prediction.nc")
    test = Store.open(files / "test.zarr").load()
    expected = np.asarray(load(run / "model.safetensors").predict(test.u, test.y))
    found = xarray.open_dataset(run / "prediction.nc", engine="h5netcdf")["antiderivative"]
    np.testing.assert_allclose(found, expected[..., 0], rtol=1e-4, atol=1e-5)
    assert Report.load(run / "errors.json").errors["relative_l2"].mean() < 0.5


@pytest.mark.slow
def test_a_gaussian_operator_is_a_run(files):
    run = files / "gaussian"
    said = command("train", "--model", "gaussian", files / "train.zarr", "--labels", 6, "--seed", 1, "--out", run)
    assert "mean relative L2 error on validation data" in said
    assert isinstance(load(run / "model.safetensors"), GaussianOperator)
    check_use(run, files)
    said = command("inspect", run)
    assert "GaussianOperator" in said
    assert "none trained" in said
    assert "length=2.0" in said
    before = (run / "model.safetensors").read_bytes()
    command("train", "--resume", run)
    assert (run / "model.safetensors").read_bytes() == before
    assert read_run(run).training.seed == 1


@pytest.mark.slow
def test_the_best_of_all_is_a_run(files):
    run = files / "best"
    said = command("train", "--model", "best", "--minutes", 2, files / "train.zarr", "--out", run)
    report = ChoiceReport.load(run / "choice.json")
    assert str(report) in said
    assert report.validation == 4
    assert json.loads((run / "run.json").read_text())["model"] == {"kind": "best", "minutes": 2.0}
    check_use(run, files)
    assert f'chosen="{report.winner.model}"' in command("inspect", run)
    assert str(report) in command("train", "--resume", run)


def test_choose_is_short_for_the_best(files, monkeypatch):
    asked = []

    def execute(configuration, directory, **_):
        asked.append(configuration)
        raise ValueError("enough")

    monkeypatch.setattr("loca.runs.execute", execute)
    command("choose", files / "train.zarr", "--minutes", 3, "--labels", 5, "--out", files / "chosen", code=1)
    (files / "best.toml").write_text(f'model = "best"\n[data]\npath = "{files / "train.zarr"}"\nlabels = 5\n')
    command("train", files / "best.toml", "--minutes", 3, "--out", files / "chosen", code=1)
    assert asked[0] == asked[1]
    assert (asked[0].model.kind, asked[0].model.minutes, asked[0].data.labels) == ("best", 3.0, 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {"kind": "gaussian", "minutes": 3}}, "model.minutes is unknown; leave it out"),
        ({"model": {"kind": "best", "minutes": 0}}, "model.minutes: input should be greater than 0, got 0"),
        ({"model": "gaussian", "training": {"steps": 5, "rate": 0.1}}, "'gaussian' does not take steps, rate"),
        ({"model": "kriging"}, "model.kind: expected one of .*'gaussian', 'best', got 'kriging'"),
    ],
)
def test_settings_without_effect_are_refused(content, message):
    with pytest.raises(ConfigurationError, match=message):
        check_configuration({"data": {"path": "a.nc"}, **content}, "run.toml: ")


def test_data_is_given_once(files):
    line = ["train", files / "train.zarr", "--data", files / "train.zarr", "--out", files / "twice"]
    assert "give the data once" in " ".join(command(*line, code=2).split())
    assert read_configuration(None, {"data": {"path": "a.nc"}, "model": {"kind": "gaussian"}}).training.seed == 0
