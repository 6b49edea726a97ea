"""Transforms of variables on the command line, in TOML files and in run directories."""

import pytest

from commands import command
from loca.data import Log
from loca.problems import Darcy, generate
from loca.runs import read_configuration
from loca.saving import inspect, load

MODEL = "num_features = 4\nlift_size = 4\nlift_widths = [4]\nproposal_widths = [4]\nfeature_widths = [4]\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("transforms") / "darcy.zarr"
    generate(Darcy(resolution=8), 20, path)
    return path


@pytest.mark.full
def test_a_run_stores_its_transforms(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        f'[data]\npath = "{store}"\n[model]\n{MODEL}[training]\nsteps = 2\nbatch_size = 10\n'
    )
    options = ("--transform", "permeability=log", "--transform", "pressure=auto")
    out = command("train", "run.toml", "--out", "run", *options)
    assert "transform of output `pressure`: " in out
    assert inspect("run/model.safetensors").transforms["permeability"] == "log"
    assert isinstance(load("run/model.safetensors").normalization.u_transforms[0], Log)
    assert "permeability=log" in command("inspect", "run")


def test_options_replace_the_transforms_of_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('transforms = "auto"\n[data]\npath = "a"\n')
    assert read_configuration(path, {"transforms": None}).transforms == "auto"
    assert read_configuration(path, {"transforms": {"u": "log"}}).transforms == {"u": "log"}
    path.write_text('[data]\npath = "a"\n[transforms]\nu = "log"\ns = "asinh"\n')
    assert read_configuration(path, {"transforms": {"u": "auto"}}).transforms == {"u": "auto", "s": "asinh"}
    assert read_configuration(path, {"transforms": "auto"}).transforms == "auto"


@pytest.mark.parametrize(
    ("option", "message", "code"),
    [
        ("log", "expected NAME=TRANSFORM, such as", 2),
        ("perm=log", "given for perm, but the variables are permeability, pressure", 1),
    ],
)
def test_a_wrong_transform_is_refused(option, message, code, store, tmp_path):
    output = command("train", "--data", store, "--out", tmp_path / "run", "--transform", option, code=code)
    assert message in " ".join(output.split())
    assert not (tmp_path / "run").exists()
