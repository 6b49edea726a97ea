"""The standard two-valued Darcy sets, with a Gaussian operator: with the symmetries of the square, and corrected.

    python studies/standard.py --task bundled          # 16 × 16, reads LOCA_DATA/neuraloperator_darcy_16.npz
    python studies/standard.py --task piecewise-29     # 1000 training and 200 test functions of our own
    python studies/standard.py --task piecewise-85
    python studies/standard.py --table

The same command resumes, also while functions are generated, which takes 0.4 core seconds each: they are kept in
LOCA_CACHE or build/standard, on 85 × 85 points, of which the smaller set has every third. `--fine 57` solves the
equation on a coarser grid, for a quick look. Each search knows the symmetries. Test functions are used once for each
row. Results are added to studies/standard.json.
"""

import argparse
import dataclasses
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from compared import bundled
from rows import Rows, markdown, read_rows

import loca

RESULTS, WORK = Path(__file__).with_suffix(".json"), Path(os.environ.get("LOCA_CACHE", "build/standard"))
TASKS = {
    "bundled": ["transpose x y", "reflect x at 0.5"],  # the last point of each axis of the grid is at 15/16
    "piecewise-29": ["transpose x y", "reflect x"],
    "piecewise-85": ["transpose x y", "reflect x"],
}


def functions(task, fine=421):
    """Training and test functions."""
    if task == "bundled":
        return bundled()
    resolution = int(task.partition("-")[2])
    largest = 85 if (fine - 1) % 84 == 0 else resolution
    problem = loca.problems.Darcy(resolution=largest, preset="piecewise", fine=fine)
    WORK.mkdir(parents=True, exist_ok=True)
    sizes = {"train": (1000, 0), "test": (200, 1)}
    stores = [
        loca.problems.generate(problem, count, WORK / f"piecewise-{largest}-{fine}-{part}.zarr", seed=seed)
        for part, (count, seed) in sizes.items()
    ]
    return tuple(every((largest - 1) // (resolution - 1), store.load()) for store in stores)


def every(step, samples):
    """The same functions on every second or third point of their square grid."""
    count = round(samples.y.count**0.5)
    rows = np.arange(count**2).reshape(count, count)[::step, ::step].ravel()
    y = loca.data.Shared(samples.y.points[rows])
    return dataclasses.replace(samples, u=samples.u[:, rows], y=y, s=samples.s[:, rows], x=samples.x[rows])


def table(results):
    """Test errors as Markdown."""
    lines = []
    for row in results:
        grid = "" if row["task"] == "bundled" else f", solved on {row['fine']} × {row['fine']}"
        names, corrected = ", ".join(row["symmetries"]) or "none", "yes" if row.get("correct") else "no"
        error, minutes = f"{100 * row['error']:.3g} %", f"{row['core seconds'] / 60:.1f}"
        lines.append([row["task"] + grid, names, corrected, error, minutes])
    return markdown(["data", "symmetries", "corrected", "test error", "core minutes"], lines, words=3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--fine", type=int, default=421)
    parser.add_argument("--table", action="store_true", help="print the results so far as Markdown")
    given = parser.parse_args()
    if given.table:
        print(table(read_rows(RESULTS)))
        return
    rows = Rows(RESULTS)
    for task in given.task or TASKS:
        key = {"task": task, "fine": given.fine}
        if {**key, "symmetries": TASKS[task], "correct": True} in rows:
            continue
        train, test = functions(task, given.fine)
        jax.block_until_ready((train.s, test.s))
        for names in ([], TASKS[task]):
            found, seconds = None, 0.0
            for correct in (False, True)[: 1 + bool(names)]:
                begun, options = time.process_time(), {"symmetries": names or None, "correct": correct}
                operator, report = loca.solve(train, hyperparameters=found, progress=False, **options)
                found, seconds = report.hyperparameters, seconds + time.process_time() - begun
                error = float(jnp.mean(loca.metrics.relative_l2(operator.predict(test.u, test.y), test.s)))
                row = {"symmetries": names, "correct": correct, "error": error, "core seconds": round(seconds, 1)}
                rows.add({**key, **row})


if __name__ == "__main__":
    main()
