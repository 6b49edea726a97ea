"""What a structure tensor and a local correction gain on Darcy flow, with and without symmetries.

    python studies/local.py                                     # all cases
    python studies/local.py --case rough-1000-128               # one case
    python studies/local.py --table                             # print the table of docs/solving.md

Data are those of `loca.problems.Darcy` on a 32 × 32 grid with P random labels for each training function, seed 0. The
search is done once for each case, without symmetries; hyperparameters are chosen on a fifth of the training functions.
1000 other functions are the test, and looked at once for each row. Rows are added to studies/local.json; those that
exist are not computed again.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import numpy as np
from rows import Rows, markdown, read_rows

import loca
from loca.gaussian import Hyperparameters
from loca.metrics import relative_l2

RESULTS = Path(__file__).parent / "local.json"
CASES = {
    "rough-1000-128": ("literal", 1000, 128),
    "rough-200-16": ("literal", 200, 16),
    "smooth-1000-128": ("easy", 1000, 128),
}
SYMMETRIES = ["reflect y", "scale"]
ROWS = {
    "plain": (False, None, False),
    "structure": (True, None, False),
    "correction": (False, None, True),
    "structure and correction": (True, None, True),
    "symmetries": (False, SYMMETRIES, False),
    "everything": (True, SYMMETRIES, True),
}
"""Whether the structure tensor is kept, the symmetries, and whether there is a correction."""

BLOCK, LEVEL = 50, 0.9


def found(rows, case, train):
    """The hyperparameters of a case, from its first row or from a search."""
    for row in rows.done:
        if row["case"] == case:
            return row["hyperparameters"]
    begun = time.process_time()
    report = loca.solve(train, progress=False)[1]
    known = json.loads(json.dumps(dataclasses.asdict(report.hyperparameters)))
    rows.add({"case": case, "model": "search", "hyperparameters": known, "core seconds": time.process_time() - begun})
    return known


def measure(operator, test):
    """The mean relative L2 error on test functions, and the share of values within 90 % bands."""
    errors, inside = [], []
    for start in range(0, len(test), BLOCK):
        part = test.take(np.arange(start, min(start + BLOCK, len(test))))
        bars = operator.predict_error_bars(part.u, part.y, LEVEL)
        errors.append(np.asarray(relative_l2(bars.mean, part.s)))
        inside.append(np.asarray((bars.lower <= part.s) & (part.s <= bars.upper)))
    return {"error": float(np.mean(np.concatenate(errors))), "coverage": float(np.mean(np.concatenate(inside)))}


def table(results):
    """Test errors in percent as Markdown."""
    lines = []
    for name in ROWS:
        cells = [name]
        for case in CASES:
            own = [row for row in results if row["case"] == case and row["model"] == name]
            cells += [f"{100.0 * own[0]['error']:.2f}", f"{own[0]['core seconds']:.0f}"] if own else ["–", "–"]
        lines.append(cells)
    return markdown(["model", *(word for case in CASES for word in (case, "core seconds"))], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--model", action="append", choices=ROWS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the results so far as Markdown")
    given = parser.parse_args()
    if given.table:
        print(table(read_rows(given.out)))
        return
    rows = Rows(given.out)
    for case in given.case or CASES:
        preset, count, labels = CASES[case]
        problem = loca.problems.Darcy(resolution=32, preset=preset)
        train = problem.sample(jax.random.key(0), count).observe(jax.random.key(2), labels)
        test = problem.sample(jax.random.key(1), 1000)
        known = found(rows, case, train)
        for name in given.model or ROWS:
            if {"case": case, "model": name} in rows:
                continue
            structure, symmetries, correct = ROWS[name]
            weight = known["structure"] if structure else 0.0
            hyper = dataclasses.replace(Hyperparameters.of(known), structure=weight, amplitudes=())
            begun = time.process_time()
            operator, report = loca.solve(
                train, hyperparameters=hyper, symmetries=symmetries, correct=correct, progress=False
            )
            seconds = time.process_time() - begun
            about = report.correction._asdict() if report.correction else None
            rows.add(
                {"case": case, "model": name, **measure(operator, test), "core seconds": round(seconds, 1)}
                | {"seed": 0, "hyperparameters": known, "symmetries": symmetries, "correction": about}
                | {"command": f"python studies/local.py --case {case} --model {name!r}"}
            )


if __name__ == "__main__":
    main()
