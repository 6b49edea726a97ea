"""Loggers of a run: the records hold what happened, once, however often the run was interrupted."""

import contextlib
import importlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import wandb_calls

from loca.training import History, Logger, StoppedError, fit

NAMES = ["mlflow", "tensorboard", "wandb"]
DESCRIPTION = {"model": {"kind": "loca", "widths": [8, 8]}, "seed": 0}

pytestmark = [
    # MLflow on SQLAlchemy 2.1: in its own mappings, out of our hands
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),
]


def read_tensorboard(directory):
    """Every scalar and text in the event files, with all checksums verified."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    scalars, texts = [], []
    for path in sorted((directory / "logs/tensorboard").iterdir()):
        with path.open("rb") as file:
            while header := file.read(12):
                length, check = struct.unpack("<QI", header)
                assert check == masked_crc32c(header[:8])
                contents = file.read(length)
                assert struct.unpack("<I", file.read(4)) == (masked_crc32c(contents),)
                event = Event.FromString(contents)
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        scalars.append((value.tag, event.step, value.simple_value))
                    else:
                        texts.append(value.tensor.string_val[0].decode())
    return scalars, [json.loads(text) for text in texts]


def read_wandb(directory):
    """What wandb was given by the processes observed; `wandb_calls` lies beside the run."""
    calls = wandb_calls.read(directory.with_name("wandb_calls"))
    begun = [call for call in calls if "init" in call]
    assert len({call["init"] for call in begun}) == 1, "for wandb these are several runs"
    scalars = [(name, call["step"], call["row"][name]) for call in calls if "row" in call for name in call["row"]]
    # every part of a run carries the config
    return scalars, [json.loads(config) for config in {json.dumps(call["config"], sort_keys=True) for call in begun}]


def read_mlflow(directory):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{directory}/logs/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("loca").experiment_id])
    names = list(run.data.metrics)
    found = [metric for name in names for metric in client.get_metric_history(run.info.run_id, name)]
    return [(metric.key, metric.step, metric.value) for metric in found], [run.data.params]


READ = {"mlflow": read_mlflow, "tensorboard": read_tensorboard, "wandb": read_wandb}
DESCRIBED = {
    "mlflow": {"model.kind": "loca", "model.widths": "[8, 8]", "seed": "0"},
    "tensorboard": DESCRIPTION,
    "wandb": DESCRIPTION,
}


class Expected:
    """What a record must hold: every step once, as it was when it was first reached."""

    def __init__(self, name):
        self.stored = (lambda value: float(np.float32(value))) if name == "tensorboard" else float
        self.scalars = {}
        self.last = -1

    def __call__(self, progress):
        if progress.step > self.last:
            self.last = progress.step
            self.scalars["loss", progress.step] = self.stored(progress.loss)
            self.scalars["steps_per_second", progress.step] = self.stored(progress.steps_per_second)

    def with_history(self, path):
        moments = History.read(path)
        assert len(moments) > 0
        mean = {("loss", moment.step): self.stored(moment.loss) for moment in moments}
        error = {("validation", moment.step): self.stored(moment.validation) for moment in moments}
        return self.scalars | mean | error


def as_mapping(scalars):
    counts = Counter((name, step) for name, step, _ in scalars)
    assert max(counts.values()) == 1, "a step was written twice"
    return {(name, step): value for name, step, value in scalars}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """Nothing may depend on where the process runs, or be left there."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    yield
    assert not list((tmp_path / "elsewhere").iterdir())


class CrashError(Exception):
    pass


@pytest.mark.full
def test_a_run_that_is_stopped_and_crashes_has_one_record(model, data, tmp_path, monkeypatch):
    directory = tmp_path / "a run"
    monkeypatch.setattr("wandb.init", importlib.import_module("wandb").init)  # so that it is restored
    wandb_calls.observe(tmp_path / "wandb_calls")
    expected, reached = [Expected(name) for name in NAMES], []

    def part(interruption):
        arguments = {"steps": 40, "batch_size": 20, "validate": data, "every": 10, "directory": directory}
        with contextlib.ExitStack() as open_loggers:
            kept = [open_loggers.enter_context(Logger(name, directory, DESCRIPTION)) for name in NAMES]
            callbacks = [lambda progress: reached.append(progress.step), *expected, *kept, interruption]
            fit(model, data, **arguments, callbacks=callbacks, checkpoint_seconds=1e6)

    def stop(progress):
        if progress.step >= 10:
            os.kill(os.getpid(), signal.SIGTERM)

    def crash(progress):
        if progress.step >= 30:
            raise CrashError

    with pytest.raises(StoppedError):
        part(stop)
    with pytest.raises(CrashError):
        part(crash)
    crashed = len(reached)
    part(lambda progress: None)
    assert reached[crashed] < 30, "no step was done again: this test tests nothing"

    for name, what in zip(NAMES, expected, strict=True):
        scalars, descriptions = READ[name](directory)
        assert as_mapping(scalars) == what.with_history(directory / "history.jsonl")
        assert descriptions == [DESCRIBED[name]]

    before = sorted((directory / "logs").rglob("*"))
    part(lambda progress: None)  # all is done
    assert sorted((directory / "logs").rglob("*")) == before


LOCAL = re.compile(r"127\.0\.0\.1|localhost|socket\.connect /")
"""This machine, by number, by name, or a socket in its file system."""

CHILD = """
import os, pathlib, sys

directory, calls, first, last, end, *names = sys.argv[1:]

def note(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        where = arguments[1] if event == "socket.connect" else arguments[0]
        with open(calls, "a") as file:
            file.write(f"{event} {where}\\n")

sys.addaudithook(note)
from loca.training import History, Logger, Moment, Progress

assert not {"tensorboardX", "wandb", "mlflow", "sqlalchemy"} & set(sys.modules), "importing loca must stay quick"
if "wandb" in names:
    import wandb_calls
    wandb_calls.observe(pathlib.Path(directory).with_name("wandb_calls"))
kept = [Logger(name, directory, {"seed": 0}) for name in names]
for step in range(int(first), int(last) + 1):
    moments = tuple(Moment(k, 2.0 / k, None, 1.0) for k in range(10, step + 1, 10))
    for logger in kept:
        logger(Progress(step, 100, 1.0 / step, float(step), History(moments)))
if end == "kill":
    os.kill(os.getpid(), 9)
for logger in kept:
    logger.__exit__(None, None, None)
"""


PROXIED = re.compile(r"CONNECT |[A-Z]+ https?://")
"""A request for another machine. Clients of other tests may come to a port that their server had before."""


def requests_to(proxy):
    """The requests for other machines that wait at a proxy, by their first lines."""
    lines = []
    proxy.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = proxy.accept()
            with connection, connection.makefile("rb") as file, contextlib.suppress(OSError):
                connection.settimeout(5.0)
                lines.append(file.readline(1000).decode(errors="replace"))
    return [line for line in lines if PROXIED.match(line)]


@pytest.mark.full
def test_killed_outright_a_record_loses_nothing_and_nobody_is_called(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # that of this process, which would outlive the killed
    with socket.create_server(("127.0.0.1", 0)) as proxy:  # where the libraries' own processes would go, too
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(variable, address)
            monkeypatch.setenv(variable.lower(), address)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("no_proxy", "")

        def run(*arguments):
            (tmp_path / "wandb_calls").unlink(missing_ok=True)
            line = [sys.executable, "-W", "ignore", "-c", CHILD, str(tmp_path / "run"), str(calls), *arguments, *NAMES]
            path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
            return subprocess.run(line, timeout=120, env={**os.environ, "PYTHONPATH": path}).returncode

        # a logger that comes late learns of the moments before
        assert run("12", "25", "kill") == -signal.SIGKILL
        assert run("16", "30", "kill") == -signal.SIGKILL
        assert run("26", "40", "end") == 0  # only its calls of wandb count: the killed processes may have lost theirs
        assert requests_to(proxy) == []
    # wandb talks to its own service, on this machine
    assert [line for line in calls.read_text().splitlines() if not LOCAL.search(line)] == []

    for name in NAMES:
        stored = Expected(name).stored
        expected = {("loss", step): stored(1 / step) for step in range(12, 41)}
        expected |= {("steps_per_second", step): float(step) for step in range(12, 41)}
        expected |= {("loss", step): stored(2 / step) for step in (10, 20, 30, 40)}
        scalars, descriptions = READ[name](tmp_path / "run")
        assert as_mapping(scalars) == expected
        assert len(descriptions) == 1
    *killed, ended = sorted((tmp_path / "run/logs/wandb").glob("offline-run-*/*.wandb"))  # named by their start
    assert len(killed) == 2
    losses = [(2 if step % 10 == 0 else 1) / step for step in range(12, 41)]  # at a moment its own
    assert all(str(loss).encode() in ended.read_bytes() for loss in losses)


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_library_says_how_to_install_it(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, {"tensorboard": "tensorboardX"}.get(name, name), None)
    with pytest.raises(ImportError, match=rf"pip install loca-jax\[{name}\]"):
        Logger(name, tmp_path / "run")
    assert not (tmp_path / "run").exists()
