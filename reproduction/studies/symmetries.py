"""Which symmetries are found: 20 small problems, of which 10 have none.

    python studies/symmetries.py             # resumes
    python studies/symmetries.py --table     # print the results so far as Markdown

s(y) = ∫ K(|y − x|) φ(u(x)) w(x) dx on an interval, a circle, a square or a torus. With w = 1 all maps of the domain are
symmetries; φ is odd, even, of degree 2, or none of these. For the other half of the problems w = 1 + ε(x₁ + x₂²/2 + …),
with ε from 0.2 to 1, and φ has no symmetry. A symmetry that is adopted is found if it holds, and wrong if it does not.
The rule of `loca.symmetries.detect` was chosen on problems 20 to 39, before problems 0 to 19 were run with it.
Results are added to studies/symmetries.json, one row per problem.
"""

import argparse
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from rows import Rows, markdown, read_rows

import loca
from loca.data import Samples, Shared
from loca.domains import Box, Torus, grid
from loca.gaussian import Hyperparameters

RESULTS = Path(__file__).with_suffix(".json")
FUNCTIONS, POINTS = 270, {1: 24, 2: 12}
MAPS = {
    "tanh": (np.tanh, {"odd"}),
    "square": (np.square, {"even", "scale"}),
    "neither": (lambda u: np.sin(u) + 0.5 * u**2, set()),
}


def problem(number):
    """The pairs of a problem, and the kinds of symmetries that it has."""
    rng = np.random.default_rng(number)
    has_any, dimension, periodic = number % 2 == 0, 1 + (number // 2) % 2, (number // 4) % 2 == 1
    kind = ("tanh", "square", "neither")[number % 3] if has_any else "neither"
    count = POINTS[dimension]
    axis = np.arange(count) / count if periodic else np.linspace(0.0, 1.0, count)
    x = grid(*[axis] * dimension)
    far = np.abs(x[:, None] - x[None])
    far = np.minimum(far, 1.0 - far) if periodic else far
    kernel = np.exp(-np.sqrt((far**2).sum(axis=-1)) / 0.25) / len(x)
    waves = 2.0 * np.pi if periodic else np.pi
    modes = grid(*[np.arange(5)] * dimension)[1:]
    phases = rng.uniform(0.0, 2.0 * np.pi, size=(FUNCTIONS, len(modes)))
    sizes = rng.normal(size=phases.shape) / (1.0 + np.linalg.norm(modes, axis=1))
    u = np.einsum("nk,nkm->nm", sizes, np.cos(waves * (modes @ x.T)[None] + phases[..., None])) * 1.5
    strength = 0.0 if has_any else (0.2, 0.3, 0.5, 1.0, 1.0)[(number // 2) % 5]
    w = 1.0 + strength * sum(x[:, i] ** (i + 1) / (i + 1) for i in range(dimension))
    function, truth = MAPS[kind]
    s = (function(u) * w) @ kernel.T
    domain = (Torus if periodic else Box)((0.0,) * dimension, (1.0,) * dimension)
    u, s, x = (jnp.asarray(each, jnp.float32) for each in (u[..., None], s[..., None], x))
    holds = truth | ({"reflect", "transpose", "rotate", "shift"} if has_any else set())
    about = {"dimension": dimension, "periodic": periodic, "function": kind, "strength": strength}
    return Samples(u, Shared(x), s, x=x, domain=domain), holds, about


def is_true(name, holds):
    """Whether a symmetry holds; with a sign it holds if the map and the sign do."""
    move, _, signs = name.partition(": ")
    sign = {"": set(), "-u1 -s1": {"odd"}, "-u1": {"even"}}.get(signs, {"never"})
    return {move.split()[0]} | sign <= holds and name not in ("scale 1", "scale 1.5", "scale 2.5")


def table(results):
    """How many problems have a true or a wrong symmetry that is adopted, as Markdown."""
    lines = []
    for name, numbers in (("0 to 19", range(20)), ("20 to 39, on which the rule was chosen", range(20, 40))):
        own = [row for row in results if row["problem"] in numbers]
        holds, none = ([row for row in own if bool(row["holds"]) is has] for has in (True, False))
        found = sum(len(row["adopted"]) > len(row["wrong"]) for row in holds)
        wrong = [sum(bool(row["wrong"]) for row in part) for part in (holds, none)]
        seconds = np.median([row["core seconds"] for row in own])
        counts = [f"{count} of {len(part)}" for count, part in zip((found, *wrong), (holds, holds, none), strict=True)]
        lines.append([name, *counts, f"{seconds:.1f}"])
    head = ["problems", "a true one is found", "a wrong one beside it", "a wrong one where none holds", "core seconds"]
    return markdown(head, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the results so far as Markdown")
    if parser.parse_args().table:
        print(table(read_rows(RESULTS)))
        return
    rows = Rows(RESULTS)
    for number in range(40):
        if {"problem": number} in rows:
            continue
        data, holds, about = problem(number)
        begun = time.process_time()
        hyper = Hyperparameters(noise=1e-5, location_lengths=(0.3,) * about["dimension"])
        _, report = loca.solve(data, hyperparameters=hyper, symmetries="auto", progress=False)
        adopted = list(report.symmetries.adopted)
        wrong = [name for name in adopted if not is_true(name, holds)]
        rows.add(
            {"problem": number, **about, "holds": sorted(holds), "adopted": adopted, "wrong": wrong}
            | {"core seconds": round(time.process_time() - begun, 1), "evidence": report.symmetries.as_json()}
        )


if __name__ == "__main__":
    main()
