"""Which symmetries are found: 20 small problems, of which 10 have none.

    python studies/symmetries.py --out studies/symmetries.json

s(y) = ∫ K(|y − x|) φ(u(x)) w(x) dx on an interval, a circle, a square or a torus. With w = 1 all maps of the domain are
symmetries; φ is odd, even, of degree 2, or none of these. For the other ten problems w = 1 + ε(x₁ + x₂²/2 + …), with
ε from 0.2 to 1, and φ has no symmetry. The file has a row for each problem; the same command resumes. A symmetry is
found if the group that is adopted contains it, and wrong if it is adopted and does not hold.
"""

import argparse
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from rows import Rows

import loca
from loca.data import Samples, Shared
from loca.domains import Box, Torus, grid
from loca.gaussian import Hyperparameters

TRAIN, HELD, POINTS = 150, 120, {1: 24, 2: 12}
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
    phases = rng.uniform(0.0, 2.0 * np.pi, size=(TRAIN + HELD, len(modes)))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--problems", type=int, default=20)
    given = parser.parse_args()
    rows = Rows(given.out)
    for number in range(given.problems):
        if {"problem": number} in rows:
            continue
        data, holds, about = problem(number)
        begun = time.process_time()
        hyper = Hyperparameters(noise=1e-5, location_lengths=(0.3,) * about["dimension"])
        train, held = data.take(jnp.arange(TRAIN)), data.take(jnp.arange(TRAIN, TRAIN + HELD))
        _, report = loca.solve(train, validation=held, hyperparameters=hyper, symmetries="auto", progress=False)
        adopted = list(report.symmetries.adopted)
        wrong = [name for name in adopted if name.split()[0] not in holds or "-" in name.partition(":")[2]]
        rows.add(
            {"problem": number, **about, "holds": sorted(holds), "adopted": adopted, "wrong": wrong}
            | {"core seconds": round(time.process_time() - begun, 1), "evidence": report.symmetries.as_json()}
        )
    print(f"wrong: {sum(bool(row['wrong']) for row in rows.done)} of {len(rows.done)}")
    true = [row for row in rows.done if row["holds"]]
    print(f"found: {sum(bool(row['adopted']) and not row['wrong'] for row in true)} of {len(true)}")


if __name__ == "__main__":
    main()
