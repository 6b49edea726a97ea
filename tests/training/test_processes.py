"""Two processes that train one model over loopback: one is killed, the other ends, and the run resumes."""

import contextlib
import logging
import os
import random
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from lives import PROBLEM
from saves import wait_until
from zygote import Zygote, log, zygote

from loca.problems import generate
from loca.training import History
from loca.training.checkpoints import Checkpoints

KILLS = int(os.environ.get("LOCA_RANK_KILLS", "20"))
"""How often a process is killed in the full tier; `--log-cli-level=INFO` prints the record."""

HEARTBEAT = 5
"""Seconds of silence after which a process takes the other for dead."""


class Pair:
    """Two processes of one run, each started by its own zygote."""

    def __init__(self, zygotes: tuple[Zygote, Zygote], model: Path, run: Path, steps: int, smallest: int | None):
        self.run, port, place = run, free_port(), run.parent
        what = (str(run), str(model), str(place / "store"), steps, 0.1)
        how = (port, HEARTBEAT, smallest)
        self.lives = [
            each.start("train_together", run.parent / f"{run.name}-rank{rank}", *what, rank, 2, *how)
            for rank, each in enumerate(zygotes)
        ]

    def until_step(self, step: int) -> None:
        self.lives[0].until(lambda told: told and told[-1].get("step", 0) >= step)

    def first_step(self) -> int:
        return next(
            told["step"] for told in self.lives[0].until(lambda t: any("step" in x for x in t)) if "step" in told
        )

    def kill(self, rank: int) -> float:
        """Kill one; how many seconds later the other had ended, which must be with an error."""
        self.lives[rank].kill()
        began = time.monotonic()
        assert self.lives[1 - rank].status() != 0
        return time.monotonic() - began

    def end(self) -> list[dict]:
        for life in self.lives:
            assert life.status() == 0, log(life.directory).read_text()
        return [life.told()[-1] for life in self.lives]


def free_port() -> int:
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def start(model_file, tmp_path_factory):
    """Starts or resumes both processes of a run."""
    place = tmp_path_factory.mktemp("processes")
    generate(PROBLEM, 40, place / "store", seed=0)
    with zygote() as first, zygote() as second:
        yield lambda run, steps, smallest=None: Pair((first, second), model_file, place / run, steps, smallest)


@pytest.mark.full
def test_a_killed_rank_ends_the_other_and_the_run_resumes_to_the_same_bits(start):
    kills, run = KILLS, "killed"
    steps = 60 * (kills + 1)
    undisturbed = start("undisturbed", steps).end()
    assert undisturbed[0] == undisturbed[1]
    rng, seconds, resumed = random.Random(0), [], []
    for kill in range(kills):
        pair = start(run, steps)
        first = pair.first_step()
        resumed.append(first - 1)
        pair.until_step(min(first + rng.randrange(20, 50), steps - 1))
        wait_until(lambda saved=pair.run / "checkpoints": Checkpoints(saved).steps())
        seconds.append(pair.kill(kill % 2))
        assert seconds[-1] <= HEARTBEAT + 5.0
    pair = start(run, steps)
    resumed.append(pair.first_step() - 1)
    assert pair.end() == undisturbed
    assert resumed == sorted(resumed)
    assert resumed[-1] > 0, "it made no progress between kills"
    assert len(History.read(pair.run / "history.jsonl")) == steps // 20
    logging.getLogger(__name__).info(
        "%d kills; the other process ended %.1f s later at most; resumed at steps %s; %s",
        *(kills, max(seconds), resumed, undisturbed[0]["sha256"]),
    )


@pytest.mark.full
def test_a_request_to_stop_one_stops_both_and_parameters_may_then_be_split(start):
    steps = 100
    undisturbed = start("whole", steps).end()
    pair = start("stopped", steps)
    pair.until_step(1)
    pair.lives[1].send(signal.SIGTERM)
    for told in pair.end():
        assert "repeat the same call to resume" in told["stopped"]
    first, second = start("stopped", steps, smallest=16).end()
    assert first == second
    # another program, which may add in another order, so not the same bits
    np.testing.assert_allclose(np.array(first["history"]), np.array(undisturbed[0]["history"]), rtol=1e-3)
