"""Which error bars are better: those of a Gaussian operator, of an ensemble, or of a network with a second output?

    LOCA_DATA=/path/to/data python studies/error_bars.py                  # all cases and models
    LOCA_DATA=/path/to/data python studies/error_bars.py --case europe    # one case
    python studies/error_bars.py --table                                  # print the tables of docs/uncertainty.md

Data are those of studies/solved.py, seed 0. Members of the ensemble and the network are LOCA models with default sizes.
They take the logarithm of the permeability, as the Gaussian operator does. `coverage` is the share of points of new
functions inside bands of level 90 %, and `crps` the continuous ranked probability score in data units, before and
after calibration. `contained` is the share of new functions that lie entirely inside simultaneous bands, which only
calibrated models have. Calibration uses every second test function, and all figures are those of the others.
Results are added to studies/error_bars.json, one row per case and model; rows that exist are not computed again.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from rows import Rows, markdown, read_rows
from solved import CACHE, channels, source, title

import loca
from loca.evaluation import evaluate
from loca_reproduction.sources import RunData

RESULTS = Path(__file__).parent / "error_bars.json"
CASES = ("darcy-easy-1000-128", "shallow-water", "europe")
MODELS = ("Gaussian operator", "Ensemble", "Probabilistic")
NAMES = dict(zip(MODELS, ("Gaussian operator", "ensemble", "network with σ"), strict=True))
MEMBERS, STEPS = 4, 1000
METRICS = ("coverage", "width", "crps")


def fitted(model: str, case: str, data: RunData) -> loca.Operator:
    """A model with error bars of its own."""
    if model == "Gaussian operator":
        return loca.solve(data.train, validation=data.validation, progress=False)[0]
    options = {"transforms": {"permeability": "log"}} if "darcy" in case else {}
    if model == "Ensemble":
        options["size"] = MEMBERS
    operator = getattr(loca, model).create(loca.LOCA.create, data.train, key=jax.random.key(0), **options)
    return loca.fit(operator, data.train, steps=STEPS, progress=False)[0]


def row(case: str, model: str) -> dict:
    """Times and metrics of one model."""
    CACHE.mkdir(parents=True, exist_ok=True)
    data = source(case).load(0, CACHE)
    began, used = time.time(), time.process_time()
    operator = fitted(model, case, data)
    found = {"case": case, "model": model, "seconds": time.time() - began, "core_seconds": time.process_time() - used}
    test = next(iter(data.tests.values()))
    held, new = (test.take(jnp.arange(start, len(test), 2)) for start in (0, 1))
    calibrated = loca.calibrate(operator, held, weights=data.weights)
    for name, each in {"before": operator, "after": calibrated}.items():
        report = evaluate(each, new, weights=data.weights)
        kept = METRICS if name == "before" else (*METRICS, "contained", "relative_l2")
        found[name] = {metric: report.errors[metric].mean(axis=0).tolist() for metric in kept}
    return {**found, "functions": len(new)}


def tables(results: list[dict]) -> list[str]:
    """Errors and widths, and what bands contain, as Markdown."""
    errors, shares = [], []
    for each in sorted(results, key=lambda each: (CASES.index(each["case"]), MODELS.index(each["model"]))):
        before, after = each["before"], each["after"]
        for i, channel in enumerate(channels(each["case"])):
            label = [title(each["case"]) + channel, NAMES[each["model"]]]
            error, crps, width = (after[name][i] for name in ("relative_l2", "crps", "width"))
            cells = [f"{100.0 * error:.3g} %", f"{crps:.4g}", f"{width:.4g}", f"{each['core_seconds'] / 60.0:.1f}"]
            errors.append([*label, *cells])
            inside = before["coverage"][i], after["coverage"][i], after["contained"][i]
            shares.append([*label, *(f"{100.0 * share:.0f} %" for share in inside)])
    return [
        markdown(["case", "model", "error", "CRPS", "width", "core minutes"], errors, words=2),
        markdown(["case", "model", "coverage", "after calibration", "whole functions"], shares, words=2),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--table", action="store_true", help="print the results so far as Markdown")
    given = parser.parse_args()
    if given.table:
        print(*tables(read_rows(RESULTS)), sep="\n\n")
        return
    rows = Rows(RESULTS)
    for case in given.case or CASES:
        for model in given.model or MODELS:
            if {"case": case, "model": model} not in rows:
                rows.add(row(case, model))


if __name__ == "__main__":
    main()
