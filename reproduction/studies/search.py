"""How long does `loca.solve` take with its search, if nothing is compiled yet?

    python reproduction/studies/search.py                    # all cases, each in a process of its own
    python reproduction/studies/search.py --case mesh --seeds 1
    python reproduction/studies/search.py --table            # for docs/solving.md

Core seconds of the process without imports and data, which other processes do not lengthen; programs that JAX compiles;
mean relative L2 error over complete fields of test functions. The case `scalars` is also solved for by the Gaussian
process of scikit-learn with a length per input (reproduction/peers/gaussian_process.py), in this environment or that of
--python. Results are added to studies/search.json; rows that exist are not computed again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from compared import scalars
from rows import Rows, markdown, read_rows

import loca

RESULTS = Path(__file__).parent / "search.json"
PEER = Path(__file__).parents[1] / "peers/gaussian_process.py"
Pair = tuple[loca.Samples, loca.Samples]


def darcy(resolution: int, functions: int, labels: int, seed: int) -> Pair:
    """Rough inputs; the test functions have all labels."""
    problem = loca.problems.Darcy(resolution=resolution, preset="literal")
    train = problem.sample(jax.random.key(10 * seed), functions).observe(jax.random.key(10 * seed + 1), labels)
    return train, problem.sample(jax.random.key(10 * seed + 2), 200)


def mesh(seed: int) -> Pair:
    """100 runs with one field in and one out at 1500 nodes of a disk with a hole: a nonlinear smoothing of waves."""
    rng = np.random.default_rng(seed)
    radius, angle = np.sqrt(rng.uniform(0.09, 1.0, 1500)), rng.uniform(0.0, 2.0 * np.pi, 1500)
    nodes = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    waves = rng.normal(size=(40, 2)) * 3.0
    phases = nodes @ waves.T
    a, b = rng.normal(size=(2, 200, 40)) / (1.0 + np.sum(waves**2, axis=1) / 9.0)
    u = a @ np.cos(phases).T + b @ np.sin(phases).T
    kernel = np.exp(-np.sum((nodes[:, None] - nodes) ** 2, axis=-1) / 0.08)
    s = np.tanh(u) @ (kernel / kernel.sum(axis=1, keepdims=True)).T + 0.3 * np.exp(0.5 * u @ kernel / 1500)
    runs = loca.Samples(u, nodes, s, x=nodes)
    return runs.take(jnp.arange(100)), runs.take(jnp.arange(100, 200))


def numbers(seed: int) -> Pair:
    """Five numbers to a curve, of other runs for every seed."""
    return scalars(seed)


CASES = {
    "darcy-16": lambda seed: darcy(16, 300, 64, seed),
    "darcy-32": lambda seed: darcy(32, 1000, 128, seed),
    "mesh": mesh,
    "scalars": numbers,
}


def measure(case: str, seed: int) -> dict:
    """One case in this process."""
    train, test = CASES[case](seed)
    jax.block_until_ready((train, test))
    solve, programs = loca.solve, []  # without its imports
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: programs.append(seconds) if name.endswith("backend_compile_duration") else None
    )
    begun = time.process_time()
    operator, report = solve(train, seed=seed, progress=False)
    seconds, compiled = time.process_time() - begun, (len(programs), sum(programs))
    print(report, file=sys.stderr, flush=True)
    return {
        "seconds": round(seconds, 2),
        "programs": compiled[0],
        "compiling": round(compiled[1], 2),
        "trials": len(report.trials),
        "iterations": sum(each.iterations for each in report.trials),
        "validation": report.error,
        "error": float(np.mean(loca.evaluate(operator, test).errors["relative_l2"])),
    }


def of_peer(seed: int, python: str) -> dict:
    """The Gaussian process of scikit-learn on `scalars`; its seconds contain imports."""
    train, test = numbers(seed)
    parts = {"train": train, "validation": test.take(jnp.arange(1)), "test": test}
    with tempfile.TemporaryDirectory() as scratch:
        given, found = Path(scratch, "data.npz"), Path(scratch, "predictions.npz")
        arrays = {f"{name}_{side}": np.asarray(getattr(part, side)) for name, part in parts.items() for side in "us"}
        np.savez(given, seed=seed, **arrays)
        before = os.times()
        subprocess.run([python, PEER, given, found], check=True)
        after = os.times()
        with np.load(found) as file:
            predictions = file["test_s"]
    truth = np.asarray(test.s)
    errors = np.linalg.norm(predictions - truth, axis=1) / np.linalg.norm(truth, axis=1)
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": round(seconds, 2), "error": float(errors.mean())}


TITLES = {
    "darcy-16": "rough Darcy flow on 16 × 16, 300 functions × 64 labels",
    "darcy-32": "rough Darcy flow on 32 × 32, 1000 functions × 128 labels",
    "mesh": "100 functions on a mesh of 1500 nodes, all labels",
    "scalars": "five numbers to a curve of 50 points, 60 runs",
    "scikit-learn": "the same with scikit-learn's Gaussian process",
}


def table(rows: list[dict]) -> str:
    """Core seconds, trials and error of every case, means over seeds."""

    def mean(case: str, name: str, form: str) -> str:
        found = [row[name] for row in rows if row["case"] == case and name in row]
        return format(float(np.mean(found)), form) if found else "–"

    lines = []
    for case in (case for case in TITLES if any(row["case"] == case for row in rows)):
        numbers = mean(case, "seconds", ".1f"), mean(case, "programs", ".0f"), mean(case, "trials", ".0f")
        lines.append([TITLES[case], *numbers, f"{mean(case, 'error', '.2%').replace('%', ' %')}"])
    return markdown(["problem", "core seconds", "compiled programs", "trials", "error"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, "scikit-learn"], action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable, help="of an environment with scikit-learn")
    parser.add_argument("--table", action="store_true", help="print the results")
    parser.add_argument("--here", nargs=2, metavar=("CASE", "SEED"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(json.dumps(measure(given.here[0], int(given.here[1]))))
        return
    if given.table:
        print(table(read_rows(RESULTS)))
        return
    rows = Rows(RESULTS)
    for seed in range(given.seeds):
        for case in given.case or [*CASES, "scikit-learn"]:
            if {"case": case, "seed": seed} in rows:
                continue
            if case == "scikit-learn":
                found = of_peer(seed, given.python)
            else:
                environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
                command = [sys.executable, __file__, "--here", case, str(seed)]
                run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                found = json.loads(run.stdout.splitlines()[-1])
            rows.add({"case": case, "seed": seed, **found})


if __name__ == "__main__":
    main()
