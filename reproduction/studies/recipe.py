"""How should LOCA, DeepONet and FNO be trained: with which batches, loss and rate?

    LOCA_DATA=/path/to/data python reproduction/studies/recipe.py            # all problems and seeds
    LOCA_DATA=/path/to/data python reproduction/studies/recipe.py --task darcy-rough --seeds 1

Every run has the same core seconds for its steps: the steps of a candidate are those that its speed allows, measured
once. Errors are those of validation functions; no test function is drawn. Candidates whose error is more than 5 % above
that of the best for the same model and problem, with the first seed, are not repeated with others, except `before`.
Results are added to studies/recipe.json; rows that exist are not computed again.
"""

import argparse
import os
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import optax
from compared import europe
from rows import Rows

import loca
from loca.models import Grid
from loca.training import average_weights
from loca_reproduction.runs import mean_error

RESULTS = Path(__file__).parent / "recipe.json"
SECONDS, MEASURED, BEHIND = 15.0, 2.0, 1.05


class Candidate(NamedTuple):
    """A way to train."""

    batch: int = 100
    loss: str = "mean_squared"
    rate: float = 4e-3
    decay: float = 0.0  # of weights
    padding: bool = True  # by a quarter of an axis, of FNO


CANDIDATES = {
    "before": Candidate(),
    "relative": Candidate(loss="relative_l2"),
    "small batches": Candidate(20),
    "both": Candidate(20, "relative_l2"),
    "both, rate 2e-3": Candidate(20, "relative_l2", 2e-3),
    "both, rate 1e-3": Candidate(20, "relative_l2", 1e-3),
    "both, weight decay 1e-4": Candidate(20, "relative_l2", decay=1e-4),
    "both, no padding": Candidate(20, "relative_l2", padding=False),
}


def darcy(seed: int) -> tuple[loca.Samples, loca.Samples]:
    """400 functions with 64 labels, and 200 with all."""
    problem = loca.problems.Darcy(resolution=16, preset="literal")
    train = problem.sample(jax.random.key(10 * seed), 400).observe(jax.random.key(10 * seed + 1), 64)
    return train, problem.sample(jax.random.key(10 * seed + 2), 200)


def climate(seed: int) -> tuple[loca.Samples, loca.Samples]:
    """500 of the 600 days before the test, and the others."""
    return europe()[0].split(jax.random.key(seed), 500, 100)


TASKS = {"darcy-rough": (darcy, {"permeability": "log"}), "europe": (climate, None)}
"""Data, and the transforms that `loca.solve` finds."""
ONLY = {"both, no padding": ["FNO"], "both, rate 2e-3": ["LOCA"], "both, rate 1e-3": ["LOCA"]}
"""Candidates for some models only."""
MODELS = {"LOCA": loca.LOCA, "DeepONet": loca.DeepONet, "FNO": loca.FNO}


def created(model: str, candidate: Candidate, train: loca.Samples, transforms: object, seed: int) -> loca.Operator:
    """The untrained model."""
    options = {}
    if model == "FNO":
        options["padding"] = [n // 4 if candidate.padding else 0 for n in Grid.of(train).shape]
    return MODELS[model].create(train, key=jax.random.key(seed + 100), transforms=transforms, **options)


def optimizer(candidate: Candidate, steps: int) -> optax.GradientTransformation:
    """`default_optimizer`, with weight decay."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, candidate.rate, max(1, steps // 20), steps)
    adam = optax.adamw(schedule, weight_decay=candidate.decay)
    return average_weights(optax.chain(optax.clip_by_global_norm(1.0), adam))


class MeasuredError(Exception):
    """Ends a training whose speed is known."""


def steps_of(operator: loca.Operator, candidate: Candidate, train: loca.Samples) -> int:
    """The steps that take `SECONDS` of a core."""
    moments = []

    def measure(progress: loca.training.Progress) -> None:
        moments.append((time.process_time(), progress.step))
        if moments[-1][0] - moments[0][0] > MEASURED:
            raise MeasuredError

    try:
        fit(operator, candidate, train, 10**6, 0, [measure])
    except MeasuredError:
        (first, before), (last, after) = moments[0], moments[-1]
        return int(SECONDS * (after - before) / (last - first))
    raise RuntimeError("the training ended")


def fit(
    operator: loca.Operator, candidate: Candidate, train: loca.Samples, steps: int, seed: int, callbacks: list
) -> loca.Operator:
    """The trained model; everything that this study compares is given."""
    return loca.fit(
        operator, train, steps=steps, optimizer=optimizer(candidate, steps), loss=getattr(loca.losses, candidate.loss),
        batch_size=candidate.batch, seed=seed, callbacks=callbacks, progress=False,
    )[0]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=TASKS, action="append")
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--seeds", type=int, default=3)
    asked, rows = parser.parse_args(), Rows(RESULTS)
    data = {task: TASKS[task] for task in asked.task or TASKS if task != "europe" or "LOCA_DATA" in os.environ}
    for seed in range(asked.seeds):
        for task, (draw, transforms) in data.items():
            train, validation = draw(seed)
            for model in asked.model or MODELS:
                first = [row for row in rows.done if (row["task"], row["model"], row["seed"]) == (task, model, 0)]
                least = min((row["validation"] for row in first), default=np.inf)
                for name, candidate in CANDIDATES.items():
                    key = {"task": task, "model": model, "candidate": name, "seed": seed}
                    known = next((row for row in first if row["candidate"] == name), None)
                    hopeless = name != "before" and (known is None or known["validation"] > BEHIND * least)
                    if key in rows or (seed > 0 and hopeless) or model not in ONLY.get(name, MODELS):
                        continue
                    operator = created(model, candidate, train, transforms, seed)
                    steps = known["steps"] if known else steps_of(operator, candidate, train)
                    begun = time.process_time()
                    error = mean_error(fit(operator, candidate, train, steps, seed, []), validation)
                    seconds = time.process_time() - begun
                    rows.add(key | {"steps": steps, "core_seconds": seconds, "validation": error})


if __name__ == "__main__":
    main()
