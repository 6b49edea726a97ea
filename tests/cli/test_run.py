"""From data to a model to predictions, by commands; and configurations that are invalid."""

import importlib
import json
import random
import re
import signal
import subprocess
import sys

import equinox as eqx
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

from commands import command, words
from loca import losses, runs
from loca.cli.app import app
from loca.configuration import check_configuration
from loca.data import Samples, Store
from loca.domains import area_weights
from loca.evaluation import Report
from loca.metrics import relative_l2
from loca.problems import Antiderivative, generate
from loca.runs import ConfigurationError, execute, read_configuration
from loca.saving import inspect, load, save
from loca.training import StoppedError
from loca.training.checkpoints import Checkpoints

pytestmark = pytest.mark.slow

PROBLEM = Antiderivative(length=0.3, sensors=40, queries=20)
TOML = """
[data]
path = "{path}"
labels = 15

[model]
num_features = 10
lift_size = 8
lift_widths = [16]
proposal_widths = [16]
feature_widths = [16]

[training]
steps = 400
batch_size = 40
every = 200
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    generate(PROBLEM, 150, place / "train.zarr")
    generate(PROBLEM, 30, place / "test.zarr", seed=1)
    (place / "run.toml").write_text(TOML.format(path=place / "train.zarr"))
    return place


@pytest.fixture(scope="module")
def place(files):
    place = files
    line = ["train", place / "run.toml", "--out", place / "run", "--steps", 300, "--test", place / "test.zarr"]
    (place / "said.txt").write_text(command(*line))
    return place


def test_a_run_leaves_a_model_that_has_learned(place):
    header = inspect(place / "run/model.safetensors")
    assert header.provenance["training"]["steps"] == 300  # an option overrides the file
    assert header.provenance["model"]["num_features"] == 10
    assert header.inputs == PROBLEM.inputs
    assert 0.0 < header.metrics["validation_relative_l2"] < 0.5


def test_evaluate_and_predict_agree_with_the_model(place):
    command("evaluate", place / "run", place / "test.zarr", "--out", place / "report.json")
    command("predict", place / "run", place / "test.zarr", "--out", place / "prediction.nc")
    test = Store.open(place / "test.zarr").load()
    prediction = load(place / "run/model.safetensors").predict(test.u, test.y)
    errors = Report.load(place / "report.json").errors["relative_l2"]
    np.testing.assert_allclose(errors, relative_l2(prediction, test.s), rtol=1e-4)
    written = xarray.open_dataset(place / "prediction.nc", engine="h5netcdf")
    np.testing.assert_allclose(written["antiderivative"], prediction[..., 0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(written["y1"], PROBLEM.y[:, 0])


def test_a_run_with_test_data_is_evaluated_at_once(place):
    command("evaluate", place / "run", place / "test.zarr", "--out", place / "report.json")
    assert Report.load(place / "run/report.json") == Report.load(place / "report.json")
    metrics = inspect(place / "run/model.safetensors").metrics
    mean = Report.load(place / "report.json").distribution().mean
    assert metrics["test_relative_l2"] == pytest.approx(mean, rel=1e-6)
    assert "Errors of 30 functions" in (place / "said.txt").read_text()


def test_functions_are_trained_on_or_validated_on(files):
    data = runs.load_data(read_configuration(files / "run.toml", {}).data, 0)
    assert (len(data.train), len(data.validation)) == (135, 15)
    found = np.concatenate([data.train.u, data.validation.u])
    assert len(np.unique(found, axis=0)) == 150


def test_functions_in_messages_have_their_numbers_in_the_file(tmp_path):
    u = np.ones((9, 4, 1), "float32")
    u[3, 2] = np.nan
    np.savez(tmp_path / "nan.npz", u=u, s=np.ones((9, 5, 1)), x=np.linspace(0, 1, 4), y=np.linspace(0, 1, 5))
    said = command("train", tmp_path / "nan.npz", "--out", tmp_path / "run", "--seed", 1, code=1)
    assert "function 3, input 'u'" in words(said)


@pytest.mark.parametrize(("loss", "weights"), [("relative_l2", "area"), ("mean_squared", "equal")])
def test_training_minimizes_the_configured_loss(loss, weights, files, tmp_path, monkeypatch):
    asked = {}

    def fit(model, data, **arguments):
        asked.update(arguments)
        raise StoppedError("stopped")

    monkeypatch.setattr("loca.runs.fit", fit)
    with pytest.raises(StoppedError):
        execute(read_configuration(files / "run.toml", {"training": {"loss": loss, "weights": weights}}), tmp_path)
    assert asked["loss"] is getattr(losses, loss)
    if weights == "area":
        np.testing.assert_array_equal(asked["weights"], area_weights(PROBLEM.domain, PROBLEM.y))
    else:
        assert asked["weights"] is None


def test_options_of_training_override_the_file(tmp_path, monkeypatch):
    (tmp_path / "run.toml").write_text('[data]\npath = "a.zarr"\n[training]\nseed = 1\nsteps = 2')
    data = {"path": "d.zarr", "labels": 3, "test": "t.zarr", "stream": True}
    model = {"kind": "deeponet"}
    numbers = {"steps": 5, "batch_size": 6, "rate": 0.01, "seed": 7}
    choices = {"optimizer": "paper", "loss": "relative_l2", "precision": "bfloat16", "loggers": ("wandb",)}
    expected = {"data": data, "model": model, "training": {**numbers, **choices}}
    options = {"path": "--data", "kind": "--model", "loggers": "--log"}
    line = ["--stream"]
    for table in expected.values():
        for name, value in table.items():
            if value is not True:
                option = options.get(name, f"--{name.replace('_', '-')}")
                line += [option, value[0] if isinstance(value, tuple) else value]
    asked = []

    def execute(configuration, directory, **options):
        asked.append(configuration)
        raise StoppedError("stopped")

    monkeypatch.setattr("loca.runs.execute", execute)
    command("train", tmp_path / "run.toml", "--out", tmp_path / "run", *line, code=143)
    assert asked == [check_configuration(expected, "test")]


def test_what_would_fill_the_memory_streams(files, monkeypatch):
    def is_streamed(memory):
        monkeypatch.setattr(runs, "physical_memory", lambda: memory)
        return not isinstance(runs.load_data(read_configuration(files / "run.toml", {}).data, 0).train, Samples)

    functions, numbers = 135, 40 + 15
    assert is_streamed(2 * 4 * functions * numbers - 1)
    assert not is_streamed(2 * 4 * functions * numbers)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ["--out", "r", "--data", "d.zarr", "--model", "cnn"],
            "--model: expected one of 'loca', 'deeponet', 'fno', 'gaussian', 'best', got 'cnn'",
        ),
        (["--out", "r", "--data", "nothing.zarr"], "nothing.zarr"),
        (["--resume", "nowhere"], "nowhere holds no run"),
    ],
)
def test_an_invalid_run_is_refused(line, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in words(command("train", *line, code=1))
    assert list(tmp_path.iterdir()) == []  # a mistyped path leaves nothing behind


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--resume", "r", "--batch-size", "3", "--data", "d"], "accepts --steps only; leave out --data, --batch-size"),
        (["--data", "d.zarr", "--out", "run.zarr"], "expected the name of a directory, got 'run.zarr'"),
    ],
)
def test_a_command_line_that_contradicts_itself_is_refused(line, message):
    assert message in words(command("train", *line, code=2))


@pytest.mark.parametrize(
    ("table", "field", "value", "message"),
    [
        ("data", "path", 3, "data.path: input should be a valid string, got 3"),
        ("data", "inputz", ["a"], "data.inputz is unknown; did you mean inputs?"),
        ("model", "lift_widths", [16, "a"], "model.lift_widths[1]: input should be a valid integer, got 'a'"),
        ("training", "seed", 2**40, "training.seed: input should be less than 2147483648, got 1099511627776"),
    ],
)
def test_wrong_fields_are_described_in_plain_words(table, field, value, message):
    described = {"data": {"path": "d.zarr"}, "model": {"kind": "loca"}, "training": {}}
    described.setdefault(table, {})[field] = value
    with pytest.raises(ConfigurationError) as refusal:
        check_configuration(described, "run.toml: ")
    assert str(refusal.value).startswith(f"run.toml: {message}")


@pytest.mark.full
def test_steps_extend_a_run_or_are_refused(place):
    """With the paper's optimizer a longer run continues a shorter one; the default's rate depends on the steps."""
    refusal = command("train", "--resume", place / "run", "--steps", 400, code=1)
    assert "has 300 steps, got --steps 400: the learning rate of its optimizer falls to zero" in words(refusal)
    line = ["train", place / "run.toml", "--optimizer", "paper"]
    command(*line, "--out", place / "short", "--steps", 20)
    assert "not shortened" in words(command("train", "--resume", place / "short", "--steps", 10, code=1))
    command("train", "--resume", place / "short", "--steps", 40)
    command(*line, "--out", place / "long", "--steps", 40)
    assert json.loads((place / "short/run.json").read_text())["training"]["steps"] == 40
    extended, direct = (load(place / run / "model.safetensors") for run in ("short", "long"))
    assert extended == direct


def test_a_run_that_cannot_start_leaves_nothing_behind(place, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)  # as if it were not installed
    data, out = place / "train.zarr", tmp_path / "run"
    output = command("train", "--data", data, "--out", out, "--log", "tensorboard", code=1)
    assert "loca-jax[tensorboard]" in words(output)
    assert list(tmp_path.iterdir()) == []


WRONG = [-1, 0, -0.5, "", [], {}, None, [[]], {"a": 1}, float("nan"), float("inf"), "x" * 1000, 10**400, True]
"""Values that hardly any field of a configuration accepts."""


def test_five_hundred_wrong_configurations_are_refused_or_accepted():
    good = {
        "data": {"path": "d.zarr"},
        "model": {"kind": "loca", "num_features": 10},
        "training": {"steps": 10, "batch_size": 5, "seed": 0},
    }
    rng, refused = random.Random(0), 0
    for _ in range(500):
        described = json.loads(json.dumps(good))
        table = rng.choice([*described, "extra"])
        if rng.random() < 0.2:
            described[table] = rng.choice(WRONG)
        else:
            fields = described.setdefault(table, {})
            fields[rng.choice([*fields, "optimizer", "unknown", "lift_widths", "labels", "every"])] = rng.choice(WRONG)
        try:
            check_configuration(described, "test")
        except ConfigurationError:
            refused += 1
    assert refused > 300


def test_a_file_that_is_no_toml_is_refused(tmp_path):
    for content in (b"[data", b"\xff\xfe\x00", b"a = " + b"[" * 5000):
        (tmp_path / "run.toml").write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"run\.toml"):
            read_configuration(tmp_path / "run.toml", {})


OWN = """
import loca

class Doubled(loca.kernels.Kernel):
    base: loca.kernels.RBF

    def __call__(self, *points):
        return 2.0 * self.base(*points)

    def matrix(self, *points):
        return 2.0 * self.base.matrix(*points)
"""


def test_models_with_classes_of_the_user(place, tmp_path, monkeypatch):
    """`--class` finds modules in the current directory, and explains what is missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_kernels.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_kernels")
    model, header = load(place / "run/model.safetensors"), inspect(place / "run/model.safetensors")
    save(eqx.tree_at(lambda m: m.k, model, own.Doubled(model.k)), "own.safetensors", data=header)
    line = ["evaluate", "own.safetensors", place / "test.zarr", "--out", "report.json"]
    command(*line, "--class", "own_kernels:Doubled")
    assert (tmp_path / "report.json").exists()
    assert "LOCA" in command("inspect", "own.safetensors", "--class", "own_kernels:Doubled")

    assert "Doubled" in command(*line, code=2)
    for name, message in {
        "own_kernels.Doubled": "expected MODULE:NAME",
        "own_kernels:Tripled": "module 'own_kernels' has no attribute 'Tripled'",
    }.items():
        assert message in words(command(*line, "--class", name, code=2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.full)]
)
def test_an_interrupted_command_saves_and_ends_with_the_code_of_the_signal(number, code, place, tmp_path):
    """In a process of its own, as a shell sees it."""
    start = [sys.executable, "-c", "from loca.cli import main; main()", "train"]
    line = [*start, str(place / "run.toml"), "--out", "run", "--steps", "1000000"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("step ")  # it trains
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert re.fullmatch(
        r"run: loading\nrun: \d+ functions .* for validation\n"
        r"stopped at step \d+ and saved in run; continue with `loca train --resume run`\n",
        error,
    )
    assert Checkpoints(tmp_path / "run/checkpoints").steps()


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError("no memory left"), 1, "no memory left"),
        (KeyError("k"), 1, "KeyError: 'k' This error was not expected. With LOCA_DEBUG=1 it prints where"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_a_message_unless_a_traceback_is_requested(error, code, message, place, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr("loca.saving.inspect", fail)
    assert words(command("inspect", place / "run", code=code)).strip().startswith(f"loca inspect: {message}")
    if code != 1:
        return
    monkeypatch.setenv("LOCA_DEBUG", "1")
    result = CliRunner().invoke(app, ["inspect", str(place / "run")])
    assert result.exception is error
