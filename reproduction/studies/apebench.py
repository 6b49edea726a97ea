"""Rollouts of solved steppers and of the networks of APEBench, on its data and by its metric.

    python studies/apebench.py --environment ENV --data DIRECTORY                 # everything
    python studies/apebench.py --environment ENV --data DIRECTORY --scenario burgers-1d --model "local stepper"
    python studies/apebench.py --table                                            # the table of docs/time.md

Default difficulties of six scenarios in one dimension (160 points) and two in two (32 × 32), with 50 trajectories of
51 frames; the test are 30 trajectories of 201 frames, looked at once for each row. Networks are those of APEBench with
its recipe (10,000 steps of Adam, one-step targets), in the environment ENV: see peers/steppers.py. The error of a step
is the mean over trajectories and fields of the relative L2 error, that of a rollout its geometric mean over 100 steps.
A rollout diverges if a value is three times as large as any of the test. Core seconds contain search and compilation.
Rows are added to studies/apebench.json; those that exist are not computed again.
"""

import argparse
import json
import subprocess
import time
from pathlib import Path

import jax
import numpy as np
from rows import Rows, markdown, read_rows

import loca
from loca.domains import Torus, grid

RESULTS = Path(__file__).parent / "apebench.json"
PEER = Path(__file__).parents[1] / "peers" / "steppers.py"
SCENARIOS = (
    "advection-1d", "burgers-1d", "kdv-1d", "ks-conservative-1d", "ks-1d", "fisher-1d", "burgers-2d", "ks-2d",
)  # fmt: skip
NETWORKS = {
    "FNO": "FNO;12;18;4;gelu",
    "ConvNet": "Conv;34;10;relu",
    "ResNet": "Res;26;8;relu",
    "UNet": "UNet;12;2;relu",
}
MODELS = {"local stepper": 1, "FNO": 3, "UNet": 1, "ResNet": 1, "ConvNet": 1}
"""All models and the number of seeds of each."""

STEPS = 100


def trajectories(values):
    """Trajectories on the unit torus from (N, T, d, *grid)."""
    shape = values.shape[3:]
    domain = Torus((0.0,) * len(shape), (1.0,) * len(shape))
    s = np.moveaxis(values.reshape(*values.shape[:3], -1), 2, 3)
    return loca.Trajectories(s, grid(*(np.arange(n) / n for n in shape)), domain=domain)


def solved(path):
    """Errors of the stepper that is solved for."""
    with np.load(path) as file:
        train, test = trajectories(file["train"]), trajectories(file["test"])
    begun = time.process_time()
    stepper, report = loca.solve(train, progress=False)
    seconds = time.process_time() - begun
    frames, truth = stepper.rollout(test.s[:, :1], test.frames - 1), test.s[:, 1:]
    squares = [np.sum(each.astype(np.float64) ** 2, axis=2) for each in (frames - truth, truth)]
    errors = np.sqrt(squares[0] / squares[1]).mean(axis=(0, 2))
    diverged = ~(np.abs(frames).max(axis=(1, 2, 3)) <= 3.0 * np.abs(truth).max())
    settings = {k: v for k, v in report._asdict().items() if k != "seconds"}
    return {"errors": errors.tolist(), "diverged": int(diverged.sum()), "core seconds": seconds, "settings": settings}


def table(results):
    """Geometric means of the error over 100 steps, and core seconds, as Markdown."""
    lines = []
    for scenario in SCENARIOS:
        cells = [scenario]
        for model in MODELS:
            own = [row for row in results if row["scenario"] == scenario and row["model"] == model]
            means = [np.exp(np.mean(np.log(row["errors"][:STEPS]))) for row in own]
            seconds = f"{np.mean([row['core seconds'] for row in own]):.0f} s" if own else ""
            cells.append(f"{np.mean(means):.2g} ({seconds})" if own else "–")
        lines.append(cells)
    return markdown(["scenario", *MODELS], lines)


def main():
    """Add the rows that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, help="of APEBench")
    parser.add_argument("--data", type=Path, help="where its data are, or are written to")
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table(read_rows(RESULTS)))
        return
    rows = Rows(RESULTS)
    for scenario in [given.scenario] if given.scenario else SCENARIOS:
        peer = [str(given.environment / "bin" / "python"), str(PEER), scenario]
        path = given.data / f"{scenario}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([*peer, "--out", str(path)], check=True)
        for model, seeds in MODELS.items():
            for seed in range(seeds):
                key = {"scenario": scenario, "model": model, "seed": seed}
                if key in rows or given.model not in (None, model):
                    continue
                if model in NETWORKS:
                    command = [*peer, "--network", NETWORKS[model], "--seed", str(seed)]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    rows.add(key | json.loads(done.stdout.splitlines()[-1]))
                else:
                    rows.add(key | solved(path))
                jax.clear_caches()


if __name__ == "__main__":
    main()
