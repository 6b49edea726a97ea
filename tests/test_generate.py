"""Generating data: the same samples with any workers, however often and wherever the run is killed."""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import typer

from commands import command, words
from crashing import Crash, crash_at, forked
from loca import durable, workers
from loca.cli.arguments import create_problem
from loca.data import Store, Variable
from loca.data import store as stores
from loca.domains import Box
from loca.durable import lock
from loca.problems import Problem, generate
from loca.problems.problem import generators
from loca.typing import Key

LOCA = Path(sys.executable).with_name("loca")


@dataclasses.dataclass(frozen=True)
class Sums(Problem):
    """Random numbers and their running sums."""

    size: int = 8
    scale: float = 1.0

    citation = "nobody"
    domain = Box.unit(1)
    inputs = (Variable("rate", "m/s"),)
    outputs = (Variable("way", "m"), Variable("square"))

    @property
    def x(self):
        return np.linspace(0.0, 1.0, self.size)[:, None]

    @property
    def y(self):
        return self.x

    def pairs(self, key: Key, rows: Sequence[int]):
        u = np.stack([self.scale * rng.standard_normal((self.size, 1)) for rng in generators(key, rows)])
        return u, np.concatenate([u.cumsum(1), u**2], axis=-1)


@dataclasses.dataclass(frozen=True)
class Deadly(Sums):
    """Kills the process that computes sample 7, as long as there is a file that says so."""

    sword: str = ""

    def pairs(self, key: Key, rows: Sequence[int]):
        if 7 in rows and Path(self.sword).exists():
            with contextlib.suppress(FileNotFoundError):
                if Path(self.sword).read_text() == "once":
                    Path(self.sword).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().pairs(key, rows)


@pytest.fixture
def small_shards(monkeypatch):
    """Seven shards for 40 samples."""
    monkeypatch.setattr("loca.problems.problem.PIECES", 7)


@pytest.fixture
def undisturbed(tmp_path, small_shards):
    return generate(Sums(), 40, tmp_path / "undisturbed.zarr").digest


def test_a_store_holds_what_the_problem_gives(tmp_path, small_shards):
    problem = Sums(size=5)
    store = generate(problem, 40, tmp_path / "sums.zarr", seed=3)
    expected = problem.sample(jax.random.key(3), 40)
    assert jax.tree.all(jax.tree.map(np.array_equal, store.load(), expected))
    assert (store.inputs, store.outputs, store.domain) == (expected.inputs, expected.outputs, expected.domain)
    assert store.provenance["problem"] == "Sums"
    assert store.provenance["arguments"] == {"size": 5, "scale": 1.0}
    assert (store.provenance["seed"], store.provenance["citation"]) == (3, "nobody")
    assert str(tmp_path) not in json.dumps(store.description)
    assert np.array_equal(store.label(np.asarray(expected.s)).way[7], np.asarray(expected.s)[7, :, 0])


def test_more_samples_begin_with_the_same_ones(tmp_path):
    few, many = (generate(Sums(), count, tmp_path / f"{count}.zarr") for count in (33, 70))
    assert jnp.array_equal(few.load().s, many.load(slice(33)).s)


def test_the_samples_do_not_depend_on_the_executor(tmp_path, undisturbed):
    with ThreadPoolExecutor(3) as executor:
        assert generate(Sums(), 40, tmp_path / "threads.zarr", executor=executor).digest == undisturbed


@pytest.mark.full
def test_a_killed_worker_is_replaced(tmp_path, undisturbed):
    sword = tmp_path / "sword"
    sword.write_text("once")
    store = generate(Deadly(sword=str(sword)), 40, tmp_path / "sums.zarr", workers=2)
    assert not sword.exists()
    assert store.digest == undisturbed


@pytest.mark.full
def test_workers_that_always_die_end_the_run_and_lose_nothing(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setattr(workers, "DEATHS", 1)
    sword = tmp_path / "sword"
    sword.write_text("always")
    path = tmp_path / "sums.zarr"
    with pytest.raises(RuntimeError, match="out of memory"):
        generate(Deadly(sword=str(sword)), 40, path, workers=2)
    assert not path.exists()
    sword.unlink()
    assert generate(Deadly(sword=str(sword)), 40, path).digest == undisturbed


CHANGES = ((stores, "write_rows"), (durable, "sync"), (durable, "sync_tree"), (Store, "open"))
"""What changes the disk here, besides moving and removing files."""

STRIDE = 1 if os.environ.get("LOCA_FULL") else 11
"""The full tests crash at every moment, the gate at every eleventh."""


@pytest.mark.slow
def test_crashing_before_any_change_of_the_disk_changes_nothing(tmp_path, undisturbed, monkeypatch):
    """All moments at which a file appears, moves or disappears; the same call then resumes."""
    moment = 0
    while True:
        path = tmp_path / f"{moment}.zarr"
        with monkeypatch.context() as patch:
            changes = crash_at(patch, moment, *CHANGES)
            try:
                generate(Sums(), 40, path)
            except Crash:
                assert changes() > moment
            else:
                break
        store = generate(Sums(), 40, path)
        assert store.digest == undisturbed
        store.verify()
        assert not path.with_name(f"{moment}.zarr.partial").exists()
        assert not list(path.rglob("*.partial")) + list(path.rglob("*.__lock"))
        moment += STRIDE
    assert moment > 30  # shards, digests, the last rename, the removal of the partial store


def test_a_crash_before_a_shard_is_written_loses_nothing(tmp_path, undisturbed, monkeypatch):
    def crash(*_):
        raise Crash

    path = tmp_path / "sums.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(stores, "write_rows", crash)
        with pytest.raises(Crash):
            generate(Sums(), 40, path)
    store = generate(Sums(), 40, path)
    store.verify()
    assert store.digest == undisturbed


def test_other_arguments_are_refused(tmp_path, small_shards):
    def crash_after_two_pieces(done, total):
        if done == 12:
            raise Crash

    path = tmp_path / "sums.zarr"
    with pytest.raises(Crash):
        generate(Sums(), 40, path, progress=crash_after_two_pieces)
    begun = path.with_name("sums.zarr.partial")
    for problem, count, seed, said in (
        (Sums(), 40, 1, "seed is 0, now requested: 1"),
        (Sums(scale=2.0), 40, 0, "arguments.scale"),
        (Sums(), 400, 0, "count is 40, now requested: 400"),  # nothing that depends on it
    ):
        with pytest.raises(FileExistsError, match=f"partial was started with other arguments .*{said}.*delete it"):
            generate(problem, count, path, seed=seed)
    assert begun.exists()
    complete = generate(Sums(), 40, path)
    modified = (path / "zarr.json").stat().st_mtime_ns
    assert generate(Sums(), 40, path, workers=2).digest == complete.digest  # says it is there and does nothing
    assert (path / "zarr.json").stat().st_mtime_ns == modified
    with pytest.raises(FileExistsError, match=r"holds something else .*seed is 0, now requested: 1.*another name"):
        generate(Sums(), 40, path, seed=1)


def test_two_runs_do_not_write_at_once(tmp_path):
    path = tmp_path / "sums.zarr"
    with lock(path.with_name("sums.zarr.partial")), pytest.raises(RuntimeError, match="another process"):
        generate(Sums(), 40, path)
    assert len(generate(Sums(), 40, path)) == 40


def test_the_command_generates_once(tmp_path):
    path = tmp_path / "made.zarr"
    line = ("generate", "antiderivative", "--count", 20, "--out", path, "--set", "sensors=30", "--set", "length=1")
    first = command(*line)
    assert "20/20 samples" in first
    assert "is complete: 20 samples" in first
    assert "already exists: 20 samples" in command(*line)
    assert "seed is 0, now requested: 7" in command(*line, "--seed", 7, code=1)
    assert Store.open(path).provenance["arguments"].items() >= {"sensors": 30, "length": 1.0}.items()


def test_the_command_takes_problems_of_the_user(tmp_path, undisturbed):
    line = ("--count", 40, "--out", tmp_path / "sums.zarr")
    command("generate", "test_generate:Sums", *line)
    assert Store.open(tmp_path / "sums.zarr").digest == undisturbed
    assert "expected a subclass of" in words(command("generate", "math:sqrt", *line, code=2))


@dataclasses.dataclass(frozen=True)
class Needy(Sums):
    """Has no use without an argument."""

    path: str = dataclasses.field(kw_only=True)
    side: Literal["left", "right"] = "left"
    limits: tuple[float, float] | None = None


def test_the_command_asks_for_what_has_no_default():
    with pytest.raises(typer.BadParameter, match="needs --set path="):
        create_problem(Needy, ["size=3"])
    with pytest.raises(typer.BadParameter, match=r"size \(8\), scale \(1.0\), .*path \(required\)"):
        create_problem(Needy, ["width=3"])
    with pytest.raises(typer.BadParameter, match="side: input should be 'left' or 'right', got 'up'"):
        create_problem(Needy, ["path=a.nc", "side=up"])
    assert create_problem(Needy, ["path=a.nc", "scale=2", "side=right", "limits=[0.5, 1.0]"]) == (
        Needy(path="a.nc", scale=2.0, side="right", limits=(0.5, 1.0))
    )


def test_the_command_converts_an_official_part(tmp_path):
    with h5py.File(tmp_path / "flat.hdf5", "w") as file:  # as PDEBench publishes it, which tests on the first tenth
        file["tensor"] = np.broadcast_to(np.float32(np.arange(20))[:, None, None], (20, 2, 3))
        file["x-coordinate"], file["t-coordinate"] = np.float32([0, 1, 2]), np.float32([0, 1])
    command("convert", tmp_path / "flat.hdf5", tmp_path / "test.zarr", "--split", "test")
    assert Store.open(tmp_path / "test.zarr").load().u[:, 0, 0].tolist() == [0.0, 1.0]


DARCY = ["generate", "darcy", "--count", "500", "--set", "resolution=48", "--out"]


def run(*line):
    """What the command says, in a process of its own."""
    done = subprocess.run([LOCA, *line], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def digest(tmp_path_factory):
    """Of what a run gives that nobody disturbs."""
    path = tmp_path_factory.mktemp("undisturbed") / "darcy.zarr"
    run(*DARCY, str(path))
    return Store.open(path).digest


@pytest.mark.full
@pytest.mark.parametrize(("processes", "longest", "times"), [(1, 1.5, 20), (2, 3.5, 20)])
def test_killed_at_random_moments(processes, longest, times, digest, tmp_path):
    """SIGKILL for all processes, or for the first one only, whose orphans then meet the next run."""
    path, log = tmp_path / "darcy.zarr", tmp_path / "log"
    line = [*DARCY, str(path), "--workers", str(processes)]

    rng = random.Random(processes)
    kills = 0
    with forked(log) as (start, status_of):
        while kills < times:
            pid = start(line)
            time.sleep(rng.uniform(0.05, longest))
            with contextlib.suppress(ProcessLookupError):
                if rng.random() < 0.5:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)
            status = status_of()
            if status == signal.SIGKILL:
                kills += 1
            else:  # it was quicker
                assert status == 0, log.read_text()
                assert Store.open(path).digest == digest
                shutil.rmtree(path)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:  # the orphans of the last run notice that they are
        try:
            os.killpg(pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("workers outlive the process that started them")

    assert digest in run(*line)
    Store.open(path).verify()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["darcy.zarr", "log"]
