"""What a whole run costs over its bare steps: batches, history, validation, checkpoints and a progress bar."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax

from loca.benchmarks.step import STEP_SETTINGS, by_hand, random_functions, ratio
from loca.data import Samples, Shared
from loca.models import LOCA
from loca.training import Encoded, Progress, fit, paper_optimizer
from loca.training.fit import Callback

FUNCTIONS, VALIDATION = 2000, 200
"""How many there are to train on, where the paper has more, and to validate on."""

BARE_SECONDS = 2.0
"""How long a stretch of bare steps takes at a time."""


@dataclasses.dataclass(frozen=True)
class FitFigures:
    """Steps per second of `fit` and of its bare step, medians over the turns of one run, and the ratio of each turn."""

    setting: str
    turns: int
    steps: int
    fit_per_s: float
    bare_per_s: float
    throughput: float
    throughputs: tuple[float, ...]
    validations: int
    checkpoints: int
    step_compilations: int


def measure_fit(
    name: str, *, seconds: float = 65.0, turns: int = 3, every: int = 1000, callbacks: Sequence[Callback] = ()
) -> FitFigures:
    """Let `fit` and the bare step take turns, each for about `seconds`.

    `fit` is what a user gets: its own batch at every step, the paper's optimizer, validation at full resolution every
    so often, a checkpoint every 30 seconds and one at the end. The bare step is that of `loca bench step`: the same
    arithmetic by hand, always on one batch, in a compiled loop. Compilation and encoding, which come before the first
    step, are left out of both.
    """
    setting = STEP_SETTINGS[name]
    count = min(setting.functions, FUNCTIONS)
    train = random_functions(setting, jax.random.key(0), count)
    test = random_functions(dataclasses.replace(setting, queries=setting.locations), jax.random.key(1), VALIDATION)
    test = dataclasses.replace(test, y=Shared(train.y.points))
    model = setting.loca(train, key=jax.random.key(2))
    bare = BareSteps(model, train, setting.batch_size)
    steps = max(1, round(seconds / bare.seconds_per_step()))
    ours: list[float] = []
    theirs: list[float] = []
    validations = checkpoints = compiled_steps = 0
    for turn in range(turns):
        if turn % 2:
            theirs.append(bare.seconds_per_step(seconds))
        began: list[tuple[float, int]] = []

        def mark(progress: Progress, began: list[tuple[float, int]] = began) -> None:
            if not began:  # the first step is done: all is compiled
                began.append((time.perf_counter(), progress.step))

        with tempfile.TemporaryDirectory() as directory, compilations() as compiled:
            _, history = fit(
                model,
                train,
                steps=steps,
                optimizer=paper_optimizer(),
                batch_size=setting.batch_size,
                validate=test,
                every=every,
                callbacks=[mark, *callbacks],
                directory=directory,
            )
            ended = time.perf_counter()
            checkpoints = sum(1 for path in (Path(directory) / "checkpoints").iterdir() if path.name.isdigit())
        start, done = began[0]
        ours.append((ended - start) / (steps - done))
        validations, compiled_steps = len(history), max(compiled_steps, compiled.count("jit(stretch)"))
        if not turn % 2:
            theirs.append(bare.seconds_per_step(seconds))
    throughputs = tuple(b / a for a, b in zip(ours, theirs, strict=True))
    return FitFigures(
        setting=name,
        turns=turns,
        steps=steps,
        fit_per_s=1.0 / statistics.median(ours),
        bare_per_s=1.0 / statistics.median(theirs),
        throughput=ratio(theirs, ours),
        throughputs=throughputs,
        validations=validations,
        checkpoints=checkpoints,
        step_compilations=compiled_steps,
    )


class BareSteps:
    """The step of `loca bench step` by hand, on the first batch."""

    def __init__(self, model: LOCA, samples: Samples, size: int):
        self.way = by_hand(model, Encoded.of(model, samples.batch(0, 0, size)))
        self.way.run(1)
        self.count = max(1, round(BARE_SECONDS / self.way.seconds_per_step(1)))
        self.way.run(self.count)

    def seconds_per_step(self, seconds: float = 0.0) -> float:
        """Over at least that long, and over at least one stretch."""
        start, done = time.perf_counter(), 0
        while not done or time.perf_counter() - start < seconds:
            self.way.run(self.count)
            done += self.count
        return (time.perf_counter() - start) / done


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The names of all functions that JAX compiles meanwhile."""
    names: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            names.append(str(kwargs.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
