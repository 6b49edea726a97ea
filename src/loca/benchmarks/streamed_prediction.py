"""Predictions streamed to a file: whether time grows with the number of queries, and memory does not."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from loca.benchmarks.prediction import peak_megabytes, resident_megabytes
from loca.data import Labeled
from loca.encoders import Sensors
from loca.models import LOCA
from loca.prediction import QueryGrid, predict_to
from loca.rules import QuasiMonteCarlo

SIDE, NODES = 32, 1024


@dataclasses.dataclass(frozen=True)
class StreamedPredictionFigures:
    """Of one function at few and many queries, each in a fresh process; memory is its peak above what it held before.

    Seconds include compilation and the disk.
    """

    nodes: int
    few_queries: int
    few_seconds: float
    few_megabytes: float
    queries: int
    seconds: float
    megabytes: float
    file_megabytes: float
    time_ratio: float


def measure_streamed_prediction(
    queries: int = 10_000_000, few: int = 1_000_000, *, directory: Path | None = None
) -> StreamedPredictionFigures:
    """Ask a model of 1024 nodes at the points of two square grids with about these numbers of them."""
    smaller, larger = (in_fresh_process(math.ceil(math.sqrt(count)), directory) for count in (few, queries))
    return StreamedPredictionFigures(
        nodes=NODES,
        few_queries=smaller["queries"],
        few_seconds=smaller["seconds"],
        few_megabytes=smaller["megabytes"],
        queries=larger["queries"],
        seconds=larger["seconds"],
        megabytes=larger["megabytes"],
        file_megabytes=larger["file_megabytes"],
        time_ratio=larger["seconds"] / smaller["seconds"],
    )


def in_fresh_process(side: int, directory: Path | None) -> dict[str, Any]:
    """What `predict` measures where nothing has been computed before."""
    with tempfile.TemporaryDirectory(prefix="loca-predict-", dir=directory) as folder:
        path = str(Path(folder) / "prediction.zarr")
        code = f"from loca.benchmarks.streamed_prediction import predict; predict({path!r}, {side})"
        fresh = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(fresh.stdout)


def predict(path: str, side: int) -> None:
    """Stream one function on a square grid to a file and tell the parent what it took."""
    data = one_function()
    samples = data.load()
    rule = QuasiMonteCarlo(data.domain, NODES, key=jax.random.key(3))
    model = LOCA.create(samples, key=jax.random.key(4), encoder=Sensors(SIDE**2), rule=rule)
    before = resident_megabytes()
    start = time.perf_counter()
    predict_to(model, data, path, queries=QueryGrid.even(data.domain, (side, side)))
    figures = {
        "queries": side**2,
        "seconds": time.perf_counter() - start,
        "megabytes": peak_megabytes() - before,
        "file_megabytes": 1e-6 * sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file()),
    }
    sys.stdout.write(json.dumps(figures))


def one_function() -> Labeled:
    """Random values at 32 × 32 sensors, and as many labels in the unit square."""
    import xarray

    values = np.random.default_rng(0).standard_normal((2, 1, SIDE, SIDE)).astype(np.float32)
    dims = ("sample", "y1", "y2")
    return Labeled(xarray.Dataset({"u": (dims, values[0]), "s": (dims, values[1])}), "u", "s", "sample")
