"""How accurate are the derivatives of surrogates? Darcy flow, against finite differences of the solver.

    python studies/derivatives.py             # writes studies/derivatives.json, about 5 minutes on one core
    python studies/derivatives.py --table     # prints the table of docs/sensitivities.md

Directions are du = u·log u′ with another permeability u′ of the same distribution: they change log u as its own
distribution does. The solver's derivative in such a direction is a central difference. Errors are relative L2 errors
on the grid, their mean over held-out functions. The three LOCA models have the same sizes, optimizer and steps; nothing
is chosen on held-out functions.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import loca
from loca.problems import Darcy
from loca.sensitivity import tangents
from loca_reproduction.machine import commit, hardware

RESULTS = Path(__file__).parent / "derivatives.json"
SEED, RESOLUTION, FUNCTIONS, DIRECTIONS, HELD, STEPS = 0, 16, 200, 2, 20, 1000
STEP = 1e-3
"""h of (S(u + h du) − S(u − h du))/2h."""

LOG = {"permeability": "log"}


def derivative(u, du, h=STEP):
    """The solver's derivative, by a central difference."""
    solve = Darcy(RESOLUTION).solve
    return (solve(u + h * du) - solve(u - h * du)) / (2.0 * h)


def with_directions(problem, key, count, number):
    """Functions, `number` directions for each, and derivatives."""
    data = problem.sample(key, count)
    u = np.asarray(data.u[..., 0], np.float64)
    others = problem.sample(jax.random.fold_in(key, 1), count * number).u[..., 0]
    du = u[:, None] * np.log(np.asarray(others, np.float64)).reshape(count, number, -1)
    return data, du, np.stack([derivative(u, du[:, k]) for k in range(number)], axis=1)


def errors(model, held, du, ds):
    """Mean relative L2 errors of values and of derivatives."""
    y = held.y.points
    found = np.stack([model.jvp(u, du[0], y)[:, 0] for u, du in zip(held.u, du, strict=True)])
    slopes = np.linalg.norm(found - ds[:, 0], axis=1) / np.linalg.norm(ds[:, 0], axis=1)
    values = loca.metrics.relative_l2(model.predict(held.u, held.y), held.s)
    return {"value": float(jnp.mean(values)), "derivative": float(np.mean(slopes))}


def network(data):
    return loca.LOCA.create(data, key=jax.random.key(SEED + 9), transforms=LOG)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only print the table of the last run")
    if parser.parse_args().table:
        print(table(json.loads(RESULTS.read_text())))
        return
    problem, keys = Darcy(resolution=RESOLUTION, preset="easy"), jax.random.split(jax.random.key(SEED), 2)
    train, du, ds = with_directions(problem, keys[0], FUNCTIONS, DIRECTIONS)
    held, held_du, held_ds = with_directions(problem, keys[1], HELD, 1)
    more = problem.sample(keys[0], FUNCTIONS * (1 + DIRECTIONS))  # begins with the functions of `train`
    u = np.asarray(held.u[..., 0], np.float64)
    coarse = derivative(u, held_du[:, 0], 2.0 * STEP)
    difference = np.linalg.norm(coarse - held_ds[:, 0], axis=1) / np.linalg.norm(held_ds[:, 0], axis=1)
    results = {
        "command": "python studies/derivatives.py",
        "commit": commit(),
        "seed": SEED,
        "hardware": hardware(),
        "jax": jax.__version__,
        "problem": f"Darcy, easy, resolution {RESOLUTION}, {HELD} held-out functions, {STEPS} steps",
        "difference of the step": float(difference.max()),
        "models": {},
    }

    def record(name, solves, make):
        results["models"][name] = {"solves": solves, **errors(make(), held, held_du, held_ds)}
        print(name, results["models"][name], flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")

    options = {"steps": STEPS, "seed": SEED, "progress": False}
    every = FUNCTIONS * (1 + DIRECTIONS)
    record("Gaussian operator", FUNCTIONS, lambda: loca.solve(train, progress=False)[0])
    record("LOCA", FUNCTIONS, lambda: loca.fit(network(train), train, **options)[0])
    record("LOCA, more functions", every, lambda: loca.fit(network(more), more, **options)[0])
    record(
        f"LOCA with {DIRECTIONS} derivatives per function",
        every,
        lambda: loca.fit(*tangents(network(train), train, du, ds), **options)[0].operator,
    )
    print(table(results))


def table(results):
    """The table of the documentation."""
    lines = ["| model | solves | error of values | error of derivatives |", "| --- | ---: | ---: | ---: |"]
    for name, row in results["models"].items():
        lines.append(f"| {name} | {row['solves']} | {100 * row['value']:.2f} % | {100 * row['derivative']:.1f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
