"""Error bars on small cases: coverage of bands before and after calibration, shifted inputs, figures of the docs.

    python studies/trust.py --out DIR     # writes trust.json and the figures uncertainty_*.png

Models are solved for on few labels, calibrated on held-out functions and evaluated on others. Nothing is chosen on the
functions that are evaluated.
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np
from scipy.stats import binom

import loca
from loca.problems import Antiderivative, Darcy
from loca.uncertainty import ALARM

HELD, NEW, LEVEL = 100, 200, 0.9


def case(problem, functions, labels, seed=0):
    """A solved model, the same model after calibration, and new functions."""
    keys = jax.random.split(jax.random.key(seed), 4)
    train = problem.sample(keys[0], functions).observe(keys[1], labels)
    operator, _ = loca.solve(train)
    return operator, loca.calibrate(operator, problem.sample(keys[2], HELD)), problem.sample(keys[3], NEW)


def numbers(report):
    """Means over functions, and the correlation of σ with the error."""
    named = {name: float(report.errors[name].mean()) for name in ("relative_l2", "coverage", "width", "crps")}
    if "contained" in report.errors:
        named["contained"] = float(report.errors["contained"].mean())
    return {**named, "rank_correlation": report.rank_correlation()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    found = {"99 % of contained": (binom.interval(0.99, NEW, LEVEL) / np.array(NEW)).tolist()}

    operator, calibrated, new = case(Darcy(resolution=16, preset="easy"), 120, 32)
    reports = {"solved": loca.evaluate(operator, new), "calibrated": loca.evaluate(calibrated, new)}
    found["darcy"] = {name: numbers(report) for name, report in reports.items()}
    named = {f"Gaussian operator, {name}": report for name, report in reports.items()}
    loca.figures.reliability(named).savefig(out / "uncertainty_reliability.png", dpi=150)
    loca.figures.error_bars(calibrated, new, rows=2).savefig(out / "uncertainty_fields.png", dpi=150)

    operator, calibrated, new = case(Antiderivative(length=0.5), 40, 4)
    reports = {"solved": loca.evaluate(operator, new), "calibrated": loca.evaluate(calibrated, new)}
    shifted = Antiderivative(length=0.1).sample(jax.random.key(9), NEW)
    reports["shifted"] = loca.evaluate(calibrated, shifted)
    found["antiderivative"] = {name: numbers(report) for name, report in reports.items()}
    flagged = {"new": new, "length 0.1": shifted}
    found["flagged"] = {n: float(np.mean(calibrated.in_distribution(d.u) <= ALARM)) for n, d in flagged.items()}
    worst = [int(i) for i in reports["shifted"].worst("rmse", count=2)]
    captions = [f"function {i}" for i in worst]
    figure = loca.figures.error_bars(calibrated, shifted, rows=worst, captions=captions)
    figure.savefig(out / "uncertainty_curves.png", dpi=150)
    (out / "trust.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
