"""Tests of a claim: the same numbers again, through kills and by several workers; verdicts that can fail."""

import dataclasses
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

import loca
from loca.data import Variable
from loca.evaluation import Report
from loca.problems import Antiderivative, Darcy, generate
from loca_reproduction.claims import CLAIMS, Preset, Reproduction, Results
from loca_reproduction.claims.claim import RESULT_FILE
from loca_reproduction.problems import MechanicalMNIST
from loca_reproduction.runs import LEARNED, Run, RunPool, RunResult, result_of
from loca_reproduction.sources import MIN_CACHED_BLOCKS, TEST_SEED, Drawn, Unseen, draw
from reproducing import command
from small import Small, reproduce_small

SUMS = Antiderivative(sensors=20, queries=5)
"""A problem whose functions are quickly drawn."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("study")
    return directory, reproduce_small(directory)


def written(directory: Path) -> dict:
    """What a reproduction wrote, without what may differ between repetitions."""
    content = json.loads((directory / "R0-quick" / RESULT_FILE).read_text())
    return {name: value for name, value in content.items() if name != "made"}


class Invented(RunPool):
    """Validation errors by rate, without any training."""

    def run_all(self, runs):
        report = Report((Variable("s"),), {"relative_l2": np.ones((1, 1))})
        return {run: RunResult(1, abs(run.rate - 4e-3), 0.0, {"test": report}) for run in runs}


class ThreeRates(Small):
    """The rate in the middle is the best."""

    shows_fields = False
    rates: Mapping[Preset, Sequence[float]] = {"quick": (1e-3, 4e-3, 1.6e-2)}


def test_the_rate_with_the_least_validation_error_is_chosen(tmp_path):
    rows = Results.from_json(ThreeRates().measure("quick", None, Invented(tmp_path)).numbers["rows"])
    assert [(row.seed, row.rate) for row in rows.select(model="DeepONet")] == [(0, 4e-3), (1, 4e-3)]


def test_every_seed_has_its_own_first_weights_and_batches(tmp_path, monkeypatch):
    monkeypatch.setitem(LEARNED, "LOCA", lambda setting, data, *, key: jax.random.key_data(key).tolist())
    started = []

    def fit(key, data, *, seed, **_):
        started.append((key, seed))
        raise StopIteration

    monkeypatch.setattr(loca, "fit", fit)
    source = Drawn(SUMS, 2, validation=1, test=1, same=True)  # the functions are the same
    for seed in (0, 1):
        with pytest.raises(StopIteration):
            Run("LOCA", source, "antiderivative", seed, 1, 1e-3, 2).execute(tmp_path, tmp_path)
    (first, _), (second, _) = started
    assert first != second
    assert [seed for _, seed in started] == [0, 1]


def test_validation_functions_are_those_after_the_training_functions(tmp_path):
    data = Drawn(SUMS, 6, validation=3, test=1).load(0, tmp_path)
    drawn = SUMS.sample(jax.random.key(0), 9)
    np.testing.assert_array_equal(data.train.u, drawn.u[:6])
    np.testing.assert_array_equal(data.validation.u, drawn.u[6:])


def test_noise_is_where_the_source_puts_it(tmp_path):
    tests = (("clean", Unseen()), ("noisy", Unseen(noise=0.5)))
    for train_noise in (0.0, 0.25):
        source = Drawn(SUMS, 6, train_noise=train_noise, tests=tests, validation=3, test=9)
        data, drawn, unseen = (
            source.load(0, tmp_path), SUMS.sample(jax.random.key(0), 9), SUMS.sample(jax.random.key(TEST_SEED), 9)
        )  # fmt: skip
        pairs = [(data.train, drawn.u[:6]), (data.validation, drawn.u[6:])]
        pairs += [(data.tests["clean"], unseen.u), (data.tests["noisy"], unseen.u)]
        for (samples, u), noise in zip(pairs, (train_noise, train_noise, 0.0, 0.5), strict=True):
            # 60 numbers or more: their standard deviation is known to 10 %
            assert np.std(samples.u - u) == pytest.approx(noise, rel=0.3)


@pytest.mark.full
def test_runs_that_need_the_same_functions_wait_for_one_of_them_to_compute_them(tmp_path, monkeypatch):
    generated = []

    def generate_alone(*arguments, workers, **options):
        generated.append(arguments)
        return generate(*arguments, **options)

    monkeypatch.setattr("loca_reproduction.sources.generate", generate_alone)
    count = MIN_CACHED_BLOCKS * SUMS.block + 1
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: draw(SUMS, count, 0, tmp_path), range(2))
    np.testing.assert_array_equal(first.s, second.s)
    assert len(generated) == 1


@pytest.mark.full
def test_a_trained_model_is_measured_with_another_metric_without_training_it_again(undisturbed, tmp_path):
    directory, found = undisturbed
    chosen = Results.from_json(found.numbers["rows"]).select(model="DeepONet", seed=1)[0]
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    (condition,) = Small().conditions("quick")
    before, after = (
        result_of(tmp_path, condition.run("DeepONet", 1, chosen.rate, ("relative_l2", *more)))
        for more in ([], ["rmse"])
    )
    assert after.seconds == before.seconds  # a clock would not show the same twice
    assert after.reports["test"].errors.keys() == {"relative_l2", "rmse"}


@pytest.mark.full
def test_what_is_written_is_rebuilt_from_the_json_alone(undisturbed, tmp_path):
    directory, _ = undisturbed
    content = json.loads((directory / "R0-quick" / RESULT_FILE).read_text())
    Reproduction.from_json(content, {"R0": Small()}).write(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (directory / "R0-quick" / path.name).read_bytes(), path.name


@pytest.mark.full
def test_a_second_run_and_several_workers_find_the_same(undisturbed, tmp_path):
    reproduce_small(tmp_path, workers=2)
    first, second = written(undisturbed[0]), written(tmp_path)
    assert first["verdict"]["answer"] == second["verdict"]["answer"]
    for a, b in zip(first["numbers"]["rows"], second["numbers"]["rows"], strict=True):
        assert (a["model"], a["rate"]) == (b["model"], b["rate"])
        np.testing.assert_allclose(  # workers have one thread each, so sums may come in another order
            a["report"]["errors"]["relative_l2"], b["report"]["errors"]["relative_l2"], rtol=1e-2
        )


@pytest.mark.full
def test_killed_several_times_it_finds_the_same(undisturbed, tmp_path):
    """Each time at a random moment, some of them while a model is trained."""
    rng, unfinished = random.Random(0), 0
    for _ in range(5):
        life = subprocess.Popen([sys.executable, str(Path(__file__).with_name("small.py")), str(tmp_path)])
        before = len(list((tmp_path / "runs").glob("*/outcome-*.json"))) if (tmp_path / "runs").exists() else 0
        deadline = time.monotonic() + 120.0
        while len(list((tmp_path / "runs").glob("*"))) <= before and life.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 3.0))
        life.send_signal(signal.SIGKILL)
        life.wait()
        unfinished += any(not list(run.glob("outcome-*.json")) for run in (tmp_path / "runs").iterdir())
    assert unfinished
    reproduce_small(tmp_path)
    assert written(tmp_path) == written(undisturbed[0])


@pytest.mark.slow
def test_a_planted_verdict_fails(tmp_path, monkeypatch):
    """R11 holds in part; a release with another verdict is detected."""
    command("R11", "--out", tmp_path)
    monkeypatch.setattr("loca_reproduction.claims.expected_verdict", lambda claim, preset: "holds")
    assert "published with the verdict 'holds'" in command("R11", "--out", tmp_path, "--resume", code=1)


def test_claims_are_listed_with_their_verdicts():
    output = command("--list")
    assert all(name in output for name in CLAIMS)
    assert "unknown claim" in command("R14", code=2)


def test_missing_data_is_reported_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.delenv("LOCA_DATA", raising=False)
    for _ in range(2):  # a failed attempt does not prevent another
        assert "set LOCA_DATA to the directory" in command("R8", "--out", tmp_path, code=1)
    assert not (tmp_path / "R8-quick").exists()


def test_names_of_run_directories_depend_on_values_alone():
    """Renaming a class or a field does not change them; every value that a model depends on does."""
    flow = Drawn(Darcy(resolution=32, preset="easy"), 200, labels=16, test=100)
    run = Run("LOCA", flow, "darcy", 1, 40, 4e-3, 100)
    assert run.name == "LOCA-seed_1-d755bcb2e8"
    assert Run("LOCA", flow, "darcy", 1, 40, 4e-3, 100, metrics=("rmse",)).name == run.name
    tests = (("clean", Unseen(MechanicalMNIST("mnist.npz", "test"))),)
    plates = Drawn(MechanicalMNIST("mnist.npz"), 16, 56, 0.15, tests, same=True)
    assert Run("FNO", plates, "mechanical-mnist", 0, 4, 4e-3, 25).name == "FNO-seed_0-389e2603f7"
    values = {"model": "FNO", "setting": "climate", "seed": 7, "steps": 7, "rate": 7.0, "batch_size": 7}
    others = [dataclasses.replace(run, **{name: value}) for name, value in values.items()]
    values = {"functions": 7, "labels": 7, "train_noise": 7.0, "tests": tests, "validation": 7, "test": 7, "same": True}
    others += [dataclasses.replace(run, source=dataclasses.replace(flow, **{n: v})) for n, v in values.items()]
    problems = [Darcy(31, "easy"), Darcy(32), Darcy(modes=4), Darcy(amplitude=7.0), Darcy(rate=8.0), Antiderivative()]
    others += [dataclasses.replace(run, source=dataclasses.replace(flow, problem=problem)) for problem in problems]
    assert len({each.name for each in (run, *others)}) == 1 + len(others)
