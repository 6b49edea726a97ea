"""Where does the time of a training step go?

v, the features of the functions, and φ, the weights at the queries, each computed and differentiated alone; Adam alone;
and the whole step, of which the rest is Σ φ v, the choice of the labels, and what moves between them. The paper's
settings, in both precisions, in turns within one run; medians, in milliseconds. Writes studies/step_profile.json.

    python studies/step_profile.py   # about 5 minutes on two quiet cores
"""

import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from loca.models import LOCA
from loca.parameters import trainable
from loca.training import Encoded
from loca_reproduction.benchmarks.step import OPTIMIZER, STEP_SETTINGS, RepeatedStep, package_step, random_functions
from loca_reproduction.machine import commit, hardware

RESULTS = Path(__file__).with_suffix(".json")
ROUNDS, SECONDS = 8, 0.5


def differentiated(model: LOCA, batch: Encoded, values: Callable[[LOCA, Encoded], Any]) -> RepeatedStep:
    """Some values of the model and the gradient of their squares, from parameters that move a little at each turn."""
    learned, given = eqx.partition(model, trainable(model))

    def half_square(learned: Any, batch: Encoded) -> jax.Array:
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(values(eqx.combine(learned, given), batch))) / 2

    def one(learned: Any, batch: Encoded) -> tuple[Any, jax.Array]:
        value, gradient = jax.value_and_grad(half_square)(learned, batch)
        return jax.tree.map(lambda p, d: p - 1e-12 * d, learned, gradient), value

    return RepeatedStep(one, learned, batch)


def adam(model: LOCA) -> RepeatedStep:
    """An update by a gradient that is at hand."""
    learned = eqx.filter(model, trainable(model))

    def one(carry: Any, gradient: Any) -> tuple[Any, jax.Array]:
        learned, moments = carry
        updates, moments = OPTIMIZER.update(gradient, moments, learned)
        return (eqx.apply_updates(learned, updates), moments), jnp.zeros(())

    return RepeatedStep(one, (learned, OPTIMIZER.init(learned)), learned)


def profile(name: str, precision: str) -> dict:
    setting = STEP_SETTINGS[name]
    samples = random_functions(setting, jax.random.key(0), setting.batch_size)
    model = setting.loca(samples, key=jax.random.key(1))
    batch = Encoded.of(model, samples)
    with jax.default_matmul_precision(precision):
        steps = {
            "v": differentiated(model, batch, lambda model, batch: model.read(batch.codes)),
            "phi": differentiated(model, batch, lambda model, batch: model.weights(batch.queries.points)),
            "adam": adam(model),
            "whole": package_step(model, batch),
        }
        for step in steps.values():
            step.run(1)
        counts = {each: max(1, round(SECONDS / step.seconds_per_step(1))) for each, step in steps.items()}
        for each, step in steps.items():
            step.run(counts[each])
        times = [{each: step.seconds_per_step(counts[each]) for each, step in steps.items()} for _ in range(ROUNDS)]
    found = {each: round(1e3 * statistics.median(turn[each] for turn in times), 3) for each in steps}
    return {"setting": name, "precision": precision, **found}


def main() -> None:
    rows = []
    for name in STEP_SETTINGS:
        for precision in ("float32", "bfloat16"):
            rows.append(profile(name, precision))
            print(rows[-1], flush=True)
    made = {"commit": commit(), "hardware": hardware(), "jax": jax.__version__, "load": round(os.getloadavg()[0], 2)}
    RESULTS.write_text(json.dumps(made | {"milliseconds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
