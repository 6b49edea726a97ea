"""Skill per lead time of steppers on real and simulated weather, beside persistence and climatology.

    python studies/weather_steps.py europe erainterim_daily_weurope.npz    # one data set, from its file
    python studies/weather_steps.py speedy speedy_daily.npz
    python studies/weather_steps.py --table                                # print a table

`europe` are eleven years of daily ERA-Interim fields on 11 × 13 points, `speedy` ten years of the climate model SPEEDY
(`speedy_daily.py`), at every second point. Years are trajectories: the last one is the test, the two before it are for
validation and for the calibration of the spread. The season is a cycle. A row is the solved stepper; it is computed
once, and rows are added to studies/weather_steps.json.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from rows import Rows, markdown, read_rows

import loca
from loca.data import Variable
from loca.domains import Box, Sphere, grid

RESULTS = Path(__file__).parent / "weather_steps.json"
DAYS, STEPS, EVERY, DRAWS = 365, 10, 5, 16
"""Frames of a year, steps of a rollout, days between two starts, and draws."""


def years(s, lat, lon, times, domain, fields):
    """Years as trajectories."""
    s = s.reshape(1, len(s), -1, s.shape[-1])
    names = (Variable("latitude", "degrees_north"), Variable("longitude", "degrees_east"))
    options = {"domain": domain, "fields": fields, "coordinates": names, "cycles": (365.25,)}
    return loca.Trajectories(s, grid(lat, lon), times=times, **options).cut(DAYS)


def europe(file):
    """Temperature, pressure and geopotential over western Europe."""
    with np.load(file) as held:
        s = np.stack([held["t850"], held["mslp"] / 100.0, held["z500"] / 9.81], axis=-1)
        lat, lon = held["lat"], held["lon"]
        times = np.datetime64("2000-01-01") + np.arange(len(s))
    box = Box([lat.min(), lon.min()], [lat.max(), lon.max()])
    return years(s, lat, lon, times, box, (Variable("t850", "K"), Variable("mslp", "hPa"), Variable("z500", "m")))


def speedy(file):
    """Temperature and pressure at the surface of the globe."""
    with np.load(file) as held:
        t, p = 270.0 + 0.005 * held["t_0_005K"][:, ::2, ::2], 800.0 + 0.02 * held["p_2Pa"][:, ::2, ::2]
        lat, lon, times = held["lat"][::2], held["lon"][::2], held["time"].astype("datetime64[s]")
    s = np.stack([t, p], axis=-1)
    return years(s, lat, lon, times, Sphere(), (Variable("temperature", "K"), Variable("pressure", "hPa")))


SETS = {"europe": europe, "speedy": speedy}


def run(name, file):
    """Solve, calibrate and evaluate one data set."""
    data = SETS[name](file)
    n = len(data)
    train, validation, held, test = (
        data.take(range(*each)) for each in ((n - 3,), (n - 3, n - 2), (n - 2, n - 1), (n - 1, n))
    )
    begun = time.process_time()
    stepper, report = loca.solve(train, validation=validation.cut(STEPS + 5), progress=True)
    solved = time.process_time() - begun
    print(report, flush=True)
    key = jax.random.key(0)
    stepper = loca.calibrate(stepper, held, steps=STEPS, every=EVERY, draws=DRAWS, key=key)
    plain = loca.evaluate(stepper, test, steps=STEPS, every=EVERY)
    spread = loca.evaluate(stepper, test, steps=STEPS, every=EVERY, draws=DRAWS, key=key)
    print(plain, spread, sep="\n", flush=True)
    row = {
        "data": name,
        "core seconds to solve": solved,
        "report": str(report),
        "starts": len(plain.errors["forecast"]["rmse"]),
    }
    for c, field in enumerate(plain.outputs):
        found = {f"rmse, {what}": plain.of("rmse", what)[:, c].tolist() for what in plain.errors}
        found["rmse, mean of draws"] = spread.of("rmse")[:, c].tolist()
        found["mae"], found["crps"] = plain.of("mae")[:, c].tolist(), spread.of("crps")[:, c].tolist()
        found["spread / rmse"] = spread.spread_skill[:, c].tolist()
        found["correlation"] = plain.of("correlation")[:, c].tolist()
        row[str(field)] = found
    return row


def table(rows):
    """RMSE at days 1, 2, 3, 5 and 10, and the spread."""
    head = [
        "data",
        "field",
        "day",
        "persistence",
        "climatology",
        "stepper",
        "mean of draws",
        "MAE",
        "CRPS",
        "spread / RMSE",
    ]
    lines = []
    for row in rows:
        for field, found in row.items():
            for day in (1, 2, 3, 5, 10) if isinstance(found, dict) else ():
                names = (
                    "rmse, persistence",
                    "rmse, climatology",
                    "rmse, forecast",
                    "rmse, mean of draws",
                    "mae",
                    "crps",
                )
                values = [f"{found[each][day - 1]:.3g}" for each in names]
                lines.append([row["data"], field, str(day), *values, f"{found['spread / rmse'][day - 1]:.2f}"])
    return markdown(head, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", choices=SETS)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(table(read_rows(RESULTS)))
        return
    rows = Rows(RESULTS)
    if any(row["data"] == options.data for row in rows.done):
        print(f"{options.data} is in {RESULTS.name} already", flush=True)
        return
    rows.add(json.loads(json.dumps(run(options.data, options.file))))


if __name__ == "__main__":
    main()
