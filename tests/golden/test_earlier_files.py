"""Files of earlier revisions: models, stores, checkpoints and runs load, resume and predict as they did."""

import importlib.util
import json
import shutil
from importlib.metadata import version
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import loca
from loca.cli.app import app
from loca.data import Shared
from loca.problems import Antiderivative, generate

HERE = Path(__file__).parent / "0.1.0"
MODELS = sorted(path.stem for path in HERE.glob("*-*.safetensors"))

spec = importlib.util.spec_from_file_location("make", HERE.parent / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def same(found, expected, machine):
    """The same bits on a machine that computes as the one that made the files; elsewhere the same up to round-off.

    Another processor sums in another order. 64 units of round-off are far below any change of a model.
    """
    assert found.dtype == expected.dtype
    if str(machine) == make.machine():
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=64 * np.finfo(np.float32).eps * np.std(expected))


@pytest.mark.parametrize(
    "name", [name if name == "loca-box" else pytest.param(name, marks=pytest.mark.full) for name in MODELS]
)
def test_a_model_predicts_as_it_did(name):
    model = loca.load(HERE / f"{name}.safetensors")
    with np.load(HERE / f"{name}.npz") as expected:
        u, y = jnp.asarray(expected["u"]), Shared(jnp.asarray(expected["y"]))
        same(np.asarray(model.predict(u, y)), expected["s"], expected["machine"])


def test_a_store_is_read_and_verified():
    store = loca.data.open(HERE / "antiderivative.zarr")
    store.verify()
    assert store.digest == "26d7ab037d406f844205789d2cf19aa375502d1e75882a767ae88e0d03d9be09"
    assert len(store) == 40


def test_an_interrupted_store_is_completed(tmp_path):
    shutil.copytree(HERE / "interrupted.zarr.partial", tmp_path / "interrupted.zarr.partial")
    began = {path.name for path in tmp_path.rglob("*.npz")}
    assert began, "the golden file holds finished pieces"
    versions = json.loads((HERE / "interrupted.zarr.partial/request.json").read_text())["provenance"]["versions"]
    arguments = Antiderivative(length=0.3, sensors=20, queries=10), 40, tmp_path / "interrupted.zarr"
    if any(version(name) != used for name, used in versions.items()):
        with pytest.raises(FileExistsError, match="was started with other arguments"):
            generate(*arguments)  # other versions may compute other bits
        return
    store = generate(*arguments)
    assert store.digest == loca.data.open(HERE / "antiderivative.zarr").digest


@pytest.mark.full
def test_a_training_run_resumes_from_its_checkpoint(tmp_path):
    shutil.copytree(HERE / "training", tmp_path / "training")
    data = loca.data.open(HERE / "antiderivative.zarr").load()
    model = loca.load(HERE / "start.safetensors")
    validation = data.take(jnp.arange(8))
    trained, history = loca.fit(
        model, data, directory=tmp_path / "training", steps=40, batch_size=10, every=20, validate=validation
    )
    with np.load(HERE / "training.npz") as expected:
        same(np.asarray(trained.predict(data.u[:3], data.y)), expected["s"], expected["machine"])
        np.testing.assert_allclose([moment.loss for moment in history], expected["loss"], rtol=1e-5)


@pytest.mark.full
def test_a_killed_run_resumes_and_ends_as_the_finished_one(tmp_path, monkeypatch):
    for name in ("killed", "antiderivative.zarr"):
        shutil.copytree(HERE / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["train", "--resume", "killed"])
    assert done.exit_code == 0, done.output
    ours, theirs = (loca.load(place / "model.safetensors") for place in (tmp_path / "killed", HERE / "finished"))
    with np.load(HERE / "finished.npz") as expected:
        u, y = jnp.asarray(expected["u"]), Shared(jnp.asarray(expected["y"]))
        same(np.asarray(theirs.predict(u, y)), expected["s"], expected["machine"])
        # three thousand steps amplify round-off between machines
        s = np.asarray(ours.predict(u, y))
        if str(expected["machine"]) == make.machine():
            np.testing.assert_array_equal(s, expected["s"])
        else:
            np.testing.assert_allclose(s, expected["s"], atol=0.02 * np.std(expected["s"]))


def test_a_finished_run_is_evaluated(tmp_path, monkeypatch):
    for name in ("finished", "antiderivative.zarr"):
        shutil.copytree(HERE / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["evaluate", "finished", "antiderivative.zarr", "--out", "report.json"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "report.json").exists()
    assert eqx.is_array(loca.load(tmp_path / "finished/model.safetensors").f.weights[0])
