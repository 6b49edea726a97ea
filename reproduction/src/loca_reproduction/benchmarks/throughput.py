"""Throughput and memory of predictions at many queries."""

from __future__ import annotations

import gc
import math
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Labeled, Samples, Shared
from loca.domains import Box
from loca.encoders import Sensors
from loca.models import LOCA
from loca.prediction import QueryGrid, predict_to
from loca.rules import QuasiMonteCarlo
from loca_reproduction.machine import in_new_process

STATUS = Path("/proc/self/status")

SIDE = 32
"""Sensors along each side of the square."""

NODES = 1024
"""Nodes of the model whose predictions are streamed."""


def measure_prediction(queries: int = 10_000, many: int = 1_000_000, nodes: int = 1024) -> dict[str, Any]:
    """Time predictions of one function at `queries` locations, with φ frozen and in full; then at `many` locations.

    Times are medians of calls that take turns. Memory is the peak of the process above what it held before. Errors are
    relative to the largest value: those of frozen predictions, and of many against queries evaluated in one piece.
    """
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
    channels = zip(model.weights(first), model.features(u), strict=True)
    at_once = model.normalization.at(Shared(first)).restore(jnp.stack([phi @ v for phi, v in channels], axis=-1))
    y = many_y[:queries]
    frozen = eqx.filter_jit(model.at(y))
    full_ms, frozen_ms = median_times(lambda: evaluate(model, u, y), lambda: frozen(u))
    return {
        "queries": queries,
        "full_ms": full_ms,
        "frozen_ms": frozen_ms,
        "speedup": full_ms / frozen_ms,
        "frozen_error": difference(frozen(u), evaluate(model, u, y)),
        "many_queries": many,
        "nodes": nodes,
        "many_seconds": many_seconds,
        "many_megabytes": many_megabytes,
        "many_error": difference(many_s[: len(first)], at_once),
    }


def median_times(*calls: Callable[[], jax.Array], rounds: int = 11, seconds: float = 0.2) -> list[float]:
    """Milliseconds per call: medians over rounds in which the calls take turns of about `seconds` each."""

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
    """The largest absolute difference relative to the largest value."""
    return float(jnp.max(jnp.abs(a - b)) / jnp.max(jnp.abs(b)))


def peak_megabytes() -> float:
    """The peak memory of this process so far."""
    if STATUS.exists():  # on Linux the `ru_maxrss` of a child starts at that of its parent
        return status_megabytes("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def resident_megabytes() -> float:
    """The memory that this process holds now, or its peak on systems that do not report it."""
    gc.collect()
    return status_megabytes("VmRSS") if STATUS.exists() else peak_megabytes()


def status_megabytes(field: str) -> float:
    """A value that the kernel reports for this process, such as VmRSS."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1e3


# ---- streamed to a file ----------------------------------------------------------------------------------------------


def measure_streamed_prediction(
    queries: int = 10_000_000, few: int = 1_000_000, *, directory: Path | None = None
) -> dict[str, Any]:
    """Stream the predictions of a model with 1024 nodes on two square grids, with about `few` and `queries` points.

    Each runs in a new process. Memory is its peak above what it held before. Seconds include compilation and writing.
    """
    found = []
    for count in (few, queries):
        with tempfile.TemporaryDirectory(prefix="loca-predict-", dir=directory) as folder:
            path = str(Path(folder) / "prediction.zarr")
            found.append(in_new_process(stream_prediction, path, math.ceil(math.sqrt(count))))
    smaller, larger = found
    few_figures = {f"few_{name}": smaller[name] for name in ("queries", "seconds", "megabytes")}
    return {"nodes": NODES, **few_figures, **larger, "time_ratio": larger["seconds"] / smaller["seconds"]}


def stream_prediction(path: str, side: int) -> dict[str, float]:
    """Stream the prediction of one function on a square grid to a file; return time and memory."""
    data = one_function()
    samples = data.load()
    rule = QuasiMonteCarlo(data.domain, NODES, key=jax.random.key(3))
    model = LOCA.create(samples, key=jax.random.key(4), encoder=Sensors(SIDE**2), rule=rule)
    before = resident_megabytes()
    start = time.perf_counter()
    predict_to(model, data, path, queries=QueryGrid.even(data.domain, (side, side)))
    return {
        "queries": side**2,
        "seconds": time.perf_counter() - start,
        "megabytes": peak_megabytes() - before,
        "file_megabytes": 1e-6 * sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file()),
    }


def one_function() -> Labeled:
    """One function with random values at 32 × 32 sensors, and as many labels, on the unit square."""
    import xarray

    values = np.random.default_rng(0).standard_normal((2, 1, SIDE, SIDE)).astype(np.float32)
    dims = ("sample", "y1", "y2")
    return Labeled(xarray.Dataset({"u": (dims, values[0]), "s": (dims, values[1])}), "u", "s", "sample")
