"""What do symmetries, a map around the network, the recipes of `loca.fit` and a local correction give together?

    LOCA_DATA=/path LOCA_MNIST=/path/mnist.npz python reproduction/studies/around.py   # all runs, one after the other
    python reproduction/studies/around.py --case darcy --run "fno, symmetries" --run "gaussian, symmetries"

Every run trains or solves for one model, measures its error on validation functions, and predicts the test functions
once. Error bars are calibrated on the validation functions. When all runs of a case are done, the best of each model on
validation functions are combined, with weights chosen on these, and the combination predicts the test functions once.
Results are added to studies/around.json, from which `make results` makes a table; rows that exist are not computed
again. Models are kept in LOCA_CACHE or build/around.
"""

import argparse
import dataclasses
import functools
import operator
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from compared import europe
from rows import Rows, read_rows
from standard import every, functions

import loca
from loca.gaussian import Hyperparameters
from loca.models import MODELS
from loca.problems import Darcy, ShallowWater
from loca_reproduction.machine import write
from loca_reproduction.problems import MechanicalMNIST
from loca_reproduction.runs import mean_error
from loca_reproduction.sources import Drawn, RunData, Unseen

RESULTS = Path(__file__).parent / "around.json"
CACHE = Path(os.environ.get("LOCA_CACHE", "build/around"))
SQUARE = ("reflect x: -displacement_x1", "transpose x y: (displacement_x1 displacement_x2)")
BASIN = ("reflect x1: -velocity_x1", "transpose x1 x2: (velocity_x1 velocity_x2)")
FINER_RATE = 1e-3
"""The highest learning rate after training on a coarser grid."""


class Run(NamedTuple):
    """How a model is trained or solved for; `symmetries` says whether it has those of the case."""

    model: str  # a second network, "fno 2", has other initial weights and another order of functions
    around: str = ""
    symmetries: bool | str = False  # all of the case, or those with this word
    steps: int = 0
    coarse: int = 0  # steps on every second point, before the others
    own: bool = False  # labels of its own for each function, so that images have none where their grid lacks a row
    correct: bool = True
    known: str = ""  # a case of local.py, whose search has found the hyperparameters

    def __str__(self) -> str:
        around = f", around {self.around}" if self.around else ""
        known = ", structure tensor" if self.known else ", own labels" if self.own else ""
        symmetries = f", {self.symmetries}" if isinstance(self.symmetries, str) else ", symmetries" * self.symmetries
        return f"{self.model}{around}{known}{symmetries}"


class Case(NamedTuple):
    """The data of a seed, transforms of inputs, symmetries that are known, and runs."""

    load: Callable[[int], RunData]
    transforms: dict[str, str]
    symmetries: tuple[str, ...]
    runs: tuple[Run, ...]


def drawn(*given: object, **options: object) -> Callable[[int], RunData]:
    """Functions of a problem."""
    return lambda seed: Drawn(*given, **options).load(seed, CACHE)  # pyright: ignore[reportArgumentType]


def given(pair: Callable[[], tuple[loca.Samples, ...]], held: int) -> Callable[[int], RunData]:
    """Training and test functions, of which some of the former are for validation."""

    def load(seed: int) -> RunData:
        train, test = pair()
        return RunData(*train.split(jax.random.key(seed), len(train) - held, held), {"test": test})

    return load


def digits(noise: float = 0.0) -> Callable[[int], RunData]:
    """Plates of training digits, and tests of others."""
    tests = (("test", Unseen(MechanicalMNIST(split="test"), noise)),)
    return drawn(MechanicalMNIST(), 1000, 56, noise, tests, validation=100, test=200, same=True)


def darcy(preset: str) -> Callable[[int], RunData]:
    return drawn(Darcy(resolution=32, preset=preset), 1000, 128)


LOG, REFLECTED = {"permeability": "log"}, ("reflect y", "scale -1")
CASES = {
    "bundled": Case(
        given(functools.partial(functions, "bundled"), 100), {}, ("transpose x y", "reflect x at 0.5"),
        (
            Run("gaussian", symmetries=True), Run("fno", symmetries=True, steps=3000),
            *(Run(model, symmetries=True, steps=3000, own=True) for model in ("fno", "fno 2")),
        ),
    ),
    "darcy": Case(
        darcy("literal"), LOG, REFLECTED,
        (
            Run("gaussian", symmetries=True), Run("gaussian", symmetries=True, known="rough-1000-128"),
            Run("fno", symmetries=True, steps=1023), Run("loca", symmetries=True, steps=4000),
        ),
    ),
    "smooth darcy": Case(
        darcy("easy"), LOG, REFLECTED,
        (Run("gaussian"), Run("gaussian", symmetries=True), Run("fno", symmetries=True, steps=1023)),
    ),
    "digits": Case(
        digits(), {}, SQUARE,
        (
            Run("fno", "proportional", True, 1000), Run("fno", "proportional", steps=1000), Run("fno", steps=1000),
            Run("gaussian", symmetries=True), *(Run("loca", around, True, 4000) for around in ("", "proportional")),
        ),
    ),
    "noisy digits": Case(
        digits(0.15), {}, SQUARE,
        (
            Run("gaussian", symmetries=True), Run("fno", symmetries=True, steps=800),
            Run("fno", steps=800),
        ),
    ),
    "waves": Case(
        drawn(ShallowWater(), 1000, labels=128, validation=100, test=200), {}, BASIN,
        (
            *(Run("gaussian", symmetries=which, correct=False) for which in (True, "transpose")),
            Run("loca", symmetries=True, steps=2000), Run("fno", symmetries=True, steps=250),
        ),
    ),
    "europe": Case(
        given(europe, 100), {}, (),
        (
            Run("gaussian"), *(Run("fno", around, steps=500) for around in ("", "ridge")),
            *(Run("loca", around, steps=2000) for around in ("", "ridge")),
        ),
    ),
    "two-valued 85": Case(
        given(functools.partial(functions, "piecewise-85"), 50), {}, ("transpose x y", "reflect x"),
        (Run("fno", symmetries=True, steps=120, coarse=1200), Run("gaussian", symmetries=True)),
    ),
}  # fmt: skip


class CoreSeconds:
    """The time that cores work on a run, also before it was killed and resumed; a callback of its training."""

    def __init__(self, directory: Path):
        directory.mkdir(parents=True, exist_ok=True)
        self.file, self.begun = directory / "core_seconds.txt", time.process_time()
        self.before = float(self.file.read_text()) if self.file.exists() else 0.0

    def __call__(self, _: loca.training.Progress) -> None:
        write(self.file, str(self.total))

    @property
    def total(self) -> float:
        return self.before + time.process_time() - self.begun


def fitted(
    run: Run, case: Case, data: RunData, seed: int, directory: Path, spent: CoreSeconds
) -> tuple[loca.Operator, list]:
    """The model of a run, and pairs of a step and the validation error before averages over symmetries."""
    word = run.symmetries if isinstance(run.symmetries, str) else ""
    symmetries = [name for name in case.symmetries if word in name] if run.symmetries else None
    if run.model == "gaussian":
        options = {"symmetries": symmetries, "correct": run.correct, "progress": False}
        if run.known:
            rows = read_rows(RESULTS.with_stem("local"))
            found = next(row["hyperparameters"] for row in rows if row["case"] == run.known)
            options["hyperparameters"] = dataclasses.replace(Hyperparameters.of(found), amplitudes=())
        return loca.solve(data.train, validation=data.validation, **options)[0], []
    if run.own:
        train = data.train.observe(jax.random.key(seed), data.train.y.count)
        data = dataclasses.replace(data, train=train)
    options = {"validate": data.validation, "every": max(100, run.steps // 10)}
    if run.around:
        options["around"] = MODELS[run.around].create
    if run.around == "ridge":
        options["around"] = functools.partial(MODELS["ridge"].create, transforms=case.transforms)
    if run.around == "gaussian":
        known = loca.solve(data.train, validation=data.validation, progress=False)[1].hyperparameters
        options["around"] = lambda samples: loca.solve(samples, hyperparameters=known, progress=False)[0]
    kind, _, number = run.model.partition(" ")
    seed += 1000 * int(number or 0)
    model = MODELS[kind].create(data.train, key=jax.random.key(seed + 100), transforms=case.transforms)
    options |= {"symmetries": symmetries, "seed": seed, "progress": False, "callbacks": [spent]}
    curve = []
    if run.coarse:
        train, validation = every(2, data.train), every(2, data.validation)
        coarse = MODELS[kind].create(train, key=jax.random.key(seed + 100), transforms=case.transforms)
        before, history = loca.fit(
            coarse, train, steps=run.coarse, directory=directory / "coarse", **options | {"validate": validation}
        )
        curve += [(moment.step, moment.validation) for moment in history]
        before = getattr(before, "operator", before)  # of the symmetric one
        parts = operator.attrgetter("lift", "layers", "project", "normalization")
        model = eqx.tree_at(parts, model, parts(before))
        options["optimizer"] = loca.training.default_optimizer(run.steps, rate=FINER_RATE)
    fitted_model, history = loca.fit(model, data.train, steps=run.steps, directory=directory / "run", **options)
    return fitted_model, curve + [(run.coarse + moment.step, moment.validation) for moment in history]


def tested(operator: loca.Operator, data: RunData) -> dict[str, object]:
    """Errors and coverage of bands on test functions, a number or one for each channel."""
    report = loca.evaluate(loca.calibrate(operator, data.validation), next(iter(data.tests.values())))
    found = {
        "test": report.errors["relative_l2"].mean(axis=0),
        "coverage": report.errors["coverage"].mean(axis=0),
        "rank correlation of σ and error": [report.rank_correlation(c) for c in range(data.train.output_size)],
    }
    return {name: np.asarray(each).tolist() for name, each in found.items()}


def combined(key: dict, data: RunData, rows: Rows) -> None:
    """The combination of the best runs of each model."""
    name, seed = key["case"], key["seed"]
    own = [row for row in rows.done if (row["case"], row["seed"]) == (name, seed) and "of" not in row]
    best = {row["run"].split(",")[0]: row["run"] for row in sorted(own, key=lambda row: -row["validation"])}
    if len(best) < 2:
        return
    models = {model: loca.load(CACHE / f"{name}-{run}-{seed}.safetensors") for model, run in best.items()}
    begun = time.process_time()
    found = loca.models.combine(models, data.validation)
    seconds = sum(row["core_seconds"] for row in own if row["run"] in best.values()) + time.process_time() - begun
    operator = found.operator
    members = {"of": [best[model] for model in operator.names], "weights": operator.weights}
    rows.add(key | {"core_seconds": seconds, "validation": found.error} | members | tested(operator, data))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--run", action="append", help="such as 'fno, symmetries'; repeatable; all unless given")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    rows = Rows(RESULTS)
    CACHE.mkdir(parents=True, exist_ok=True)
    for seed in range(asked.seeds):
        for name in asked.case or CASES:
            case, data = CASES[name], None
            for run in case.runs:
                key = {"case": name, "run": str(run), "seed": seed}
                if key in rows or (asked.run and str(run) not in asked.run):
                    continue
                data, directory = data or case.load(seed), CACHE / f"{name}-{run}-{seed}"
                spent = CoreSeconds(directory)
                operator, curve = fitted(run, case, data, seed, directory, spent)
                key |= {"steps": run.coarse + run.steps, "core_seconds": spent.total, "curve": curve}
                loca.save(operator, directory.with_suffix(".safetensors"), data=data.train)
                rows.add(key | {"validation": mean_error(operator, data.validation)} | tested(operator, data))
            several = any(run.model == "fno 2" for run in case.runs)
            names = [*map(str, case.runs), "combination with fno 2" if several else "combination"]
            keys = [{"case": name, "run": each, "seed": seed} for each in names]
            if all(key in rows for key in keys[:-1]) and keys[-1] not in rows:
                combined(keys[-1], data or case.load(seed), rows)


if __name__ == "__main__":
    main()
