"""How accurate are operators that are solved for, with everything chosen on validation functions?

    LOCA_DATA=/path/to/data LOCA_MNIST=/path/to/mnist.npz python studies/solved.py           # all cases, 3 seeds
    LOCA_DATA=/path/to/data python studies/solved.py --case darcy-easy-1000-128 --seeds 1    # one case, one seed

Data and mean field are those of `loca-reproduce`. Ridge regression has the transforms of the operator if they lower
its error on validation functions. Errors are relative L2 errors over complete fields of test functions, for each
channel. Skill is 1 − MSE/MSE of climatology. Coverage is the share of points of 100 test functions within 1.645 `std`
of the prediction; it should be 90 %. `bands` are those of level 90 % on every second test function, after calibration
on the others: coverage of points, share of functions that simultaneous bands contain entirely, mean width and CRPS,
each for every channel. Maps that are smooth and known without noise are solved for in double precision, as with
JAX_ENABLE_X64=1. Core minutes count the time of one core, which other processes do not lengthen as they do minutes.
Results are added to studies/solved.json, one row per case and seed; rows that exist are not computed again.
"""

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rows import Rows, markdown, read_rows
from scipy.stats import binom

import loca
from loca.choosing import fit_ridge
from loca.evaluation import evaluate
from loca.problems import Antiderivative, Darcy, ShallowWater
from loca_reproduction.claims import Results
from loca_reproduction.claims.comparison import run_name
from loca_reproduction.problems import Climate, MechanicalMNIST
from loca_reproduction.runs import BASELINES
from loca_reproduction.sources import DataSource, Drawn, Recorded, RunData, Unseen

RESULTS = Path(__file__).parent / "solved.json"
CACHE = Path(os.environ.get("LOCA_CACHE", "build/solved"))
LENGTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DOUBLE = ("darcy-easy-1000-all",)
"""Cases in double precision."""
QUANTILE, LEVEL = 1.645, 0.9
NOISE = 0.15
"""Of the inputs of noisy functions."""
FUNCTIONS = 100


def darcy(preset: str, functions: int, labels: int | None) -> Drawn:
    return Drawn(Darcy(resolution=32, preset=preset), functions, labels)


def record(kind: str, name: str, labels: int | None) -> Recorded:
    return Recorded(Climate(kind, f"{os.environ['LOCA_DATA']}/{name}"), labels)


def shifted(length: float) -> Drawn:
    return Drawn(Antiderivative(length=length), 1000, tests=(("test", Unseen(Antiderivative(length=0.1))),))


def plates() -> Drawn:
    unseen = MechanicalMNIST(split="test")
    tests = (("clean", Unseen(unseen)), ("noisy", Unseen(unseen, NOISE)))
    return Drawn(MechanicalMNIST(), 10_000, 56, 0.0, tests, validation=500, test=1000, same=True)


@dataclasses.dataclass(frozen=True)
class NoisyValidation(DataSource):
    """Validation functions have noisy inputs, as the first test functions have."""

    source: DataSource

    @property
    def key(self) -> dict:
        return {**self.source.key, "validation noise": NOISE}

    def load(self, seed: int, cache: Path) -> RunData:
        data = self.source.load(seed, cache)
        validation = data.validation.corrupt(jax.random.key(seed), NOISE)
        return dataclasses.replace(data, validation=validation, tests=dict(reversed(list(data.tests.items()))))


def source(case: str) -> DataSource:
    match case.split("-"):
        case ["darcy", preset, functions, labels]:
            return darcy(preset, int(functions), None if labels == "all" else int(labels))
        case ["antiderivative", "many"]:
            return Drawn(Antiderivative.multi_scale(), 1000)
        case ["antiderivative", length]:
            return shifted(float(length))
        case ["shallow", "water"]:
            return Drawn(ShallowWater(), 1000, labels=128, validation=100, test=200)
        case ["globe"]:
            return record("speedy", "speedy_daily.npz", 144)
        case ["europe"]:
            return record("era_interim", "erainterim_daily_weurope.npz", None)
        case ["mnist"]:
            return plates()
        case ["mnist", "noisy"]:
            return NoisyValidation(plates())
    raise SystemExit(f"unknown case {case}; expected one of {', '.join(CASES)}")


CASES = (
    "darcy-easy-1000-128", "darcy-easy-1000-16", "darcy-easy-200-16", "darcy-easy-1000-all", "darcy-literal-1000-128",
    "darcy-literal-200-16", "shallow-water", "europe", "globe", "antiderivative-many",
    *(f"antiderivative-{length}" for length in LENGTHS), "mnist", "mnist-noisy",
)  # fmt: skip


@eqx.filter_jit
def scores(operator: loca.GaussianOperator, u: jax.Array, y: jax.Array, s: jax.Array) -> jax.Array:
    """(truth − prediction)/std of one function."""
    return (s - operator(u, y)) / operator.std(u, y)


def measure(operator: loca.Operator, data) -> dict:
    found = {}
    for name, test in data.tests.items():
        report = evaluate(operator, test, weights=data.weights, reference=data.reference)
        found[name] = report.errors["relative_l2"].mean(axis=0).tolist()
        if data.reference is not None:
            found["skill"] = report.overall_skill()
    return found


def coverage(operator: loca.GaussianOperator, data) -> list[float]:
    test = next(iter(data.tests.values()))
    rows = range(min(FUNCTIONS, len(test)))
    y = test.y.points
    inside = [np.abs(np.asarray(scores(operator, test.u[i], y, test.s[i]))) < QUANTILE for i in rows]
    return np.mean(inside, axis=(0, 1)).tolist()


def bands(operator: loca.Operator, data) -> dict:
    test = next(iter(data.tests.values()))
    held, new = (test.take(jnp.arange(start, len(test), 2)) for start in (0, 1))
    report = evaluate(loca.calibrate(operator, held, weights=data.weights), new, weights=data.weights)
    found = {name: report.errors[name].mean(axis=0).tolist() for name in ("coverage", "contained", "width", "crps")}
    return {"functions": len(new), **found}


def row(case: str, seed: int) -> dict:
    CACHE.mkdir(parents=True, exist_ok=True)
    data = source(case).load(seed, CACHE)
    began, used = time.time(), time.process_time()
    operator, report = loca.solve(data.train, validation=data.validation, seed=seed, progress=False)
    print(report, flush=True)
    minutes, core_minutes = (time.time() - began) / 60.0, (time.process_time() - used) / 60.0
    return {
        "case": case, "seed": seed, "minutes": minutes, "core_minutes": core_minutes,
        "solve_seconds": report.solve_seconds, "trials": len(report.trials), "iterations": report.iterations,
        "hyperparameters": str(report.hyperparameters), "precision": str(operator.coefficients.dtype),
        "gaussian": measure(operator, data), "coverage": coverage(operator, data),
        "bands": bands(operator, data), "mean field": measure(BASELINES["mean field"](data), data),
        "ridge": measure(fit_ridge(data.train, data.validation, transforms=True)[0], data),
    }  # fmt: skip


TRAINED = {
    "darcy-easy-1000-128": ("R4", "easy", None, "test"), "darcy-easy-1000-16": ("R2", "easy", 16.0, "test"),
    "darcy-easy-200-16": ("R1", "easy", None, "test"), "darcy-easy-1000-all": ("R2", "easy", 1024.0, "test"),
    "darcy-literal-1000-128": ("R4", "literal", None, "test"), "darcy-literal-200-16": ("R1", "literal", None, "test"),
    "shallow-water": ("R5", "waves", None, "test"), "globe": ("R8", "globe (simulated)", None, "test"),
    "europe": ("R8", "Western Europe (ERA-Interim)", None, "test"),
    "antiderivative-many": ("R10", "many scales", None, "test"), "mnist": ("R6", "clean training", None, None),
    "mnist-noisy": ("R6", "clean training", None, None),
    **{f"antiderivative-{length}": ("R9", "shift", length, "length 0.1") for length in LENGTHS},
}  # fmt: skip
"""Where the same data was used to train networks: claim, condition, its value, and the test functions."""


def title(case: str) -> str:
    """The name of a case in tables."""
    match case.split("-"):
        case ["darcy", preset, functions, labels]:
            inputs = {"easy": "smooth", "literal": "rough"}[preset]
            return f"Darcy flow, {inputs} inputs, {functions} functions, {'all' if labels == 'all' else labels} labels"
        case ["antiderivative", "many"]:
            return "Antiderivative, many length scales"
        case ["antiderivative", length]:
            return f"Antiderivative, trained on length {length}"
    return {
        "shallow-water": "Shallow water", "europe": "Climate, Western Europe", "globe": "Climate, simulated globe",
        "mnist": "Mechanical MNIST", "mnist-noisy": "Mechanical MNIST, noisy validation",
    }[case]  # fmt: skip


CHANNELS = {
    "shallow": ("height", "first velocity", "second velocity"),
    "mnist": ("first displacement", "second displacement"),
}
"""The outputs of cases with several."""


def channels(case: str) -> list[str]:
    """What distinguishes the rows of a case: one for each output."""
    return [f", {name}" for name in CHANNELS.get(case.split("-")[0], ())] or [""]


def tables(results: list[dict]) -> list[str]:
    """Means over seeds, as Markdown: errors, minutes, and coverage with the error of the mean field."""
    errors, times, checks = [], [], []
    for case in sorted({row["case"] for row in results}, key=CASES.index):
        rows = [row for row in results if row["case"] == case]
        (minutes,) = means([row["core_minutes"] for row in rows])
        trained = [trained_minutes(case, model) for model in TRAINED_MODELS]
        times.append([title(case), *(f"{each:.1f}" for each in (minutes, *trained))])
        coverage = means([row["coverage"] for row in rows])
        for name in rows[0]["gaussian"]:
            label = title(case) if name == "test" else f"{title(case)}, {name}{'' if name == 'skill' else ' inputs'}"
            found = {who: means([row[who][name] for row in rows]) for who in ("gaussian", "ridge", "mean field")}
            found |= {model: of_trained(case, name, model) for model in TRAINED_MODELS}
            for i, channel in enumerate(channels(case)):
                shown_errors = [shown(name, found[who][i]) for who in ("gaussian", *TRAINED_MODELS, "ridge")]
                errors.append([label + channel, *shown_errors])
                covered = f"{100.0 * coverage[i]:.0f} %"
                checks.append([label + channel, shown(name, found["mean field"][i]), covered])
    return [
        markdown(["case", "Gaussian operator", *TRAINED_MODELS, "ridge"], errors),
        markdown(["minutes", "Gaussian operator", *TRAINED_MODELS], times),
        markdown(["case", "mean field", "coverage"], checks),
    ]


def bands_table(results: list[dict]) -> str:
    """Calibrated bands of seed 0 as Markdown."""
    lines = []
    found = [row for row in results if row["seed"] == 0 and "bands" in row]
    for row in sorted(found, key=lambda row: CASES.index(row["case"])):
        each = row["bands"]
        least, most = binom.interval(0.99, each["functions"], LEVEL)
        expected = f"{100.0 * least / each['functions']:.1f} to {100.0 * most / each['functions']:.1f} %"
        for i, channel in enumerate(channels(row["case"])):
            shares = [f"{100.0 * each[name][i]:.1f} %" for name in ("coverage", "contained")]
            lines.append([title(row["case"]) + channel, str(each["functions"]), *shares, expected])
    return markdown(["case", "new functions", "points inside", "functions inside", "99 % of the time"], lines)


def shown(name: str, value: float) -> str:
    """An error in percent, or a skill."""
    return f"{value:.2f}" if name == "skill" else f"{100.0 * value:.3g} %"


TRAINED_MODELS = ("LOCA", "FNO", "DeepONet")


def rows_of_trained(case: str, model: str) -> tuple[list, list[float]]:
    """The results of a trained model with the data of a case, and the seconds that each training took."""
    claim, condition, value, _ = TRAINED[case]
    content = json.loads((RESULTS.parents[1] / f"results/{claim}.json").read_text())
    found = Results.from_json(content["numbers"]["rows"]).select(model=model, condition=condition)
    rows = [row for row in found if row.value == value]
    return rows, [content["made"]["seconds"][run_name(condition, value, model, row.seed)] for row in rows]


def trained_minutes(case: str, model: str) -> float:
    """The median of the minutes of a training."""
    return float(np.median(rows_of_trained(case, model)[1])) / 60.0


def of_trained(case: str, name: str, model: str) -> list[float]:
    """The error of a trained model on the same test functions, for every channel, or its skill."""
    rows = [row for row in rows_of_trained(case, model)[0] if row.test == (TRAINED[case][3] or name)]
    if name == "skill":
        return means([row.report.overall_skill() for row in rows])
    return means([row.report.errors["relative_l2"].mean(axis=0) for row in rows])


def means(values: list) -> list[float]:
    """The mean over seeds, of every channel."""
    return np.atleast_1d(np.mean(values, axis=0)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="print the results so far as Markdown")
    given = parser.parse_args()
    if given.table:
        results = read_rows(RESULTS)
        print(*tables(results), bands_table(results), sep="\n\n")
        return
    rows = Rows(RESULTS)
    for seed in range(given.seeds):
        for case in given.case or CASES:
            if {"case": case, "seed": seed} not in rows:
                with jax.enable_x64(case in DOUBLE):
                    rows.add(row(case, seed))


if __name__ == "__main__":
    main()
