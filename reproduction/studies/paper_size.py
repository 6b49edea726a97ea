"""How long does LOCA train at the paper's sizes on this machine, and to what error?

Sizes, labels and batches are those of `SETTINGS`. Where the machine can do the paper's number of steps in
reasonable time, it does, with the paper's optimizer; otherwise it takes about as long as the paper reports for its RTX
A6000, or less, with our default optimizer. Errors are those of validation functions over time, and of test functions at
the end.

    python studies/paper_size.py                          # all five; about an hour and a half on two cores
    python studies/paper_size.py --only darcy --precision bfloat16

Needs LOCA_DATA, a directory with mnist.npz and speedy_daily.npz. Killed at any moment, the same command goes on.
"""

import argparse
import dataclasses
import json
import os
from pathlib import Path

import jax
import numpy as np

import loca
from loca.problems import Antiderivative, Darcy, ShallowWater
from loca.training import default_optimizer, paper_optimizer
from loca_reproduction.machine import commit, hardware
from loca_reproduction.problems import Climate, MechanicalMNIST
from loca_reproduction.settings import SETTINGS
from loca_reproduction.sources import DataSource, Drawn, Recorded, Unseen

HERE = Path(__file__).parent
RESULTS = HERE / "paper_size.json"


@dataclasses.dataclass(frozen=True)
class Training:
    """One experiment: functions, steps, the optimizer, and the paper's minutes."""

    source: DataSource
    steps: int
    optimizer: str
    paper_minutes: float


def trainings() -> dict[str, Training]:
    os.environ.setdefault("LOCA_MNIST", f"{os.environ['LOCA_DATA']}/mnist.npz")
    digits = (("test", Unseen(MechanicalMNIST(split="test"))),)
    climate = Climate("speedy", f"{os.environ['LOCA_DATA']}/speedy_daily.npz")
    return {
        "antiderivative": Training(Drawn(Antiderivative(), 1000), 50_000, "paper", 2.23),
        "darcy": Training(Drawn(Darcy(preset="easy"), 1000), 20_000, "paper", 5.51),
        "climate": Training(Recorded(climate, 144), 100_000, "paper", 4.52),
        "mechanical-mnist": Training(
            Drawn(MechanicalMNIST(), 10_000, 56, tests=digits, validation=500, same=True), 20_000, "default", 21.70
        ),
        "shallow-water": Training(Drawn(ShallowWater(), 1000, 128), 5_000, "default", 12.10),
    }


def train(name: str, training: Training, precision: str, directory: Path) -> dict:
    """One row."""
    setting = SETTINGS[name]
    functions = training.source.load(0, directory / "data")
    optimizer = paper_optimizer() if training.optimizer == "paper" else default_optimizer(training.steps)
    with jax.default_matmul_precision(precision):
        model, history = loca.fit(
            setting.loca(functions.train, key=jax.random.key(1)),
            functions.train,
            steps=training.steps,
            optimizer=optimizer,
            loss=loca.losses.mean_squared,
            batch_size=setting.batch_size,
            validate=functions.validation,
            every=training.steps // 20,
            directory=directory / f"{name}-{precision}",
            callbacks=[Telling(name)],
        )
    errors = loca.evaluate(model, functions.tests["test"], metrics=["relative_l2"]).errors["relative_l2"]
    return {
        "experiment": name,
        "precision": precision,
        "optimizer": training.optimizer,
        "steps": training.steps,
        "paper_steps": setting.steps,
        "minutes": history.moments[-1].seconds / 60.0,
        "paper_minutes": training.paper_minutes,
        "validation": [[round(m.seconds / 60.0, 3), m.step, m.validation] for m in history],
        "test": np.mean(errors, axis=0).tolist(),
        "load": os.getloadavg()[0],
    }


class Telling:
    """Prints every moment once."""

    def __init__(self, name: str):
        self.name, self.told = name, 0

    def __call__(self, progress: loca.training.Progress) -> None:
        if len(progress.history) > self.told:
            self.told = len(progress.history)
            moment = progress.history.moments[-1]
            print(f"{self.name} step {moment.step}: {moment.validation:.4f} after {moment.seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="some of the experiments")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="keeps data and checkpoints")
    asked = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": []}
    for name, training in trainings().items():
        if asked.only and name not in asked.only:
            continue
        row = train(name, training, asked.precision, asked.runs)
        row |= {"commit": commit(), "hardware": hardware(), "jax": jax.__version__}
        same = [(name, asked.precision)]
        results["rows"] = [r for r in results["rows"] if (r["experiment"], r["precision"]) not in same] + [row]
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name}: {row['minutes']:.2f} minutes, paper {row['paper_minutes']}; error {row['test']}", flush=True)


if __name__ == "__main__":
    main()
