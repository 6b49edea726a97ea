"""What do the linear ways of coupling cost, and how far are they from the dense one?

Change: the relative L2 difference of a trained model's predictions from its dense ones, over functions and queries, for
more and more landmarks. The rule has 2048 nodes here, so that landmarks are few among them.
Training: Darcy with `Dense` and with `Nystrom`, same data, steps and seed; errors on test functions.
Cost: seconds and the compiler's temporary bytes of φ at P = Q locations, untrained model at default sizes.

    python studies/linear_attention.py --models runs/linear   # trains the two models once and keeps them there
    python studies/linear_attention.py --models runs/linear --only cost
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import loca
from loca.attention import Attention, Blocked, Dense, Nystrom
from loca.problems import Darcy, Problem, ShallowWater
from loca.rules import MonteCarlo, QuasiMonteCarlo
from loca_reproduction.machine import commit, hardware
from loca_reproduction.settings import SETTINGS

HERE = Path(__file__).parent
RESULTS = HERE / "linear_attention.json"
SEED = 0
COUNTS = (32, 64, 128, 256, 512)
NODES, QUERIES, FUNCTIONS = 2048, 1024, 50
SIZES = (1_000, 10_000, 100_000)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model to train: little enough for two cores."""

    problem: Problem
    functions: int
    steps: int


CASES = {
    "darcy": Case(Darcy(resolution=32, preset="easy"), functions=1000, steps=2000),
    "shallow-water": Case(ShallowWater(), functions=300, steps=300),
}


def keys() -> list[jax.Array]:
    return list(jax.random.split(jax.random.key(SEED), 5))


def untrained(name: str, attention: Attention | None = None) -> tuple[loca.LOCA, loca.Samples]:
    """A model at the paper's settings, and its training data."""
    case, setting = CASES[name], SETTINGS[name]
    train = case.problem.sample(keys()[0], case.functions).observe(keys()[1], setting.queries)
    model = setting.loca(train, key=keys()[3])
    return model if attention is None else dataclasses.replace(model, attention=attention), train


def trained(name: str, models: Path) -> loca.LOCA:
    """The dense model after training, from the disk if it is there."""
    path = models / f"{name}.safetensors"
    if not path.exists():
        model, train = untrained(name)
        model, _ = loca.fit(model, train, steps=CASES[name].steps)
        models.mkdir(parents=True, exist_ok=True)
        loca.save(model, path)
    model = loca.load(path)
    assert isinstance(model, loca.LOCA)
    return model


@eqx.filter_jit
def predict(model: loca.LOCA, u: jax.Array, y: jax.Array) -> jax.Array:
    return model.predict(u, loca.data.Shared(y))


def with_more_nodes(name: str, models: Path) -> loca.LOCA:
    model = trained(name, models)
    return dataclasses.replace(model, rule=QuasiMonteCarlo(model.rule.domain, NODES, key=keys()[4]))


def against_dense(name: str, model: loca.LOCA) -> Callable[[Attention], float]:
    """How much another attention changes the model's predictions for test functions."""
    test = CASES[name].problem.sample(keys()[2], FUNCTIONS)
    y = test.y.points
    y = y[jax.random.permutation(keys()[4], len(y))[:QUERIES]]
    reference = predict(model, test.u, y)

    def change(attention: Attention) -> float:
        other = predict(dataclasses.replace(model, attention=attention), test.u, y)
        # over functions and queries, in each output channel, then the mean of the channels
        off = jnp.sqrt(jnp.sum((other - reference) ** 2, (0, 1)) / jnp.sum(reference**2, (0, 1)))
        return float(off.mean())

    return change


def change(name: str, models: Path) -> dict:
    """Changes of the output for every count, and how far lifted nodes extend in lengths of the kernel."""
    model = with_more_nodes(name, models)
    change_by = against_dense(name, model)
    q_z = model.lift(model.rule.z)
    x = jnp.sqrt(2.0 * model.k.rate()) * (q_z - q_z.mean(axis=0))
    rows = []
    for count in COUNTS:
        row = {"count": count, "nystrom": change_by(Nystrom(count))}
        print(name, row, flush=True)
        rows.append(row)
    square = jnp.sum(x**2, axis=1)
    return {"squared_extent": {"mean": float(square.mean()), "max": float(square.max())}, "rows": rows}


def training() -> dict:
    """Errors on test functions after the same steps with either way."""
    test = CASES["darcy"].problem.sample(keys()[2], 200)
    found = {}
    for label, attention in (("dense", Dense()), ("nystrom_128", Nystrom(128)), ("nystrom_64", Nystrom(64))):
        model, train = untrained("darcy", attention)
        began = time.perf_counter()
        model, _ = loca.fit(model, train, steps=CASES["darcy"].steps)
        seconds = time.perf_counter() - began
        error = float(np.mean(loca.metrics.relative_l2(predict(model, test.u, test.y.points), test.s)))
        found[label] = {"error": error, "seconds": seconds}
        print(label, found[label], flush=True)
    return found


def cost() -> list[dict]:
    """Time and memory of φ with as many nodes as queries."""
    model, _ = untrained("darcy")
    ways = {"nystrom_256": Nystrom(256), "blocked_512": Blocked(512)}
    rows = []
    for label, attention in ways.items():
        for count in SIZES:
            if label.startswith("blocked") and count > 10_000:
                continue  # minutes, and quadratic beyond doubt
            rule = MonteCarlo(model.rule.domain, count, key=keys()[4])
            varied = dataclasses.replace(model, rule=rule, attention=attention)
            arrays, static = eqx.partition(varied, eqx.is_array)

            def total(arrays, y, static=static):
                return sum(jnp.sum(phi[:, 0]) for phi in eqx.combine(arrays, static).weights(y))

            compiled = jax.jit(total).lower(arrays, rule.z).compile()
            times = []
            for _ in range(2):
                began = time.perf_counter()
                compiled(arrays, rule.z).block_until_ready()
                times.append(time.perf_counter() - began)
            memory = compiled.memory_analysis().temp_size_in_bytes
            rows.append({"way": label, "size": count, "seconds": min(times), "temporary_bytes": memory})
            print(rows[-1], flush=True)
    return rows


def save(results: dict) -> None:
    fresh = RESULTS.with_suffix(".tmp")
    fresh.write_text(json.dumps(results, indent=1) + "\n")
    fresh.replace(RESULTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True, help="where trained models are kept")
    parser.add_argument("--only", choices=["change", "training", "cost"], help="one of the parts")
    asked = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {"command": "python studies/linear_attention.py --models runs/linear", "seed": SEED}
    parts = {
        "change": lambda: {name: change(name, asked.models) for name in CASES},
        "training": training,
        "cost": cost,
    }
    for part, run in parts.items():
        if asked.only in (None, part):
            results[part] = run()
            made = {"commit": commit(), "hardware": hardware(), "jax": jax.__version__}
            results["made"] = results.get("made", {}) | {part: made}
            save(results)


if __name__ == "__main__":
    main()
