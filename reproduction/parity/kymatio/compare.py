"""Our side of the parity check: compares coefficients with Kymatio's, then races it.

    python compare.py <file.npz> <command that answers with Kymatio's times>...

Exits with an error if any coefficient is off by more than 1e-5 of the largest of its order, or if the race is won by
less than a factor of 5.
"""

import json
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from loca.encoders import Scattering1D, Scattering2D

TOLERANCE = 1e-5
SPEED = 5.0
REPEATS = {1: 30, 2: 9}  # by J; the best of each side counts, so that a busy moment does no harm


def build(case):
    options = {key: value for key, value in case.items() if key not in ("length", "shape")}
    if "length" in case:
        return Scattering1D.create(case["length"], **options)
    return Scattering2D.create(tuple(case["shape"]), **options)


def errors(case, u, theirs, orders):
    """For each order, max |ours − theirs| / max |theirs|."""
    ours = np.asarray(build(case).transform(jnp.asarray(u, dtype=float)))
    if ours.shape != theirs.shape:
        sys.exit(f"{case}: our coefficients have shape {ours.shape}, Kymatio's {theirs.shape}")
    return [
        np.abs(ours - theirs)[:, orders == order].max() / np.abs(theirs[:, orders == order]).max()
        for order in np.unique(orders)
    ]


def compare(path):
    """Print the table of errors; whether all are small."""
    stored = np.load(path)
    good = True
    print("| case | order 0, 1, 2: relative error in 32 bits | largest in 64 bits | ok |")
    print("| --- | --- | --- | --- |")
    for i, case in enumerate(json.loads(str(stored["cases"]))):
        arguments = case, stored[f"u{i}"], stored[f"s{i}"], stored[f"orders{i}"]
        single = errors(*arguments)
        with jax.enable_x64(True):
            double = max(errors(*arguments))
        ok = max(*single, double) <= TOLERANCE
        good &= ok
        name = ", ".join(f"{key} {value}" for key, value in case.items())
        print(f"| {name} | {'  '.join(f'{e:.1e}' for e in single)} | {double:.1e} | {'yes' if ok else 'NO'} |")
    return good


def race(command):
    """Print the times of both sides on 1000 fields of 32 × 32, taken in turns; whether we win by enough."""
    u = jnp.asarray(np.random.default_rng(0).standard_normal((1000, 32 * 32, 1)), dtype=jnp.float32)
    good = True
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kymatio:
        print("\n| 1000 fields of 32 × 32, L = 8 | Kymatio, NumPy | loca | ratio |")
        print("| --- | --- | --- | --- |")
        for scales, repeats in REPEATS.items():
            encode = jax.jit(jax.vmap(Scattering2D.create((32, 32), scales=scales, angles=8)))
            encode(u).block_until_ready()
            theirs, ours = [], []
            for _ in range(repeats):
                kymatio.stdin.write(f"{scales}\n")
                kymatio.stdin.flush()
                theirs.append(float(kymatio.stdout.readline()))
                start = time.perf_counter()
                encode(u).block_until_ready()
                ours.append(time.perf_counter() - start)
            ratio = min(theirs) / min(ours)
            good &= ratio >= SPEED
            print(f"| J = {scales} | {1e3 * min(theirs):.0f} ms | {1e3 * min(ours):.0f} ms | {ratio:.1f} |")
    return good


if __name__ == "__main__":
    equal, fast = compare(sys.argv[1]), race(sys.argv[2:])
    if not equal:
        sys.exit(f"some coefficients differ from Kymatio's by more than {TOLERANCE:g}")
    if not fast:
        sys.exit(f"less than {SPEED:g} times as fast as Kymatio; on a busy machine, repeat")
