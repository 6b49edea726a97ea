"""How do the time and the memory of a solve grow with the number of functions, and those of a prediction with queries?

    python studies/growth.py             # about 5 minutes on one core
    python studies/growth.py --table     # for docs/solving.md

Functions are read from a file, block by block. Each size has a process of its own; memory is its peak above what the
process has before the solve. Hyperparameters and ranks are fixed, so that all sizes do the same for each function.
Writes studies/growth.json.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import loca
from loca.data import Indexed, Samples, samples_to_arrays, write_store
from loca.domains import Box
from loca.gaussian import Hyperparameters
from loca_reproduction.machine import commit, hardware

RESULTS = Path(__file__).with_suffix(".json")
FUNCTIONS = (1_000, 10_000, 100_000, 1_000_000)
QUERIES = 1_000_000
SENSORS, LOCATIONS, LABELS = 32, 64, 16
RANKS = (256, 48)
HYPERPARAMETERS = Hyperparameters(length=2.0, noise=1e-3, location_lengths=(0.2,))


def functions(rows: slice) -> Samples:
    """s(y) = sin(a₀) cos(2y) + a₁ y² + a₂ sin(5y), for u(x) = a₀ + a₁ sin(3x) + a₂ cos(5x)."""
    count = rows.stop - rows.start
    rng = np.random.default_rng(rows.start)
    a = rng.normal(size=(count, 3))
    x, y = np.linspace(0.0, 1.0, SENSORS), np.linspace(0.0, 1.0, LOCATIONS)
    u = a @ np.stack([np.ones(SENSORS), np.sin(3 * x), np.cos(5 * x)])
    s = np.sin(a[:, :1]) * np.cos(2 * y) + a[:, 1:2] * y**2 + a[:, 2:] * np.sin(5 * y)
    index = np.argsort(rng.random((count, LOCATIONS)), axis=1)[:, :LABELS]
    u, s = u[:, :, None], np.take_along_axis(s, index, axis=1)[:, :, None]
    u, s, x, y = (jnp.asarray(each, jnp.float32) for each in (u, s, x[:, None], y[:, None]))
    return Samples(u, Indexed(y, jnp.asarray(index, jnp.int32)), s, x=x, domain=Box.unit(1))


def write(path: Path, count: int) -> loca.data.Records:
    """A store with so many functions."""
    read = lambda rows: samples_to_arrays(functions(rows))[1]  # noqa: E731
    return write_store(path, functions(slice(0, 1)), count, read, provenance={}, block=1000)


def peak() -> float:
    """The largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def solve(count: int) -> dict:
    """Time and memory of one solve."""
    with tempfile.TemporaryDirectory() as directory:
        store = write(Path(directory) / "functions.zarr", count)
        base, began, used = peak(), time.time(), time.process_time()
        operator, report = loca.solve(store, hyperparameters=HYPERPARAMETERS, ranks=RANKS, progress=False)
        found = {"functions": count, "seconds": time.time() - began, "core_seconds": time.process_time() - used,
                 "iterations": report.iterations, "megabytes": peak() - base, "base": base}  # fmt: skip
        test = functions(slice(10**9, 10**9 + 200))
        predicted = operator.predict(test.u, test.y)
        return found | {"error": float(jnp.mean(loca.metrics.relative_l2(predicted, test.s)))}


def predict() -> dict:
    """Time and memory of a prediction of one function at many queries."""
    data = functions(slice(0, 1000))
    operator, _ = loca.solve(data, hyperparameters=HYPERPARAMETERS, ranks=RANKS, progress=False)
    y = jnp.linspace(0.0, 1.0, QUERIES)[:, None]
    base, began = peak(), time.time()
    eqx.filter_jit(operator)(data.u[0], y).block_until_ready()
    return {"queries": QUERIES, "seconds": time.time() - began, "megabytes": peak() - base}


def table(found: dict) -> str:
    """The solves as Markdown."""
    header = ["functions", "core seconds", "iterations", "memory"]
    lines = [f"| {' | '.join(header)} |", f"|{' ---: |' * len(header)}"]
    for row in found["solves"]:
        numbers = f"{row['functions']:,}", f"{row['core_seconds']:.0f}", str(row["iterations"])
        lines.append(f"| {' | '.join(numbers)} | {row['megabytes']:.0f} MB |")
    return "\n".join(lines)


def main() -> None:
    if sys.argv[1:] == ["--table"]:
        print(table(json.loads(RESULTS.read_text())))
        return
    if len(sys.argv) > 1:
        found = predict() if sys.argv[1] == "queries" else solve(int(sys.argv[1]))
        print(json.dumps(found))
        return
    rows = []
    for argument in (*FUNCTIONS, "queries"):
        run = subprocess.run([sys.executable, __file__, str(argument)], capture_output=True, text=True, check=True)
        rows.append(json.loads(run.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    *solves, queries = rows
    sizes, seconds = ([row[name] for row in solves] for name in ("functions", "core_seconds"))
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    found = {"ranks": RANKS, "solves": solves, "slope": slope, "queries": queries}
    found |= {"commit": commit(), "hardware": hardware(), "jax": jax.__version__}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
