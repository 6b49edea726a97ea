"""What do a map around the network, symmetries and the recipes of `loca.fit` give together?

    LOCA_MNIST=/path/to/mnist.npz python reproduction/studies/around.py    # all runs, one after the other
    python reproduction/studies/around.py --case darcy --test          # test errors of what was chosen

Every run trains or solves for one model and measures its error on validation functions. With --test, the model of each
kind that is the best of them, and the combination of these, predict the test functions once. Results are added to
studies/around.json; rows that exist are not computed again. Models are kept in build/around.
"""

import argparse
import dataclasses
import functools
import os
import time
from pathlib import Path
from typing import NamedTuple

import jax
from rows import Rows

import loca
from loca.models import MODELS
from loca.problems import Darcy, MechanicalMNIST
from loca_reproduction.runs import mean_error
from loca_reproduction.sources import Drawn, RunData, Unseen

RESULTS = Path(__file__).parent / "around.json"
CACHE = Path(os.environ.get("LOCA_CACHE", "build/around"))
SQUARE = ("reflect x: -displacement_x1", "transpose x y: (displacement_x1 displacement_x2)")


class Case(NamedTuple):
    """Data, transforms of inputs, and symmetries that are known."""

    source: Drawn
    transforms: dict[str, str]
    symmetries: tuple[str, ...]


digits = Drawn(MechanicalMNIST(), 600, 56, validation=100, test=200)
noisy = (("test", Unseen(noise=0.15)),)
CASES = {
    "digits": Case(digits, {}, SQUARE),
    "noisy digits": Case(dataclasses.replace(digits, train_noise=0.15, tests=noisy), {}, SQUARE),
    "darcy": Case(
        Drawn(Darcy(resolution=32, preset="literal"), 1000, 128), {"permeability": "log"}, ("reflect y", "scale -1")
    ),
}


class Run(NamedTuple):
    """A model, its map, and whether it has the symmetries of the case."""

    model: str
    around: str = ""
    symmetries: bool = False
    steps: int = 0

    def __str__(self) -> str:
        around = f", around {self.around}" if self.around else ""
        return f"{self.model}{around}{', symmetries' if self.symmetries else ''}"


RUNS = {
    "digits": [
        *(Run("fno", around, steps=500) for around in ("proportional", "", "gaussian", "ridge")),
        Run("fno", "proportional", True, 500),
        *(Run("loca", around, steps=3000) for around in ("", "proportional")),
    ],
    "noisy digits": [Run("fno", around, steps=500) for around in ("proportional", "")],
    "darcy": [
        Run("gaussian", symmetries=True),
        Run("fno", symmetries=True, steps=1023),
        *(Run("loca", around, True, 4000) for around in ("", "ridge")),
    ],
}


def fitted(run: Run, case: Case, data: RunData, seed: int) -> loca.Operator:
    """The model of a run."""
    symmetries = case.symmetries if run.symmetries else None
    if run.model == "gaussian":
        options = {"symmetries": symmetries, "correct": True, "progress": False}
        return loca.solve(data.train, validation=data.validation, **options)[0]
    options = {}
    if run.around:
        options = {"around": MODELS[run.around].create, "validate": data.validation, "every": run.steps}
    if run.around == "ridge":
        options["around"] = functools.partial(MODELS["ridge"].create, transforms=case.transforms)
    if run.around == "gaussian":
        known = loca.solve(data.train, validation=data.validation, progress=False)[1].hyperparameters
        options["around"] = lambda samples: loca.solve(samples, hyperparameters=known, progress=False)[0]
    model = MODELS[run.model].create(data.train, key=jax.random.key(seed + 100), transforms=case.transforms)
    options |= {"symmetries": symmetries, "seed": seed, "progress": False}
    return loca.fit(model, data.train, steps=run.steps, **options)[0]


def test(name: str, seed: int, data: RunData, rows: Rows) -> None:
    """Test errors of the best runs of each model, and of their combination."""
    own = [row for row in rows.done if (row["case"], row["seed"]) == (name, seed) and "validation" in row]
    best = {row["run"].split(",")[0]: row for row in sorted(own, key=lambda row: -row["validation"])}
    models = {model: loca.load(CACHE / f"{name}-{row['run']}-{seed}.safetensors") for model, row in best.items()}
    found = {model: {"run": best[model]["run"], "chosen on validation": True} for model in models}
    if len(models) > 1:
        combined = loca.models.combine(models, data.validation)
        models["combination"], found["combination"] = combined.operator, {"validation by halves": combined.error}
        found["combination"] |= {
            "run": "combination",
            "weights": combined.operator.weights,
            "of": combined.operator.names,
        }
    for model, operator in models.items():
        calibrated = loca.calibrate(operator, data.validation)
        report = loca.evaluate(calibrated, next(iter(data.tests.values())))
        errors = {metric: float(report.errors[metric].mean()) for metric in ("relative_l2", "coverage")}
        errors["rank correlation of σ and error"] = report.rank_correlation(0)
        rows.add({"case": name, "seed": seed, "model": model} | found[model] | errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--run", action="append", help="such as 'fno, symmetries'; repeatable; all unless given")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--test", action="store_true")
    asked, rows = parser.parse_args(), Rows(RESULTS)
    CACHE.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seeds):
        for name in asked.case or CASES:
            data = CASES[name].source.load(seed, CACHE)
            for run in RUNS[name]:
                key = {"case": name, "run": str(run), "seed": seed}
                if key in rows or (asked.run and str(run) not in asked.run):
                    continue
                begun = time.process_time()
                operator = fitted(run, CASES[name], data, seed)
                taken = {"steps": run.steps, "core_seconds": time.process_time() - begun}
                loca.save(operator, CACHE / f"{name}-{run}-{seed}.safetensors", data=data.train)
                rows.add(key | taken | {"validation": mean_error(operator, data.validation)})
            if asked.test and not any({"case": name, "seed": seed, "model": model} in rows for model in MODELS):
                test(name, seed, data, rows)


if __name__ == "__main__":
    main()
