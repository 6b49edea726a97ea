"""Prediction at many queries: with φ frozen against the full evaluation, and a million queries in bounded memory."""

from __future__ import annotations

import dataclasses
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

from loca.attention import expectation
from loca.data import Samples
from loca.domains import Box
from loca.encoders import Sensors
from loca.models import LOCA
from loca.rules import QuasiMonteCarlo

STATUS = Path("/proc/self/status")


@dataclasses.dataclass(frozen=True)
class PredictionFigures:
    """Times are medians of calls in turn; memory is the peak of the process above what it held before."""

    queries: int
    full_ms: float
    frozen_ms: float
    speedup: float
    frozen_error: float  # largest difference relative to the largest value
    many_queries: int
    nodes: int
    many_seconds: float
    many_megabytes: float
    many_error: float  # against all of the first queries at once, relative to the largest value


def measure_prediction(queries: int = 10_000, many: int = 1_000_000, nodes: int = 1024) -> PredictionFigures:
    """Time one function at `queries` locations both ways, then ask for `many` with that number of `nodes`."""
    sensors, domain = 1024, Box.unit(2)
    functions = jax.random.normal(jax.random.key(0), (4, sensors, 1))
    data = Samples(
        u=functions,
        y=domain.sample(jax.random.key(1), 16),
        s=jax.random.normal(jax.random.key(2), (4, 16, 1)),
        domain=domain,
    )
    u = functions[0]
    rule = QuasiMonteCarlo(domain, nodes, key=jax.random.key(3))
    model = LOCA.create(data, key=jax.random.key(4), encoder=Sensors(sensors), rule=rule)

    evaluate = eqx.filter_jit(lambda model, u, y: model(u, y))
    many_y = domain.sample(jax.random.key(5), many)
    jax.block_until_ready(many_y)
    before = resident_megabytes()
    start = time.perf_counter()
    many_s = jax.block_until_ready(evaluate(model, u, many_y))
    many_seconds = time.perf_counter() - start
    many_megabytes = peak_megabytes() - before

    first = many_y[: min(many, 2 * queries)]
    at_once = model.normalization.restore_output(expectation(model.basis(first)(first), model.features(u)))
    y = many_y[:queries]
    frozen = eqx.filter_jit(model.at(y))
    full_ms, frozen_ms = in_turn(lambda: evaluate(model, u, y), lambda: frozen(u))
    return PredictionFigures(
        queries=queries,
        full_ms=full_ms,
        frozen_ms=frozen_ms,
        speedup=full_ms / frozen_ms,
        frozen_error=difference(frozen(u), evaluate(model, u, y)),
        many_queries=many,
        nodes=nodes,
        many_seconds=many_seconds,
        many_megabytes=many_megabytes,
        many_error=difference(many_s[: len(first)], at_once),
    )


def in_turn(*calls: Callable[[], jax.Array], rounds: int = 11, seconds: float = 0.2) -> list[float]:
    """Milliseconds of each call, the median over rounds in which they take turns of about `seconds`."""

    def run(call: Callable[[], jax.Array], count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(call())
        return 1e3 * (time.perf_counter() - start) / count

    for call in calls:
        run(call, 1)  # compile
    counts = [max(1, round(1e3 * seconds / run(call, 3))) for call in calls]
    times = [[run(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(rounds)]
    return [statistics.median(each) for each in zip(*times, strict=True)]


def difference(a: jax.Array, b: jax.Array) -> float:
    """The largest difference relative to the largest value."""
    return float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))


def peak_megabytes() -> float:
    """The most memory this process has held so far."""
    if STATUS.exists():  # on Linux a child's `ru_maxrss` begins with that of its parent
        return status_megabytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def resident_megabytes() -> float:
    """The memory this process holds now; on systems that do not tell, the most it has held."""
    gc.collect()
    return status_megabytes("VmRSS") if STATUS.exists() else peak_megabytes()


def status_megabytes(field: str) -> float:
    """A figure of the kernel about this process."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1e3
