"""The cost of training on this machine, from one compiled and timed step of each model on the data itself."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from loca.checks.findings import Finding
from loca.data import Samples, Shared
from loca.models import Operator, trained_models
from loca.parameters import count
from loca.training import Encoded, State, advance
from loca.typing import PyTree

OPTIMIZER = optax.adam(1e-3)

STEPS = 20_000
"""Number of steps of a training run, as in most of the paper's experiments."""


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The cost of training one model. If it cannot be trained, `obstacle` gives the reason and all numbers are 0."""

    model: str
    parameters: int = 0
    batch_size: int = 0
    ms_per_step: float = 0.0
    minutes: float = 0.0
    data_megabytes: float = 0.0
    step_megabytes: float = 0.0
    obstacle: str = ""

    @property
    def megabytes(self) -> float:
        """The total memory: the encoded data, the parameters, the moments of Adam, and the temporaries of a step."""
        return self.data_megabytes + self.step_megabytes


def forecast(
    samples: Samples, *, functions: int | None = None, batch_size: int = 100, seconds: float = 1.0
) -> tuple[Forecast, ...]:
    """The cost of training each model with its default sizes.

    **Arguments:**

    - `samples`: training data, or a part of it.
    - `functions`: the total number of functions; by default the number of samples.
    - `batch_size`: functions per step; all functions, if there are fewer.
    - `seconds`: for about how long the step of each model is timed, after compilation.
    """
    size = min(batch_size, len(samples))
    functions = functions or len(samples)
    return tuple(
        forecast_one(name, create, samples, functions, size, seconds) for name, create in trained_models().items()
    )


def check_memory(forecasts: Sequence[Forecast], available: float | None = None) -> Iterator[Finding]:
    """Models that need more than the available megabytes; by default those of the device or the machine."""
    if available is None:
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
        available = (limit or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / 1e6
    for each in forecasts:
        if each.megabytes > available:
            message = (
                f"{each.model} needs about {each.megabytes / 1e3:.1f} GB but only {available / 1e3:.1f} GB are "
                "available; use smaller batches or fewer queries per function (`Samples.observe`), or stream the data"
            )
            yield Finding("warning", "memory", message)


def forecast_one(
    name: str, create: Callable[..., Operator], samples: Samples, functions: int, size: int, seconds: float
) -> Forecast:
    """Create one model, compile its training step, and time it."""
    few = samples.take(jnp.arange(size))
    try:
        model = create(samples, key=jax.random.key(0))
        batch = Encoded.of(model, few)
    except ValueError as problem:
        return Forecast(name, obstacle=str(problem))
    arrays, static = eqx.partition(State.start(model, OPTIMIZER), eqx.is_array)

    def one(arrays: PyTree, batch: Encoded) -> tuple[PyTree, jax.Array]:
        state, loss = advance(eqx.combine(arrays, static), batch, OPTIMIZER)
        return eqx.filter(state, eqx.is_array), loss

    compiled = jax.jit(one).lower(arrays, batch).compile()
    taken = median_seconds(lambda: compiled(arrays, batch), seconds)
    per_function = size_of((batch.codes, batch.s)) / size + size_of(samples.u) / len(samples)
    queries = size_of(samples.y) * (1.0 if isinstance(samples.y, Shared) else functions / len(samples))
    memory: Any = compiled.memory_analysis()
    step_bytes = math.nan  # the platform reports nothing
    if memory is not None:
        step_bytes = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    return Forecast(
        model=name,
        parameters=count(model),
        batch_size=size,
        ms_per_step=1e3 * taken,
        minutes=taken * STEPS / 60.0,
        data_megabytes=(per_function * functions + queries) / 1e6,
        step_megabytes=step_bytes / 1e6,
    )


def median_seconds(run: Callable[[], Any], seconds: float) -> float:
    """The wall-clock time of one run: the median over as many runs as fit into `seconds`, after a warm-up run."""
    jax.block_until_ready(run())
    taken: list[float] = []
    while sum(taken) < seconds:
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def size_of(tree: PyTree) -> int:
    """The number of bytes of all arrays."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree) if eqx.is_array(leaf))
