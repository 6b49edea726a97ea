"""Streaming: how many samples a second come from a store in shuffled batches, and how much memory that takes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

from loca.benchmarks.prediction import peak_megabytes
from loca.data import Store, Variable, stream
from loca.domains import Box
from loca.problems import Problem, generate, generators, grid
from loca.typing import Key

SIDE, CHANNELS = 32, 4
SAMPLE_BYTES = 4 * SIDE**2 * CHANNELS
"""16 KiB: one channel in and three out on a grid of 32 × 32."""


@dataclasses.dataclass(frozen=True)
class StreamingFigures:
    """Rates are of shuffled batches in a fresh process that does nothing but read; memory is its peak."""

    samples: int
    gigabytes: float
    batch_size: int
    threads: int
    write_megabytes_per_s: float
    samples_per_s: float
    peak_megabytes: float


@dataclasses.dataclass(frozen=True)
class Noise(Problem):
    """Functions without any law, quickly made."""

    citation = "none"
    block = 512

    @property
    def domain(self) -> Box:
        return Box.unit(2)

    @property
    def x(self) -> Float[np.ndarray, "m 2"]:
        axis = np.linspace(0.0, 1.0, SIDE)
        return grid(axis, axis)

    @property
    def y(self) -> Float[np.ndarray, "M 2"]:
        return self.x

    @property
    def inputs(self) -> tuple[Variable, ...]:
        return (Variable("u"),)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        return tuple(Variable(f"s{i}") for i in range(1, CHANNELS))

    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m d_u"], Float[np.ndarray, "B M d_s"]]:
        values = np.stack([generator.random((SIDE**2, CHANNELS)) for generator in generators(key, rows)])
        return values[..., :1], values[..., 1:]


def measure_streaming(
    gigabytes: float = 4.0,
    *,
    directory: Path | None = None,
    batch_size: int = 100,
    threads: int = 2,
    seconds: float = 10.0,
) -> StreamingFigures:
    """Write a store of about this size, read batches of it in a fresh process, and delete it."""
    count = max(batch_size, round(gigabytes * 2**30 / SAMPLE_BYTES))
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="loca-stream-", dir=directory) as folder:
        path = Path(folder) / "noise.zarr"
        start = time.perf_counter()
        generate(Noise(), count, path)
        writing = time.perf_counter() - start
        code = f"from loca.benchmarks.streaming import read; read({str(path)!r}, {batch_size}, {threads}, {seconds})"
        fresh = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        reading = json.loads(fresh.stdout)
    return StreamingFigures(
        samples=count,
        gigabytes=count * SAMPLE_BYTES / 2**30,
        batch_size=batch_size,
        threads=threads,
        write_megabytes_per_s=1e-6 * count * SAMPLE_BYTES / writing,
        **reading,
    )


def read(path: str, batch_size: int, threads: int, seconds: float) -> None:
    """Read shuffled batches for a while and tell the parent how many came and what it took."""
    batches = stream(Store.open(path), size=batch_size, seed=0, threads=threads)
    for _ in range(20):  # what is done once: libraries, compilation, the shards' indices
        jax.block_until_ready(next(batches).s)
    start, count = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        jax.block_until_ready(next(batches).s)
        count += batch_size
    rate = count / (time.perf_counter() - start)
    batches.close()
    sys.stdout.write(json.dumps({"samples_per_s": rate, "peak_megabytes": peak_megabytes()}))
