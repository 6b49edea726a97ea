"""Shallow water rolled out 100 steps: a solved stepper, a trained one, and both; errors at each lead time, and mass.

    python studies/waves.py            # all of it
    python studies/waves.py --table    # print a table

Drops into a basin of 32 × 32 cells, `loca.problems.ShallowWater`, 101 frames 0.01 s apart: 30 trajectories to fit to, 5
for validation, 10 for the test. The FNO (12 modes, 24 wide, 4 layers) is trained for 1500 steps with noise, the solved
stepper is chosen on the validation trajectories, and so are the weights of both. Rows are added to studies/waves.json;
those that exist are not computed again.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
from rows import Rows, markdown, read_rows

import loca
from loca.domains import Box
from loca.models import combine_steppers

RESULTS = Path(__file__).parent / "waves.json"
TIMES = 0.01 * np.arange(1, 102)
SHOWN = (1, 2, 5, 10, 20, 50, 100)


def trajectories(seed, count):
    """Drops into the basin."""
    problem = loca.problems.ShallowWater(times=tuple(TIMES.round(2).tolist()))
    samples = problem.sample(jax.random.key(seed), count)
    s = np.asarray(samples.s).reshape(count, len(TIMES), -1, 3)
    names = {"fields": problem.outputs, "coordinates": problem.sensor_coordinates, "time": ("t", "s")}
    return loca.Trajectories(s, samples.x, times=TIMES, domain=Box.unit(2), **names)


def solved(train, validation):
    """The solved stepper."""
    stepper, report = loca.solve(train, validation=validation, progress=False)
    print(report, flush=True)
    return stepper


def trained(train, validation):
    """An FNO of increments."""
    model = loca.FNO.create(train.samples(), key=jax.random.key(0), modes=12, width=24)
    stepper, _ = loca.fit(model, train, steps=1500, batch_size=16, noise=0.01, validate=validation, progress=False)
    return stepper


def mass_of(frames):
    """The largest relative change of the mean height in a rollout."""
    mass = frames[..., 0].astype(np.float64).mean(axis=-1)
    return float(np.abs(mass / mass[:, :1] - 1.0).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    if parser.parse_args().table:
        rows = read_rows(RESULTS)
        lines = []
        for row in rows:
            errors = [f"{row['vrmse'][i - 1]:.2g}" for i in SHOWN]
            lines.append([row["stepper"], *errors, f"{row['mass']:.1g}", f"{row['core seconds']:.0f}"])
        print(markdown(["stepper", *(f"{i}" for i in SHOWN), "mass", "core s"], lines))
        return
    rows, made = Rows(RESULTS), {}
    data = trajectories(0, 45)
    train, validation, test = data.take(range(30)), data.take(range(30, 35)), data.take(range(35, 45))

    def both(*given):
        for name, way in (("solved", solved), ("FNO", trained)):
            made[name] = made.get(name) or way(*given)
        return combine_steppers(made, validation)[0]

    ways = {"solved": solved, "FNO": trained, "both": both}
    for name, way in ways.items():
        if any(row["stepper"] == name for row in rows.done):
            continue
        begun = time.process_time()
        made[name] = way(train, validation)
        seconds = time.process_time() - begun
        report = loca.evaluate(made[name], test)
        frames = np.concatenate([test.s[:, :1], made[name].rollout(test.s[:, :1], 100)], axis=1)
        row = {"stepper": name, "core seconds": seconds, "mass": mass_of(frames)}
        print(report, flush=True)
        for what in ("persistence", "climatology") if name == "solved" else ():
            vrmse = report.of("vrmse", what).mean(axis=1).tolist()
            rows.add({"stepper": what, "core seconds": 0.0, "mass": 0.0, "vrmse": vrmse})
        rows.add(row | {"vrmse": report.of("vrmse").mean(axis=1).tolist(), "geometric mean": report.geometric_mean()})


if __name__ == "__main__":
    main()
