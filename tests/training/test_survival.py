"""A run that is killed, stopped or refused: what it leaves, and that it ends where an undisturbed one ends."""

import dataclasses
import logging
import os
import random
import signal
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from saves import is_saving, wait_for_a_save
from zygote import Life, zygote

from loca.data import Part, data_digest
from loca.durable import MANIFEST
from loca.kernels import Matern
from loca.losses import mean_squared
from loca.problems import Antiderivative, generate
from loca.training import History, StoppedError, fit, paper_optimizer
from loca.training.checkpoints import Checkpoints

KILLS = int(os.environ.get("LOCA_KILLS", "100"))
"""How often the run is killed in the full tier; `--log-cli-level=INFO` prints the record."""

INTERVAL = 0.1
"""Seconds between checkpoints: so few that a good part of the time is spent saving."""


@pytest.fixture(scope="module")
def start(model_file):
    """Starts or resumes a run in a directory, in a process of its own."""
    with zygote() as parent:
        yield lambda directory, steps: parent.start("train", directory, str(model_file), steps, INTERVAL)


@dataclasses.dataclass(frozen=True)
class Death:
    """What a killed run had done, and when.

    **Arguments:**

    - `moment`: of the kill.
    - `done`: when it reported each step.
    - `saved`: when each checkpoint on the disk was complete.
    - `saving`: whether it was writing or removing one.
    """

    moment: float
    done: dict[int, float]
    saved: dict[int, float]
    saving: bool

    @classmethod
    def of(cls, life: Life) -> "Death":
        moment = time.time()
        life.kill()
        kept = list((life.directory / "checkpoints").iterdir())
        manifests = [path / MANIFEST for path in kept if (path / MANIFEST).exists()]
        return cls(
            moment,
            {told["step"]: told["time"] for told in life.told()},
            {int(path.parent.name): path.stat().st_mtime for path in manifests},
            is_saving(life.directory / "checkpoints"),
        )

    @property
    def saves(self) -> list[float]:
        """How long its complete saves have taken."""
        return [end - self.done[step] for step, end in self.saved.items() if step in self.done]

    def lost(self, resumed: int) -> tuple[int, float]:
        """The steps that are to be done again, and the seconds that they took."""
        return max(self.done) - resumed, self.moment - self.since(resumed)

    def overdue(self, resumed: int) -> float:
        """For how long a newer checkpoint than the one it resumed from could have been under way."""
        due = max(self.since(resumed) + INTERVAL, self.saved.get(resumed, 0.0))
        return self.moment - min((time for time in self.done.values() if time >= due), default=self.moment)

    def since(self, resumed: int) -> float:
        """When the work that is lost began; with the first step, if this life has saved nothing."""
        return self.done.get(resumed, min(self.done.values()))


@pytest.mark.full
def test_killed_at_random_moments_it_ends_in_the_same_state(start, tmp_path):
    """The same bits and the same history as the run that nobody disturbed, and little work lost by each kill.

    A checkpoint is due once the interval has passed; it is begun when the dispatch ends in which that happens, and
    counts when it is written. So a kill costs at most the interval, one dispatch, whose end the run reports, and one
    save: twice the longest that was seen to end is allowed, for a killed one could have been the longest.
    """
    kills, directory, rng = KILLS, tmp_path / "killed", random.Random(0)
    steps = 700 * (kills + 1)
    undisturbed = start(tmp_path / "undisturbed", steps)
    assert undisturbed.status() == 0, undisturbed.told()
    deaths, resumed = [], []
    for kill in range(kills):
        life = start(directory, steps)
        first = life.until(bool)[0]["step"]
        resumed.append(first - 1)  # the first dispatch is of one step
        goal = first + rng.randrange(350)
        life.until(lambda told, goal=goal: told[-1].get("step", goal) >= goal)
        if kill % 2:
            wait_for_a_save(directory / "checkpoints")
        time.sleep(rng.uniform(0.0, 0.05) if kill != 1 else 0.0)  # one dies at the beginning of a save for certain
        deaths.append(Death.of(life))
    life = start(directory, steps)
    assert life.status() == 0, life.told()
    resumed.append(life.told()[0]["step"] - 1)

    assert life.told()[-1] == undisturbed.told()[-1]  # the SHA-256 of the last state, all losses and errors
    assert resumed == sorted(resumed)
    assert len(set(resumed)) > kills / 2, "it did not get on between kills"
    assert any(death.saving for death in deaths)
    longest_save = max(seconds for death in deaths for seconds in death.saves)
    overdue = [death.overdue(step) for death, step in zip(deaths, resumed[1:], strict=True)]
    assert max(overdue) <= 2 * longest_save + 1.0  # a busy machine may leave a process waiting for a second
    lost = [death.lost(step) for death, step in zip(deaths, resumed[1:], strict=True)]
    logging.getLogger(__name__).info(
        "%d kills, %d of them while saving; lost at most %d steps and %.2f s; longest save %.2f s, overdue %.2f s; %s",
        *(kills, sum(death.saving for death in deaths), max(lost)[0], max(seconds for _, seconds in lost)),
        *(longest_save, max(overdue), life.told()[-1]["sha256"]),
    )


@pytest.mark.slow
def test_a_stopped_run_is_saved_and_resumes_to_the_same_history(model, data, tmp_path):
    arguments = {"steps": 20, "batch_size": 20, "every": 10}

    def stop(progress):
        if progress.step == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedError, match=r"stopped at step 10 and saved in .*run; repeat the same call to resume"):
        fit(model, data, directory=tmp_path / "run", callbacks=[stop], **arguments)
    assert Checkpoints(tmp_path / "run/checkpoints").steps() == [10]
    _, resumed = fit(model, data, directory=tmp_path / "run", **arguments)
    _, undisturbed = fit(model, data, **arguments)
    assert [(m.step, m.loss) for m in resumed] == [(m.step, m.loss) for m in undisturbed]


def test_a_request_to_stop_before_the_first_step_is_not_lost(model, data, tmp_path, monkeypatch):
    """Even if the process that started this one ignores SIGINT."""
    module = sys.modules["loca.training.fit"]
    fingerprint = module.fingerprint

    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return fingerprint(*arguments)

    monkeypatch.setattr(module, "fingerprint", interrupted)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(StoppedError, match="stopped at step 1 and saved"):
            fit(model, data, steps=20, batch_size=20, every=10, directory=tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_directory_tells_what_happened_and_knows_its_run(model, data, tmp_path):
    arguments = {"steps": 20, "batch_size": 20, "every": 10, "directory": tmp_path / "run"}
    _, history = fit(model, data, **arguments)
    assert History.read(tmp_path / "run/history.jsonl") == history
    _, again = fit(model, data, **arguments)  # it is done already
    assert again == history
    with pytest.raises(ValueError, match=r"has another setting \(seed is 0; got 1\)"):
        fit(model, data, seed=1, **arguments)


@pytest.mark.full
def test_two_at_once_are_refused(model, data, tmp_path):
    said = []

    def second(_):
        with pytest.raises(RuntimeError, match="another process") as refusal:
            fit(model, data, steps=20, batch_size=20, directory=tmp_path / "run")
        said.append(refusal)

    fit(model, data, steps=20, batch_size=20, directory=tmp_path / "run", callbacks=[second])
    assert said


def flipped(data):
    """The same inputs with outputs of the other sign."""
    return dataclasses.replace(data, s=-data.s)


OTHER = {
    "data": (lambda model, data: (model, flipped(data)), {}, "has other data"),
    "parameters": (lambda model, data: (dataclasses.replace(model, f=jax.tree.map(jnp.negative, model.f)), data), {},
                   r"has other initial parameters \(\.f\.weights\[0\] is "),
    "kernel": (lambda model, data: (dataclasses.replace(model, k=Matern()), data), {},
               r"has another model \(\.k is RBF; got Matern\)"),
    "loss": (lambda model, data: (model, data), {"loss": lambda s, truth: 2.0 * mean_squared(s, truth)},
             "has another loss"),
    "optimizer": (lambda model, data: (model, data), {"optimizer": paper_optimizer(2e-3)}, "has another optimizer"),
    "weights": (lambda model, data: (model, data), {"weights": np.arange(1.0, 21.0)}, "has other weights of locations"),
    "validation": (lambda model, data: (model, data), {"validate": None}, "has other validation data"),
    "steps taken": (lambda model, data: (model, data), {"steps": 10}, "has taken 20 steps already, but got steps=10"),
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(model, data, tmp_path_factory):
    """A finished run, and the arguments it was started with."""
    arguments = {"steps": 20, "batch_size": 20, "optimizer": paper_optimizer(), "validate": data.take(jnp.arange(5))}
    directory = tmp_path_factory.mktemp("finished")
    fit(model, data, directory=directory, **arguments)
    return directory, arguments


@pytest.mark.parametrize("what", OTHER)
def test_another_run_in_the_directory_is_refused_with_what_differs(what, finished, model, data):
    change, changes, message = OTHER[what]
    directory, arguments = finished
    with pytest.raises(ValueError, match=message):
        fit(*change(model, data), directory=directory, **{**arguments, **changes})


def test_equal_data_and_settings_are_the_same_run_whoever_made_them(finished, model, data):
    directory, arguments = finished
    copies = jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, (model, data))
    again, history = fit(*copies, directory=directory, **{**arguments, "optimizer": paper_optimizer()})
    assert history.moments[-1].step == 20
    assert again != model


@pytest.mark.parametrize("streamed", [False, True])
def test_a_store_is_known_by_its_digest(model, tmp_path, streamed):
    problem = Antiderivative(length=0.3, sensors=40, queries=20)
    stores = [generate(problem, 30, tmp_path / f"{seed}.zarr", seed=seed) for seed in (0, 1)]
    parts = [Part(store, np.arange(25), key=jax.random.key(0), labels=9) for store in stores]
    parts.append(Part(stores[0], np.arange(25), key=jax.random.key(1), labels=9))
    digests = [data_digest(data if streamed else data.load()) for data in (*stores, *parts)]
    assert len(set(digests)) == 5
    same = Part(stores[0], np.arange(25), key=jax.random.key(0), labels=9)
    assert data_digest(same if streamed else same.load()) == digests[2]
