"""The readers of docs/deploy.md run for real, and the page shows them as they are."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import loca
from loca.exporting import read_artifact
from loca.exporting.formats import VARIABLE, run

ROOT = Path(__file__).parents[2]
READERS = ROOT / "examples/readers"
GOLDEN = ROOT / "tests/golden/0.1.0/exports"
NAMES = ("loca", "deeponet", "fno", "gaussian")


def test_the_page_shows_the_readers():
    page = (ROOT / "docs/deploy.md").read_text()
    for reader in sorted(READERS.iterdir()):
        assert reader.read_text() in page, f"copy {reader.name} to docs/deploy.md"


def same_mean(command, name, tmp_path, environment):
    """A reader, called with an ONNX file and the inputs of its probe, writes the mean of the model."""
    artifact = read_artifact(GOLDEN / f"{name}.onnx")
    files = [tmp_path / "u.f32", tmp_path / "y.f32"]
    for file in files:
        artifact.probe[file.stem].astype("<f4").tofile(file)
    line = [*command, GOLDEN / f"{name}.onnx", tmp_path / "mean.f32", *files]
    done = subprocess.run(line, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = artifact.expected["mean"]
    found = np.fromfile(tmp_path / "mean.f32", "<f4").reshape(expected.shape)
    assert (np.abs(found - expected) <= 1e-5 * np.abs(expected).max(axis=(0, 1))).all()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    release = Path(os.environ.get("ONNXRUNTIME", "missing"))
    if not (release / "include/onnxruntime_cxx_api.h").exists() or shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler, and ONNXRUNTIME: the directory of a release of ONNX Runtime for C++")
    program = tmp_path_factory.mktemp("reader") / "reader"
    places = [f"-I{release / 'include'}", f"-L{release / 'lib'}", "-lonnxruntime"]
    subprocess.run(["c++", "-std=c++17", READERS / "reader.cpp", *places, "-o", program], check=True)
    return program, {"LD_LIBRARY_PATH": str(release / "lib")}


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_reader_in_cpp(name, tmp_path, compiled):
    program, environment = compiled
    same_mean([program], name, tmp_path, environment)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_the_reader_in_node(name, tmp_path):
    modules = os.environ.get("NODE_PATH", "")
    if shutil.which("node") is None or not (Path(modules) / "onnxruntime-node").exists():
        pytest.skip("needs Node, and NODE_PATH: a node_modules directory with onnxruntime-node")
    same_mean(["node", READERS / "reader.js"], name, tmp_path, {})


@pytest.fixture(scope="module")
def jax2onnx():
    """The Python of an environment with jax2onnx."""
    if VARIABLE not in os.environ:
        pytest.skip(f"needs {VARIABLE}: the Python of an environment with jax2onnx, see docs/deploy.md")
    return os.environ[VARIABLE]


@pytest.mark.full
def test_the_private_names_of_jax2onnx_exist(jax2onnx):
    run(jax2onnx, "from loca.exporting.onnx_worker import register_custom_vmap; register_custom_vmap()")


@pytest.mark.full
@pytest.mark.usefixtures("jax2onnx")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fixed", [False, True])
def test_conversion_to_onnx(name, fixed, tmp_path):
    model, y = loca.load(GOLDEN / f"{name}.safetensors"), np.random.default_rng(0).uniform(size=(6, 2))
    loca.export(model, tmp_path / "model.onnx", y=y if fixed else None)  # which compares values
    artifact = read_artifact(tmp_path / "model.onnx")
    assert [port.name for port in artifact.about.inputs] == (["u"] if fixed else ["u", "y"])
