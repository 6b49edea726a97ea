"""Does LOCA train reliably at a high learning rate, and how accurate is it with what the paper's lacks?

Two cases:

- shift: the 27 trainings of claim R9, nine lengths and three seeds at the rate that the claim chose, 0.016, with which
  9 of 27 broke down. Here a run whose loss breaks away returns to its best state with half the rate. A run has broken
  down if its error on validation functions is above 10 %.
- darcy: Darcy flow with the paper's formula for the permeability, 1000 functions, 128 labels, 5000 steps. LOCA at the
  paper's sizes takes the logarithm of the permeability and is trained around ridge regression. Codes are centered and
  weighted by their standard deviations.

    python studies/safeguards.py                            # everything; resumes after a kill
    python studies/safeguards.py --case darcy --seeds 1     # one case, one seed
    python studies/safeguards.py --case darcy --trials      # what was compared on validation functions, 1000 steps

Results are added to studies/safeguards.json, one row per run; rows that exist are not computed again. Errors are mean
relative L2 errors over complete fields. Trials measure no test error.
"""

import argparse
import dataclasses
import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from rows import Rows

from loca.encoders import Standardized
from loca.evaluation import evaluate
from loca.losses import mean_squared
from loca.models import LOCA, Regression
from loca.problems import Antiderivative, Darcy
from loca.training import default_optimizer, fit
from loca_reproduction.settings import SETTINGS
from loca_reproduction.sources import Drawn, RunData, Unseen

RESULTS = Path(__file__).parent / "safeguards.json"
CACHE = Path(os.environ.get("LOCA_CACHE", "build/safeguards"))
LENGTHS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BROKEN = 0.1
LOG = {"permeability": "log"}
DARCY = {"around": "ridge", "damping": 2.0, "transforms": LOG}
TRIALS = (
    {"around": None, "damping": None, "transforms": LOG},
    {"around": "ridge", "damping": None, "transforms": LOG},
    {"around": None, "damping": 0.0, "transforms": LOG},
    {"around": "ridge", "damping": 0.0, "transforms": LOG},
    {"around": "ridge", "damping": 1.0, "transforms": LOG},
    DARCY,
    {"around": "ridge", "damping": 3.0, "transforms": LOG},
    {"around": "ridge", "damping": 2.0, "transforms": {**LOG, "pressure": "per-location"}},
)
"""What `--trials` compares; None leaves codes as they are, and a damping of 0 standardizes every code."""


def mean_error(model: LOCA, test) -> float:
    return float(evaluate(model, test, metrics=["relative_l2"]).errors["relative_l2"].mean())


def train(
    name: str, model: LOCA, data: RunData, steps: int, rate: float, seed: int, tested: bool = True, **around: Any
) -> dict:
    """Train in a run directory, and measure."""

    def show(progress) -> None:
        if progress.step % 500 == 0:
            print(f"  {name}, step {progress.step}: loss {progress.loss:.2e}, {time.strftime('%X')}", flush=True)

    options = {"seed": seed, "batch_size": 100, "every": steps, "callbacks": [show], "progress": False, **around}
    options |= {"loss": mean_squared} | ({"validate": data.validation} if around else {})
    optimizer = default_optimizer(steps, rate)
    model, history = fit(model, data.train, steps=steps, optimizer=optimizer, directory=CACHE / name, **options)
    returns = [[moment.step, moment.returned_to] for moment in history if moment.returned_to is not None]
    found = {"steps": steps, "rate": rate, "returns": returns, "loss": history.moments[-1].loss}
    found |= {"minutes": history.moments[-1].seconds / 60.0, "validation": mean_error(model, data.validation)}
    return found | ({"test": mean_error(model, next(iter(data.tests.values())))} if tested else {})


def shift(length: float, seed: int) -> dict:
    """One training of R9, with the same functions, initial weights and batches."""
    tests = (("length 0.1", Unseen(Antiderivative(length=0.1))),)
    data = Drawn(Antiderivative(length=length), 1000, tests=tests).load(seed, CACHE)
    model = SETTINGS["antiderivative"].loca(data.train, key=jax.random.fold_in(jax.random.key(seed), 1))
    found = train(f"shift-{length}-{seed}", model, data, 2000, 0.016, seed)
    return found | {"broken": not found["validation"] < BROKEN}


def darcy(seed: int, model: dict, steps: int, tested: bool = True) -> dict:
    data = Drawn(Darcy(resolution=32, preset="literal"), 1000, 128).load(seed, CACHE)
    key, transforms = jax.random.fold_in(jax.random.key(seed), 1), model["transforms"]
    created = SETTINGS["darcy"].loca(data.train, key=key, transforms=transforms)
    if model["damping"] is not None:
        u = created.normalization.standardize_input(data.train.u)
        created = dataclasses.replace(created, encoder=Standardized.fit(created.encoder, u, model["damping"]))
    around = {} if model["around"] is None else {"around": functools.partial(Regression.fit, transforms=transforms)}
    name = f"darcy-{model['around']}-{model['damping']}-{'-'.join(transforms)}-{steps}-{seed}"
    return train(name, created, data, steps, 4e-3, seed, tested, **around)


def results(cases: list[str], seeds: int, trials: bool, done: Rows) -> Iterator[dict]:
    """The results that are not done yet."""
    for seed in range(seeds):
        if "darcy" in cases and not trials and (key := {"case": "darcy", "model": DARCY, "seed": seed}) not in done:
            yield key | darcy(seed, DARCY, 5000)
    for model in TRIALS if trials else ():
        if (key := {"case": "darcy trial", "model": model, "seed": 0}) not in done:
            yield key | darcy(0, model, 1000, tested=False)
    for seed in range(seeds if "shift" in cases and not trials else 0):
        for length in LENGTHS:
            if (key := {"case": "shift", "length": length, "seed": seed}) not in done:
                yield key | shift(length, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=["darcy", "shift"], action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", action="store_true")
    given = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    rows = Rows(RESULTS)
    for row in results(given.case or ["darcy", "shift"], given.seeds, given.trials, rows):
        command = f"python studies/safeguards.py --case {row['case'].split()[0]}{' --trials' if given.trials else ''}"
        rows.add(row | {"command": command})


if __name__ == "__main__":
    main()
