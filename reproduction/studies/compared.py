"""`loca.compare` on small data sets: which model, at what cost, with which coverage?

    python reproduction/studies/compared.py                                    # what needs no files
    python reproduction/studies/compared.py --task darcy-rough --seeds 3 --minutes 1
    LOCA_DATA=/path/to/data python reproduction/studies/compared.py --task europe

Every task writes reproduction/results/compare/TASK.json, from which `make results` makes docs/comparisons.md. Results
that are finished are kept in build/compare, so that the same command resumes. Programs of other packages take part if
the environment .parity/peers exists (reproduction/parity/peers/environment.sh makes it).
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import loca
from loca_reproduction.machine import commit, hardware

ROOT = Path(__file__).parents[2]
RESULTS, WORK = ROOT / "reproduction/results/compare", ROOT / "build/compare"
PEERS, PYTHON = ROOT / "reproduction/peers", ROOT / ".parity/peers/bin/python"
Pair = tuple[loca.Samples, loca.Samples]


def darcy(preset: str) -> Pair:
    """Flow through porous ground on a 16 × 16 grid."""
    problem = loca.problems.Darcy(resolution=16, preset=preset)
    return problem.sample(jax.random.key(0), 400), problem.sample(jax.random.key(1), 200)


def antiderivative() -> Pair:
    """Functions of many length scales."""
    problem = loca.problems.Antiderivative(length=0.3)
    return problem.sample(jax.random.key(0), 400), problem.sample(jax.random.key(1), 200)


def scalars(seed: int = 0) -> Pair:
    """Five numbers to a damped oscillation: amplitude, frequency, damping, phase and drift."""
    low, high = jnp.array([0.5, 2.0, 0.5, 0.0, -0.5]), jnp.array([1.5, 6.0, 2.0, 1.5, 0.5])
    p = jax.random.uniform(jax.random.key(seed), (160, 5), minval=low, maxval=high)
    t = jnp.linspace(0.0, 2.0, 50)
    a, w, d, f, b = (p[:, i : i + 1] for i in range(5))
    s = a * jnp.exp(-d * t) * jnp.cos(w * t + f) + b * t
    names = {"inputs": ["amplitude", "frequency", "damping", "phase", "drift"], "outputs": ["displacement"]}
    runs = loca.Samples(p[:, None], t[:, None], s[..., None], **names)  # as from a table with a column per number
    return runs.take(jnp.arange(60)), runs.take(jnp.arange(60, 160))


def europe() -> Pair:
    """Temperature at 850 hPa to the height of 500 hPa over Western Europe, days of ERA-Interim."""
    with np.load(Path(os.environ["LOCA_DATA"], "erainterim_daily_weurope.npz")) as file:
        lat, lon = (np.asarray(file[name], float) for name in ("lat", "lon"))
        u, s = (np.asarray(file[name], np.float32).reshape(-1, lat.size * lon.size, 1) for name in ("t850", "z500"))
    y = loca.domains.grid(lat, lon)
    names = {"inputs": ["temperature"], "outputs": ["height"], "x": y}
    first, last = slice(0, 2400, 4), slice(3400, 4000, 3)  # years of the test are later
    return tuple(loca.Samples(u[rows], y, s[rows], **names) for rows in (first, last))


def bundled() -> Pair:
    """The two-valued Darcy flow that neuraloperator ships, 16 × 16, as LOCA_DATA/neuraloperator_darcy_16.npz.

    Its arrays train_u, train_s, test_u and test_s are x and y of darcy_train_16.pt and darcy_test_16.pt in the wheel of
    neuraloperator 0.3.0. The last point of each axis of its grid is at 15/16.
    """
    with np.load(Path(os.environ["LOCA_DATA"], "neuraloperator_darcy_16.npz")) as file:
        parts = [(file[f"{part}_u"], file[f"{part}_s"]) for part in ("train", "test")]
    y = loca.domains.grid(np.arange(16) / 16, np.arange(16) / 16)
    return tuple(loca.Samples(u.reshape(-1, 256, 1), y, s.reshape(-1, 256, 1), x=y) for u, s in parts)


TASKS: dict[str, tuple[str, Callable[[], Pair]]] = {
    "darcy-smooth": ("Darcy flow, smooth inputs, 400 functions on 16 × 16", lambda: darcy("easy")),
    "darcy-rough": ("Darcy flow, rough inputs, 400 functions on 16 × 16", lambda: darcy("literal")),
    "antiderivative": ("Antiderivative of rough functions, 400 functions", antiderivative),
    "scalars": ("Five numbers to a curve, 60 runs", scalars),
    "europe": ("Temperature to pressure height, 600 days over Europe", europe),
    "bundled": ("Two-valued Darcy flow of neuraloperator, 1000 functions on 16 × 16", bundled),
}


def others() -> dict[str, list[str]]:
    """Programs of other packages."""
    scripts = {"neuraloperator FNO": "fno.py", "scikit-learn GP": "gaussian_process.py"}
    return {name: [str(PYTHON), str(PEERS / script)] for name, script in scripts.items()} if PYTHON.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=TASKS, action="append", help="repeatable; without it, all without files")
    parser.add_argument("--minutes", type=float, action="append", help="of each trained model; repeatable")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    for name in asked.task or [name for name in TASKS if name not in ("europe", "bundled")]:
        title, data = TASKS[name]
        train, test = data()
        found = loca.compare(
            train,
            test,
            minutes=asked.minutes or [1.0],
            seeds=asked.seeds,
            others=others(),
            directory=WORK / name,
            about={"title": title, "commit": commit(), "hardware": hardware(), "jax": jax.__version__},
            progress=True,
        )
        RESULTS.mkdir(parents=True, exist_ok=True)
        found.save(RESULTS / f"{name}.json")
        print(found, flush=True)


if __name__ == "__main__":
    main()
