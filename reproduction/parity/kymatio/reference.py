"""Kymatio's side of the parity check; runs in the isolated environment and knows nothing of loca.

python reference.py coefficients <file.npz>    inputs and coefficients of every case
python reference.py time                       for every line "J" on standard input: seconds for 1000 fields
"""

import itertools
import json
import sys
import time

import numpy as np
from kymatio.numpy import Scattering1D, Scattering2D

CASES = [
    *({"length": T, "scales": 4, "wavelets_per_octave": 8, "order": 2} for T in (500, 1000)),
    {"length": 500, "scales": 4, "wavelets_per_octave": 8, "order": 1},
    {"length": 300, "scales": 1, "wavelets_per_octave": 8, "order": 2},
    {"length": 1000, "scales": 6, "wavelets_per_octave": 1, "order": 2},
    *(
        {"shape": [n, n], "scales": J, "angles": L, "order": 2}
        for J, L, n in itertools.product((1, 2, 3), (2, 8, 16), (28, 32, 72))
    ),
    {"shape": [32, 32], "scales": 2, "angles": 8, "order": 1},
    {"shape": [32, 32], "scales": 1, "angles": 3, "order": 2},
    {"shape": [24, 40], "scales": 2, "angles": 4, "order": 2},
]


def coefficients(case, u):
    if "length" in case:
        scattering = Scattering1D(case["scales"], case["length"], case["wavelets_per_octave"], max_order=case["order"])
    else:
        scattering = Scattering2D(case["scales"], case["shape"], case["angles"], max_order=case["order"])
    s = scattering(u)
    # The order of every path, so that errors can be told order by order.
    scattering.out_type = "list"
    orders = [len(path["n"]) for path in scattering(u)]
    return s, np.array(orders)


def write(path):
    rng = np.random.default_rng(0)
    arrays = {"cases": json.dumps(CASES)}
    for i, case in enumerate(CASES):
        grid = [case["length"]] if "length" in case else case["shape"]
        u = rng.standard_normal((2, *grid))
        s, orders = coefficients(case, u)
        arrays |= {f"u{i}": u, f"s{i}": s, f"orders{i}": orders}
    np.savez(path, **arrays)


def answer_times():
    u = np.random.default_rng(0).standard_normal((1000, 32, 32)).astype(np.float32)
    scatterings = {}
    for line in sys.stdin:
        scales = int(line)
        if scales not in scatterings:
            scatterings[scales] = Scattering2D(scales, (32, 32), L=8)
            scatterings[scales](u)  # warm up, as the other side may
        start = time.perf_counter()
        scatterings[scales](u)
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["coefficients", path]:
            write(path)
        case ["time"]:
            answer_times()
        case _:
            sys.exit(__doc__)
