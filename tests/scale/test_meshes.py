"""The work of one model split over devices of one process and of two: the same gradient and the same bits."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMITS = {32: 1e-5, 64: 1e-13}
"""How far the gradient may be from that of one device, relative to its norm, by bits of a number."""


@contextlib.contextmanager
def started(*arguments: int) -> Iterator[subprocess.Popen[str]]:
    """`one_step.py` as a process, which does not outlive its test."""
    line = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("one_step.py")), *map(str, arguments)]
    cores = {"JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **cores}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told_by(process: subprocess.Popen[str]) -> dict:
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def told():
    with started(8) as process:
        return told_by(process)


def check_steps(steps):
    for step in steps:
        limit = LIMITS[step["bits"]]
        assert step["gradient"] <= limit, step
        assert step["amplitude"] <= limit, step  # κ does not know it, so its gradient is zero
        assert step["loss"] <= limit, step


@pytest.mark.slow
def test_the_gradient_is_that_of_one_device(told):
    """On a mesh with all axes."""
    check_steps(told["steps"])
    assert any(len(step["axes"]) == 3 and min(step["axes"].values()) > 1 for step in told["steps"])


@pytest.mark.full
def test_the_gradient_is_that_of_one_device_for_all_forms_of_queries_and_numbers_of_devices(told):
    check_steps(told["steps"])
    with_all_axes = [step for step in told["steps"] if len(step["axes"]) == 3 and min(step["axes"].values()) > 1]
    assert {step["form"] for step in with_all_axes if step["bits"] == 64} == {"shared", "indexed", "few", "free"}
    assert {step["bits"] for step in with_all_axes} == {32, 64}
    one_axis = {
        (axis, count) for step in told["steps"] if len(step["axes"]) == 1 for axis, count in step["axes"].items()
    }
    assert one_axis == {(axis, count) for axis in ("functions", "queries", "nodes") for count in (1, 2, 4, 8)}


@pytest.mark.slow
def test_answers_at_split_queries_have_the_same_bits(told):
    assert len(told["bits"]) == (10 if os.environ.get("LOCA_FULL") else 2)
    assert all(same for _, _, same in told["bits"]), told["bits"]


@pytest.mark.slow
def test_sharded_is_dense_where_somebody_else_made_the_mesh(told):
    assert told["sharded"] <= 1e-12


@pytest.mark.slow
def test_a_mesh_changes_no_evaluation(told):
    assert max(told["evaluations"]) <= 1e-12


@pytest.mark.full
def test_the_gradient_of_two_processes_is_that_of_one():
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started(2, 0, 2, port) as first, started(2, 1, 2, port) as second:
        for told in map(told_by, (first, second)):
            check_steps(told["steps"])
            assert {step["bits"] for step in told["steps"]} == {32, 64}


@pytest.mark.slow
def test_a_mesh_that_cannot_split_a_model_is_refused(told):
    layers, deeponet, together = told["refused"]
    assert "has axes ('layers',), expected some of" in layers
    assert "this DeepONet has no attention; pass a mesh without that axis" in deeponet
    assert "depend on all queries together, so the queries cannot be split" in together
