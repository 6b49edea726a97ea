"""Exported programs: equal to the package without it, complete, checked bit by bit, and safe to overwrite nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import loca
from commands import command, words
from loca.data import Shared, Variable
from loca.domains import Box
from loca.encoders import Sensors
from loca.exporting import Program, compare, read_artifact
from loca.exporting.formats import VARIABLE, read_metadata, with_metadata
from loca.rules import GaussLegendre
from loca.saving import ModelFileError, inspect, load
from loca.typing import Measurements, MultiInput

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/0.1.0/exports"
NAMES = ("loca", "deeponet", "fno", "gaussian")
SIZES = ((1, 3), (18, 40))  # functions and queries; 18 is more than a chunk

WITHOUT_PACKAGE = """
import runpy, sys
sys.modules["loca"] = None  # `import loca` raises
reader, *files = sys.argv[1:]
for i in range(0, len(files), 3):
    sys.argv = [reader, *files[i : i + 3]]
    runpy.run_path(reader)
"""


def small(data, **parts):
    """A LOCA model that compiles quickly."""
    return loca.LOCA.create(
        data,
        key=jax.random.key(0),
        num_features=2,
        lift_size=3,
        lift_widths=(3,),
        proposal_widths=(3,),
        feature_widths=(3,),
        **{"encoder": Sensors(5), "rule": GaussLegendre(data.domain, 4), **parts},
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = jnp.linspace(0.0, 1.0, 5)[:, None]
    y = jnp.asarray(rng.uniform(size=(7, 1)), jnp.float32)
    u, s = (jnp.asarray(np.exp(rng.normal(size=(12, n, 1))), jnp.float32) for n in (5, 7))
    names = {"inputs": [Variable("force", "N")], "outputs": [Variable("strain")]}
    return loca.Samples(u, y, s, x=x, domain=Box.unit(1), **names)


@pytest.fixture(scope="module")
def model(data):
    return small(data, transforms={"force": "log", "strain": "log"})


@pytest.fixture(scope="module")
def file(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("export") / "model.safetensors"
    loca.save(model, path)
    loca.export(model, path.with_suffix(".stablehlo"), header=inspect(path))
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")  # sizes that are free are no integers
def test_programs_equal_the_package_in_a_process_without_it(tmp_path):
    rng, files, expected = np.random.default_rng(1), [], {}
    for name in NAMES:
        operator, program = load(GOLDEN / f"{name}.safetensors"), tmp_path / f"{name}.stablehlo"
        loca.export(operator, program)
        for count, queries in SIZES:
            u = rng.normal(size=(count, 36, 1)).astype(np.float32)
            y = rng.uniform(size=(queries, 2)).astype(np.float32)
            given, found = (tmp_path / f"{name}-{count}-{side}.npz" for side in ("in", "out"))
            np.savez(given, u=u, y=y)
            files += [program, given, found]
            expected[found] = Program.of(operator).predictions({"u": u, "y": y})
    reader = ROOT / "examples/readers/reader.py"
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGE, reader, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path, outputs in expected.items():
        with np.load(path) as found:
            assert set(found) == set(outputs)
            for name, values in outputs.items():
                scale = np.abs(values).max(axis=tuple(range(values.ndim - 1)))
                assert (np.abs(found[name] - values) <= 1e-5 * scale).all(), (path, name)


@pytest.mark.parametrize("name", NAMES)
def test_programs_of_this_release_still_run(name):
    artifact = read_artifact(GOLDEN / f"{name}.stablehlo")
    operator = load(GOLDEN / f"{name}.safetensors")
    assert max(each.relative for each in compare(artifact, operator)) <= 1e-5
    assert artifact.about.model.sha256 == inspect(GOLDEN / f"{name}.safetensors").digest


def test_no_file_is_overwritten(tmp_path):
    artifact, path = read_artifact(GOLDEN / f"{NAMES[0]}.stablehlo"), tmp_path / "other"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="already exists"):
        artifact.write(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_onnx_files_of_this_release_still_run(name):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the `onnx` extra")
    artifact = read_artifact(GOLDEN / f"{name}.onnx")
    assert max(each.relative for each in compare(artifact, load(GOLDEN / f"{name}.safetensors"))) <= 1e-5
    # the package's own reader of metadata agrees with that of ONNX Runtime
    session = onnxruntime.InferenceSession(GOLDEN / f"{name}.onnx", providers=["CPUExecutionProvider"])
    found = session.get_modelmeta().custom_metadata_map
    assert [found["loca"], found["arrays"]] == read_metadata(artifact.program, "loca", "arrays")[0]
    assert json.loads(found["loca"])["kind"] == "onnx"


@pytest.mark.slow
def test_an_artifact_states_what_its_users_need(file, model, data):
    artifact = read_artifact(file.with_suffix(".stablehlo"))
    about = artifact.about
    assert [(v.name, v.unit) for v in about.input_variables] == [("force", "N")]
    assert about.domain.bounds == [(0.0, 1.0)]
    assert about.transforms == {"force": "log", "strain": "log"}
    assert about.normalization["u_scale"] == [float(model.normalization.u_scale[0])]
    assert about.model.sha256 == inspect(file).digest
    assert about.platforms == ["cpu", "cuda", "rocm", "tpu"]
    np.testing.assert_array_equal(artifact.arrays["sensors"], data.x)
    assert (artifact.probe["u"] > 0.0).all(), "probes are values that the transforms accept"
    said = words(command("inspect", file.with_suffix(".stablehlo")))
    assert "u (N, 5, 1), y (P, 1)" in said
    assert inspect(file).digest in said


@pytest.mark.full
def test_fixed_queries_leave_no_work_on_them(tmp_path, model):
    y = np.linspace(0.1, 0.9, 6)[:, None]
    artifact = loca.export(model, tmp_path / "at.stablehlo", y=y)
    assert [port.name for port in artifact.about.inputs] == ["u"]
    u = artifact.probe["u"]
    np.testing.assert_allclose(artifact(u=u)["mean"], model.predict(u, y), rtol=1e-5)
    free, fixed = (
        str(jax.make_jaxpr(Program.of(model, at).function(in_chunks=False))(*inputs))
        for at, inputs in ((None, (u, jnp.asarray(y, jnp.float32))), (y, (u,)))
    )
    assert "cos" in free, "locations are encoded"
    assert "cos" not in fixed
    assert compare(read_artifact(tmp_path / "at.stablehlo"), model)[0].relative <= 1e-5


@pytest.mark.slow
def test_a_padded_fno_has_a_form_that_jax2onnx_converts(data):
    """It converts no `pad` for a free number of functions."""
    fno = loca.FNO.create(data, key=jax.random.key(0), width=2, modes=2, depth=1, padding=1)
    program = Program.of(fno, np.array([[0.2], [0.7]]))
    assert " pad[" not in str(jax.make_jaxpr(program.function(in_chunks=False))(*program.specifications()))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["stablehlo", "onnx"])
def test_error_bars_that_cancel_in_single_precision_are_exported(tmp_path, data, suffix):
    """A Gaussian operator with little noise, for free and for fixed queries, and with derivatives."""
    if suffix == "onnx" and not os.environ.get(VARIABLE):
        pytest.skip("needs an environment with jax2onnx")
    easy = {"length": 8.0, "noise": 1e-8, "location_lengths": (1.0,), "amplitudes": (1.0,)}
    operator, _ = loca.solve(data, hyperparameters=easy)
    for name, y in (("free", None), ("fixed", np.array([[0.2], [0.7]]))):
        path = tmp_path / f"{name}.{suffix}"
        artifact = loca.export(operator, path, y=y, gradients=suffix == "stablehlo")
        assert {port.dtype for port in (*artifact.about.inputs, *artifact.about.outputs)} == {"float32"}
        differences = compare(read_artifact(path), operator)
        assert [each.output for each in differences] == ["mean", "std", "lower", "upper"]
        assert max(each.relative for each in differences) <= 1e-5
    if suffix == "stablehlo":
        u = jnp.asarray(artifact.probe["u"])
        program = jax.export.deserialize(bytearray(artifact.program))
        found = jax.grad(lambda u: jnp.sum(program.call(u)["mean"] ** 2))(u)
        expected = jnp.stack([operator.gradient(lambda s: jnp.sum(s(y) ** 2))(each) for each in u])
        np.testing.assert_allclose(found, expected, atol=1e-3 * float(jnp.abs(expected).max()))


def test_values_of_the_nearest_location_are_exported_for_free_queries(tmp_path, data):
    ridge = loca.models.Regression.fit(data, 2)
    artifact = loca.export(ridge, tmp_path / "ridge.stablehlo")
    u, y = np.asarray(data.u), np.linspace(0.0, 1.0, 300, dtype=np.float32)[:, None]
    np.testing.assert_allclose(artifact(u=u, y=y)["mean"], ridge.predict(u, y), rtol=1e-5)


@pytest.mark.full
def test_gradients_are_those_of_the_model(tmp_path, model):
    artifact = loca.export(model, tmp_path / "gradients.stablehlo", gradients=True)
    program = jax.export.deserialize(bytearray(artifact.program))
    u, y = (jnp.asarray(artifact.probe[name]) for name in ("u", "y"))
    found, expected = (
        jax.grad(lambda u, f=f: jnp.sum(jnp.log(f(u))))(u)
        for f in (lambda u: program.call(u, y)["mean"], lambda u: model.predict(u, Shared(y)))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * float(jnp.abs(expected).max()))


@pytest.mark.full
def test_several_fields_scalars_and_own_sensors_are_inputs_by_name(tmp_path, data):
    rng = np.random.default_rng(2)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=(12, *shape)), jnp.float32)

    x = jnp.asarray(rng.uniform(size=(12, 30, 1)), jnp.float32)
    moving = Measurements(normal(30, 1), x, jnp.ones((12, 30), bool))
    several = loca.Samples(
        MultiInput((normal(5, 1), moving), normal(2)), data.y, data.s, x=(data.x, None), domain=data.domain
    )
    operator = small(several, encoder=None)
    artifact = loca.export(operator, tmp_path / "several.stablehlo", u=jax.tree.map(lambda a: a[0], several.u))
    shapes = {port.name: port.shape for port in artifact.about.inputs}
    assert shapes == {
        "u1": ("N", 5, 1), "u2": ("N", "m2", 1), "x2": ("N", "m2", 1), "mask2": ("N", "m2"),
        "scalars": ("N", 2), "y": ("P", 1),
    }  # fmt: skip
    fields = {"u1": several.u.fields[0], "u2": moving.u, "x2": moving.x, "mask2": moving.mask}
    found = artifact(**fields, scalars=several.u.scalars, y=np.asarray(data.y.points))["mean"]
    expected = np.asarray(operator.predict(several.u, data.y))
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("suffix", [".stablehlo", ".onnx"])
def test_a_changed_bit_is_refused(tmp_path, suffix):
    contents, path = (GOLDEN / f"gaussian{suffix}").read_bytes(), tmp_path / f"changed{suffix}"
    rng = np.random.default_rng(0)
    for place in [0, 9, len(contents) - 1, *rng.integers(0, len(contents), 60)]:
        changed = bytearray(contents)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(ModelFileError):
            read_artifact(path)
    path.write_bytes(contents[:-100])
    with pytest.raises(ModelFileError, match=r"truncated|SHA-256"):
        read_artifact(path)
    command("inspect", path, code=2)


@pytest.mark.slow
def test_verify_detects_another_model(tmp_path, file, model):
    program = file.with_suffix(".stablehlo")
    assert "largest difference" in command("verify", program, file)
    other = eqx.tree_at(lambda m: m.f.biases[-1], model, replace_fn=lambda bias: bias + 1e-3)
    loca.save(other, tmp_path / "other.safetensors")
    said = words(command("verify", program, tmp_path / "other.safetensors", code=1))
    assert "is more than 1e-05" in said
    assert "another model file" in said
    said = words(command("verify", program, GOLDEN / "deeponet.safetensors", code=1))
    assert "the model takes u (N, 36, 1), y (P, 2), but the program takes u (N, 5, 1), y (P, 1)" in said


@pytest.mark.full
def test_the_command_fixes_queries_on_the_grid_of_a_file(tmp_path, file):
    xarray.Dataset(coords={"y1": np.linspace(0.0, 1.0, 9)}).to_netcdf(tmp_path / "grid.nc", engine="h5netcdf")
    out = tmp_path / "at.stablehlo"
    said = words(command("export", file, "--out", out, "--at", tmp_path / "grid.nc"))
    assert "u (N, 5, 1) → mean (N, 9, 1)" in said
    assert "already exists" in words(command("export", file, "--out", out, code=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "model.pb"}, "ends in .stablehlo or .onnx"),
        ({"path": "model.onnx", "gradients": True}, "ONNX files hold no derivatives"),
        ({"path": "model.stablehlo", "y": np.ones((3, 2))}, "2 columns"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, model, arguments, message):
    with pytest.raises(ValueError, match=message):
        loca.export(model, tmp_path / arguments.pop("path"), **arguments)
    assert not list(tmp_path.iterdir())


def test_a_model_that_does_not_know_its_sensors_needs_an_input(tmp_path, data):
    unknown = small(loca.Samples(data.u, data.y, data.s, domain=data.domain))
    with pytest.raises(ValueError, match=r"u=data\.u"):
        loca.export(unknown, tmp_path / "model.stablehlo")
    assert Program.of(unknown, u=data.u[0]).inputs[0].shape == ("N", 5, 1)


def test_bands_that_are_infinite_are_refused(data, model):
    calibrated = loca.calibrate(model, data)
    assert [port.name for port in Program.of(calibrated, level=0.9).outputs][-1] == "in_distribution"
    with pytest.raises(ValueError, match=r"bands of level 0\.99 are infinite"):
        Program.of(calibrated, level=0.99)


@pytest.mark.parametrize(("python", "message"), [(None, "is not set"), ("/no/python", "does not exist")])
def test_onnx_without_its_environment_says_how_to_make_it(tmp_path, monkeypatch, model, python, message):
    monkeypatch.delenv(VARIABLE, raising=False)
    if python:
        monkeypatch.setenv(VARIABLE, python)
    with pytest.raises(RuntimeError, match=message) as caught:
        loca.export(model, tmp_path / "model.onnx")
    assert f"pip install --no-deps jax2onnx==0.17.1\n    export {VARIABLE}=" in str(caught.value)


def test_metadata_of_any_length_survives_in_a_protocol_buffer():
    # lengths around the sizes where a varint takes another byte
    pairs = {f"{n}": json.dumps("é" * n + "x", ensure_ascii=False) for n in (0, 1, 62, 63, 64, 123, 8190, 8200)}
    contents = with_metadata(b"\x08\x0a", pairs)  # field 1, the number 10
    assert read_metadata(contents, *pairs)[0] == list(pairs.values())
