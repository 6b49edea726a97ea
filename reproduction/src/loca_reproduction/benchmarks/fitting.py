"""The overhead of `fit` over its bare training step: batches, history, validation, checkpoints and progress bar."""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from loca.data import Shared
from loca.losses import mean_squared
from loca.training import Encoded, Progress, fit, paper_optimizer
from loca_reproduction.benchmarks.step import STEP_SETTINGS, RepeatedStep, bare_step, median_ratio, random_functions

FUNCTIONS, VALIDATION = 2000, 200
"""Number of training functions, at most, and of validation functions."""

BARE_SECONDS = 2.0
"""Duration of one timed loop of bare steps."""


def measure_fit(name: str, *, seconds: float = 65.0, turns: int = 3, every: int = 1000) -> dict[str, Any]:
    """Steps per second of `fit` and of the bare step, in turns of about `seconds` each: medians, and all ratios.

    `fit` runs as a user runs it: a new batch at every step, the paper's optimizer, validation at full resolution every
    `every` steps, a checkpoint every 30 seconds and one at the end. The bare step is that of `bench step`: the same
    arithmetic written by hand, always on the same batch, in a compiled loop. Compilation and encoding, which precede
    the first step, are not timed.
    """
    setting = STEP_SETTINGS[name]
    count = min(setting.functions, FUNCTIONS)
    train = random_functions(setting, jax.random.key(0), count)
    test = random_functions(dataclasses.replace(setting, queries=setting.locations), jax.random.key(1), VALIDATION)
    test = dataclasses.replace(test, y=Shared(train.y.points))
    model = setting.loca(train, key=jax.random.key(2))
    bare = bare_step(model, Encoded.of(model, train.batch(0, 0, setting.batch_size)))
    bare.run(1)
    loop = max(1, round(BARE_SECONDS / bare.seconds_per_step(1)))
    bare.run(loop)
    steps = max(1, round(seconds / bare_seconds(bare, loop)))
    fit_times: list[float] = []
    bare_times: list[float] = []
    validations = checkpoints = 0
    for turn in range(turns):
        if turn % 2:
            bare_times.append(bare_seconds(bare, loop, seconds))
        began: list[tuple[float, int]] = []

        def mark(progress: Progress, began: list[tuple[float, int]] = began) -> None:
            if not began:  # after the first step, everything is compiled
                began.append((time.perf_counter(), progress.step))

        with tempfile.TemporaryDirectory() as directory:
            _, history = fit(
                model,
                train,
                steps=steps,
                optimizer=paper_optimizer(),
                loss=mean_squared,
                batch_size=setting.batch_size,
                validate=test,
                every=every,
                callbacks=[mark],
                directory=directory,
            )
            ended = time.perf_counter()
            checkpoints = sum(1 for path in (Path(directory) / "checkpoints").iterdir() if path.name.isdigit())
        start, done = began[0]
        fit_times.append((ended - start) / (steps - done))
        validations = len(history)
        if not turn % 2:
            bare_times.append(bare_seconds(bare, loop, seconds))
    throughputs = tuple(b / a for a, b in zip(fit_times, bare_times, strict=True))
    return {
        "setting": name,
        "turns": turns,
        "steps": steps,
        "fit_per_s": 1.0 / statistics.median(fit_times),
        "bare_per_s": 1.0 / statistics.median(bare_times),
        "throughput": median_ratio(bare_times, fit_times),
        "throughputs": throughputs,
        "validations": validations,
        "checkpoints": checkpoints,
    }


def bare_seconds(bare: RepeatedStep, count: int, seconds: float = 0.0) -> float:
    """Seconds per bare step in loops of `count` steps, timed for at least `seconds` and at least one loop."""
    start, loops = time.perf_counter(), 0
    while not loops or time.perf_counter() - start < seconds:
        bare.run(count)
        loops += 1
    return (time.perf_counter() - start) / (loops * count)
