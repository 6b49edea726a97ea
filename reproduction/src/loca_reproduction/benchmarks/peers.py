"""The built-in FNO, DeepONet and LOCA compared with neuraloperator's FNO and DeepXDE's DeepONet in one run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Normalization
from loca.problems import Darcy
from loca_reproduction.benchmarks.peers_worker import DEEPONET_WIDTH, FEATURES, MODELS

FUNCTIONS, VALIDATION = 1000, 200
TOLERANCE = 0.05
"""Largest relative difference between the numbers of parameters of compared models."""

SIDE, PYTHON = Path("reproduction/parity/peers/side.py"), Path(".parity/peers/bin/python")
"""The peers' worker in the repository, and the Python of the environment made for it."""

ENVIRONMENT = {
    # Large arrays stay with the process between steps. By default every one is returned to the system and asked for
    # again, page by page, which costs PyTorch a third of its time here, and us little, whose steps share one buffer.
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}
"""Environment variables of the workers."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Models with about the same number of parameters, trained on the same data in the same batches.

    Built-in models come first.
    """

    name: str
    sides: tuple[str, ...]
    batch_size: int
    target: float  # validation error
    every: int  # steps between validations


COMPARISONS: tuple[Comparison, ...] = (
    Comparison("FNO", ("fno", "neuraloperator", "neuraloperator-alike"), batch_size=20, target=0.05, every=25),
    Comparison("DeepONet", ("deeponet", "loca", "deepxde", "deepxde-alike"), batch_size=100, target=0.05, every=50),
)
"""Every peer takes part twice: with the layers that it recommends, and with those of the built-in model."""


class Worker:
    """A process that trains one model on request; every request and every reply is one line of JSON.

    When it has started, the process writes a first line with the number of `parameters` of its model, how it runs
    (`way`), its `versions`, and the time to start and compile (`start_seconds`). Then it accepts two requests:

    - `step`, with `count`: take one untimed step and `count` timed ones. The reply is `seconds` per step.
    - `train`, with `seed`, `target`, `every`, `limit`: train from the start, and validate every `every` steps until the
      error is at most `target` or `limit` seconds have passed. The reply is a `curve` of [seconds, steps, error].

    Its standard error goes to the file `log`, and is quoted if the process ends.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path):
        self.name, self.log = name, log
        environment = os.environ | ENVIRONMENT
        if command[0] != sys.executable:  # a peer must not import packages of this environment
            environment.pop("PYTHONPATH", None)
        with log.open("w") as file:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment,
            )
        try:
            self.started = self._reply()
        except BaseException:
            self.close()
            raise

    def step(self, count: int) -> float:
        """Seconds per step over `count` steps."""
        return self._request(do="step", count=count)["seconds"]

    def train(self, *, seed: int, target: float, every: int, limit: float) -> list[tuple[float, int, float]]:
        """The seconds, steps and error of every validation of one training."""
        curve = self._request(do="train", seed=seed, target=target, every=every, limit=limit)["curve"]
        return [(seconds, steps, error) for seconds, steps, error in curve]

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _request(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            last = "\n".join(self.log.read_text().splitlines()[-20:])
            raise RuntimeError(f"{self.name} ended with exit code {code}; its last output was:\n{last}")
        return json.loads(line)


def measure_peers(
    *,
    comparisons: tuple[Comparison, ...] = COMPARISONS,
    rounds: int = 10,
    seconds: float = 2.0,
    runs: int = 3,
    limit: float = 120.0,
) -> tuple[dict[str, Any], ...]:
    """Time the steps of all models in turn, then train each to a target error.

    Each model has its own process, peers in their own environment, and is idle while another one works. All train on
    Darcy flow, 32 × 32, with all labels, by Adam with the rate 10⁻³·0.99^(step/100), on standardized inputs and
    outputs, in single precision.

    **Arguments:**

    - `comparisons`: the groups of models to compare.
    - `rounds`, `seconds`: in which steps are timed, and the approximate time of each model in one.
    - `runs`, `limit`: trainings to the target per model, from different seeds, and seconds after which one stops.
    """
    commands = {name: command(name) for each in comparisons for name in each.sides}
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        write_data(work / "data.npz")
        return tuple(compare(each, commands, work, rounds, seconds, runs, limit) for each in comparisons)


def command(name: str) -> tuple[str | Path, ...]:
    """The command that starts the worker of a model, without its last arguments, the data and the batch size."""
    if name in MODELS:
        return (sys.executable, "-c", "from loca_reproduction.benchmarks.peers_worker import main; main()", name)
    for needed in (SIDE, PYTHON):
        if not needed.exists():
            raise FileNotFoundError(
                f"{needed} does not exist; run reproduction/parity/peers/environment.sh in the root of a clone, which "
                "makes the environment of the peers"
            )
    return (PYTHON, SIDE, name)


def write_data(path: Path, *, functions: int = FUNCTIONS, validation: int = VALIDATION) -> None:
    """Write the training and validation functions, and everything else that all models must share."""
    samples = Darcy(resolution=32, preset="easy").sample(jax.random.key(0), functions + validation)
    u, s = np.asarray(samples.u)[..., 0], np.asarray(samples.s)[..., 0]
    scales = Normalization.fit(samples.take(jnp.arange(functions)))
    np.savez(
        path,
        u=u[:functions],
        s=s[:functions],
        judge_u=u[functions:],
        judge_s=s[functions:],
        y=np.asarray(samples.y.points),
        features=np.asarray(FEATURES(samples.y.points)),
        deeponet_width=np.asarray(DEEPONET_WIDTH),
        **{name: np.asarray(getattr(scales, name))[0] for name in ("u_shift", "u_scale", "s_shift", "s_scale")},
    )


def compare(
    comparison: Comparison,
    commands: dict[str, tuple[str | Path, ...]],
    work: Path,
    rounds: int,
    seconds: float,
    runs: int,
    limit: float,
) -> dict[str, Any]:
    """Time the steps of all models in turn, then train them in turn."""
    with contextlib.ExitStack() as stack:
        workers: list[Worker] = []
        for name in comparison.sides:
            start = (*commands[name], work / "data.npz", str(comparison.batch_size))
            worker = Worker(name, start, work / f"{name}.log")
            stack.callback(worker.close)
            workers.append(worker)
        check_sizes(workers)
        times = time_steps(workers, rounds, seconds)
        curves: dict[str, list[list[tuple[float, int, float]]]] = {worker.name: [] for worker in workers}
        for run in range(runs):
            for worker in workers[:: 1 if run % 2 == 0 else -1]:  # none always follows the same one
                curve = worker.train(seed=run, target=comparison.target, every=comparison.every, limit=limit)
                curves[worker.name].append(curve)
    first = times[workers[0].name]
    figures = tuple(figures_of(each, times[each.name], first, curves[each.name], comparison.target) for each in workers)
    given = {"name": comparison.name, "batch_size": comparison.batch_size, "target": comparison.target}
    return given | {"rounds": rounds, "runs": runs, "sides": figures}


def time_steps(workers: list[Worker], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds per step of every model in every round."""
    counts = {worker.name: max(1, round(seconds / worker.step(2))) for worker in workers}
    times: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for turn in range(rounds):
        for worker in workers[:: 1 if turn % 2 == 0 else -1]:
            times[worker.name].append(worker.step(counts[worker.name]))
    return times


def check_sizes(workers: list[Worker]) -> None:
    """Raise an error if the models differ in size."""
    sizes = {worker.name: worker.started["parameters"] for worker in workers}
    first = sizes[workers[0].name]
    if any(abs(size / first - 1.0) > TOLERANCE for size in sizes.values()):
        raise ValueError(f"compared models must have the same size within {TOLERANCE:.0%}, got parameters {sizes}")


def figures_of(
    worker: Worker,
    times: list[float],
    first: list[float],
    curves: list[list[tuple[float, int, float]]],
    target: float,
) -> dict[str, Any]:
    """The figures of one model: medians over rounds and runs, and the final error of every run.

    `step_ratio` is its time per step relative to the first model, within a round; `way` is how it ran: compiled or
    eager, and with how many threads. Seconds and steps are None if a run did not reach the target.
    """
    ends = [curve[-1] for curve in curves]
    reached = bool(ends) and all(error <= target for _, _, error in ends)
    return {
        "side": worker.name,
        **{name: worker.started[name] for name in ("parameters", "way", "versions", "start_seconds")},
        "step_ms": 1e3 * statistics.median(times),
        "step_ratio": statistics.median(a / b for a, b in zip(times, first, strict=True)),
        "seconds_to_target": statistics.median(end[0] for end in ends) if reached else None,
        "steps_to_target": round(statistics.median(end[1] for end in ends)) if reached else None,
        "errors": [end[2] for end in ends],
    }
