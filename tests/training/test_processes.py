"""Two processes that train one model over loopback: one is killed, the other ends, and the run goes on where it was."""

import contextlib
import logging
import os
import random
import signal
import socket
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from lives import PROBLEM
from zygote import Zygote, log, zygote

from loca.encoders import Sensors
from loca.models import LOCA
from loca.problems import generate
from loca.saving import save
from loca.training import History

KILLS = int(os.environ.get("LOCA_RANK_KILLS", "2"))
"""How often a process is killed; `LOCA_RANK_KILLS=20` and `--log-cli-level=INFO` for the record."""

HEARTBEAT = 5
"""Seconds of silence after which a process takes the other for dead."""

STEPS = 150 * (KILLS + 1)


class Pair:
    """Two processes of one run, each started by its own zygote."""

    def __init__(self, zygotes: tuple[Zygote, Zygote], run: Path, model: Path, store: Path, smallest: int | None):
        port = free_port()
        what, how = (str(run), str(model), str(store), STEPS, 0.3), (port, HEARTBEAT, smallest)
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
def start(tmp_path_factory):
    """Starts both processes of a run, or goes on with it."""
    place = tmp_path_factory.mktemp("processes")
    widths = {"lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,), "num_features": 4, "lift_size": 4}
    data = PROBLEM.sample(jax.random.key(0), 20)
    save(LOCA.create(data, key=jax.random.key(1), encoder=Sensors(20), **widths), place / "model.loca")
    generate(PROBLEM, 40, place / "store", seed=0)
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(place / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    with zygote(environment) as first, zygote(environment) as second:
        yield lambda run, smallest=None: Pair(
            (first, second), place / run, place / "model.loca", place / "store", smallest
        )


@pytest.fixture(scope="module")
def undisturbed(start):
    """What both processes tell at the end of a run that nothing happens to."""
    return start("undisturbed").end()


@pytest.mark.slow
def test_a_killed_rank_ends_the_other_and_the_run_goes_on_to_the_same_bits(start, undisturbed):
    assert undisturbed[0] == undisturbed[1]  # both know the whole result
    rng, seconds, resumed = random.Random(0), [], []
    for kill in range(KILLS):
        pair = start("killed")
        first = pair.first_step()
        resumed.append(first - 1)
        pair.until_step(min(first + rng.randrange(60, 140), STEPS - 1))
        seconds.append(pair.kill(kill % 2))
        assert seconds[-1] <= HEARTBEAT + 5.0
    pair = start("killed")
    resumed.append(pair.first_step() - 1)
    assert pair.end() == undisturbed
    assert resumed == sorted(resumed)
    assert resumed[-1] > 0, "it did not get on between kills"
    run = Path(pair.lives[0].directory).parent / "killed"
    assert len(History.read(run / "history.jsonl")) == STEPS // 50
    logging.getLogger(__name__).info(
        "%d kills; the other process ended %.1f s later at most; resumed at steps %s; %s",
        *(KILLS, max(seconds), resumed, undisturbed[0]["sha256"]),
    )


@pytest.mark.slow
def test_asked_to_stop_one_stops_both_and_parameters_may_then_lie_in_parts(start, undisturbed):
    pair = start("stopped")
    pair.until_step(1)
    pair.lives[1].send(signal.SIGTERM)
    for told in pair.end():
        assert "run the same to go on" in told["stopped"]
    first, second = start("stopped", smallest=16).end()
    assert first == second
    # another program, which may add in another order, so not the same bits
    np.testing.assert_allclose(np.array(first["history"]), np.array(undisturbed[0]["history"]), rtol=1e-3)
