"""The three implementations of a training step agree, and the commands print what they promise."""

import dataclasses
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from loca.training import Encoded
from loca_reproduction.benchmarks import step
from loca_reproduction.benchmarks.scale import slope
from loca_reproduction.benchmarks.step import STEP_SETTINGS
from loca_reproduction.cli import app


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["darcy-128", *(pytest.param(name, marks=pytest.mark.full) for name in ("antiderivative", "mechanical-mnist"))],
)
def test_all_implementations_agree(name, getkey):
    """Losses agree before any step and after three of them: values, gradients and Adam are the same arithmetic."""
    setting = dataclasses.replace(STEP_SETTINGS[name], batch_size=6, nodes=6)  # small, to be fast
    samples = step.random_functions(setting, getkey(), setting.batch_size)
    model = setting.loca(samples, key=getkey())
    batch = Encoded.of(model, samples)
    steps = [step.package_step(model, batch), step.bare_step(model, batch)]
    steps.append(step.paper_layout_step(model, batch, setting))
    (ours, bare, paper) = (each.run(3).tolist() for each in steps)
    assert ours == pytest.approx(bare, rel=1e-5)
    assert ours == pytest.approx(paper, rel=1e-5)


@pytest.mark.full
def test_the_compiler_counts_the_operations_of_the_reference_table(getkey):
    """0.508 GFLOP for Darcy with 128 labels, by hand; selecting from the full grid takes about 10 % more."""
    setting = STEP_SETTINGS["darcy-128"]
    samples = step.random_functions(setting, getkey(), setting.batch_size)
    model = setting.loca(samples, key=getkey())
    assert step.flops(model, Encoded.of(model, samples)) / 1e9 == pytest.approx(0.508 * 1.1, rel=0.1)


def test_a_slow_first_step_does_not_shorten_a_turn(monkeypatch):
    """Memory of another program that is still being freed slows down one step, not what a turn is worth."""
    times = iter([0.16, 0.01, 0.011])
    monkeypatch.setattr(step.RepeatedStep, "seconds_per_step", lambda self, count: next(times))
    assert step.RepeatedStep(lambda carry, data: (carry, data), 0.0, 0.0).steps_in(0.25) == 25


@pytest.mark.full
def test_command_prints_json():
    result = CliRunner().invoke(
        app, ["bench", "step", "--setting", "antiderivative", "--json", "--rounds", "1", "--seconds", "0"]
    )
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output)
    assert figures["setting"] == "antiderivative"
    assert figures["loss_ours"] == pytest.approx(figures["loss_bare"], rel=1e-5)
    assert figures["speedup_over_paper_layout"] > 2


@pytest.mark.full
def test_a_million_queries_in_bounded_memory():
    """In a new process: at most 200 MB more, and the same values as in one piece."""
    command = [sys.executable, "-c", "from loca_reproduction.cli import main; main()", "bench", "predict", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(result.stdout)
    assert figures["many_queries"] == 1_000_000
    assert figures["nodes"] == 1024
    assert figures["many_megabytes"] < 200
    assert figures["many_error"] < 1e-6
    assert figures["frozen_error"] < 1e-6


def test_slope_recovers_the_exponent_of_a_power_law():
    x = [1.0, 3.0, 10.0]
    assert slope(x, [7.0 * each**1.5 for each in x]) == pytest.approx(1.5)
