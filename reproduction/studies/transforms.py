"""Do transforms of variables lower LOCA's errors where the numbers of a problem are badly scaled?

Two cases of `loca-reproduce` at their own sizes, with and without transforms:

- darcy: the paper's formula for the permeability, 1000 functions, 128 labels (claim R4). Permeability with `log`.
- climate: temperature to surface pressure on the simulated globe, 144 labels a day (claim R8). Both variables
  `per-location`. Skill is 1 − MSE/MSE of climatology, so 0 is as good as climatology.

    LOCA_DATA=/path/to/data python studies/transforms.py --steps 3000                # both cases, resumes after a kill
    LOCA_DATA=/path/to/data python studies/transforms.py --case climate --steps 300  # one case, shorter
    LOCA_DATA=/path/to/data python studies/transforms.py --baselines                 # mean field and ridge regression

Results are added to studies/transforms.json, one row per case, transforms, steps and seed.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import jax
from rows import Rows

from loca.evaluation import evaluate
from loca.models import Regression
from loca.problems import Darcy
from loca.training import default_optimizer, fit
from loca_reproduction.problems import Climate
from loca_reproduction.settings import SETTINGS
from loca_reproduction.sources import Drawn, Recorded, RunData

RESULTS = Path(__file__).parent / "transforms.json"
CACHE = Path(os.environ.get("LOCA_CACHE", "build/transforms"))
CASES = {
    "darcy": ({"permeability": "log"}, {}, {"permeability": "log", "pressure": "per-location"}),
    "climate": ({"air_temperature": "per-location", "surface_air_pressure": "per-location"}, {}),
}
RATES = {"darcy": 1e-3, "climate": 4e-3}  # those that the claims chose for LOCA on validation functions


def data_of(case: str, seed: int) -> RunData:
    if case == "darcy":
        CACHE.mkdir(parents=True, exist_ok=True)
        return Drawn(Darcy(resolution=32, preset="literal"), 1000, 128).load(seed, CACHE)
    return Recorded(Climate("speedy", f"{os.environ['LOCA_DATA']}/speedy_daily.npz"), 144).load(seed, CACHE)


def measure(model, data: RunData) -> dict:
    report = evaluate(model, data.tests["test"], weights=data.weights, reference=data.reference)
    found = {"relative_l2": float(report.errors["relative_l2"].mean())}
    if data.reference is not None:
        found["skill"] = report.overall_skill()
    return found


def train(case: str, data: RunData, transforms: dict, steps: int, seed: int) -> dict:
    model = SETTINGS[case].loca(data.train, key=jax.random.key(seed), transforms=transforms)
    began = time.time()

    def show(progress) -> None:
        if progress.step % 20 == 0:
            print(f"  step {progress.step}: loss {progress.loss:.3e}, {time.time() - began:.0f} s", flush=True)

    optimizer = default_optimizer(steps, rate=RATES[case])
    name = "-".join([case, *(f"{variable}={transforms[variable]}" for variable in transforms), str(steps), str(seed)])
    options = {"seed": seed, "callbacks": [show], "directory": CACHE / name}
    model, history = fit(model, data.train, steps=steps, optimizer=optimizer, **options)
    minutes = history.moments[-1].seconds / 60.0
    return {"model": "LOCA", "steps": steps, "minutes": minutes, **measure(model, data)}


def rows(case: str, steps: int, seed: int, trained: bool, done: Rows) -> Iterator[dict]:
    """The results that are not done yet."""
    data = data_of(case, seed)
    for transforms in CASES[case]:
        key = {"case": case, "transforms": transforms, "seed": seed}
        if trained and {**key, "model": "LOCA", "steps": steps} not in done:
            yield key | train(case, data, transforms, steps, seed)
        for name, components in () if trained else (("mean field", 0), ("ridge", 40)):
            if {**key, "model": name} not in done:
                model = Regression.fit(data.train, components, transforms=transforms)
                yield key | {"model": name} | measure(model, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), action="append")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--baselines", action="store_true", help="mean field and ridge regression instead of LOCA")
    given = parser.parse_args()
    done = Rows(RESULTS)
    for case in given.case or CASES:
        for row in rows(case, given.steps, given.seed, not given.baselines, done):
            done.add(row)


if __name__ == "__main__":
    main()
