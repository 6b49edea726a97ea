"""Make the simulated climate set that `loca_reproduction.problems.Climate` reads, with the JAX SPEEDY model.

    uv run --no-project --python 3.11 --with jcm==3.0.0 python studies/speedy_daily.py --days 3650 --out FILE.npz

SPEEDY is an atmosphere of T31 spectral resolution (48 × 96 Gaussian grid) and eight layers with simplified physics.
Terrain and the annual cycle of sea surface temperature come with `jcm`, which downloads nothing here. The first 90
days, in which the atmosphere at rest turns into weather, are left out. About 30 s per simulated month on two cores;
ten years (3650 days) take about an hour. The run is deterministic, and weather is chaotic: a machine or a version of
XLA that rounds differently gives other days of the same climate.
"""

import argparse
import importlib.resources
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

CHUNK = 30
"""Days per piece of the simulation; every chunk of this length runs the same compiled program."""

REFERENCE_PRESSURE = 1.0e5
"""Pascals in one unit of the model's normalized surface pressure."""

TEMPERATURE_OFFSET, TEMPERATURE_STEP = 270.0, 0.005
PRESSURE_OFFSET, PRESSURE_STEP = 80000.0, 2.0

NOTE = (
    "daily means, (day, lat, lon) on a 48x96 Gaussian grid; surface air temperature K = 270 + t_0_005K*0.005; surface "
    "pressure Pa = 80000 + p_2Pa*2; time = seconds since 1970 of a model calendar starting 2000-01-01; JAX SPEEDY "
    "(PyPI jcm 3.0.0) T31L8, terrain and forcing from its bundled t30/clim files, first {spin_up} days removed"
)


def simulate(days: int) -> Iterator[dict[str, np.ndarray]]:
    """Daily means of a SPEEDY run from rest on 2000-01-01, a chunk of days at a time."""
    from jcm.forcing import ForcingData  # pyright: ignore[reportMissingImports]
    from jcm.model import Model  # pyright: ignore[reportMissingImports]
    from jcm.physics.speedy.speedy_coords import get_speedy_coords  # pyright: ignore[reportMissingImports]
    from jcm.terrain import TerrainData  # pyright: ignore[reportMissingImports]

    boundary = importlib.resources.files("jcm") / "data/bc/t30/clim"
    coordinates = get_speedy_coords()
    forcing = ForcingData.from_file(str(boundary / "forcing.nc"), coordinates, align_mode="wrap_year")
    terrain = TerrainData.from_file(str(boundary / "terrain.nc"), coordinates)
    model = Model(coords=coordinates, terrain=terrain, start_time="2000-01-01")

    for first in range(0, days, CHUNK):
        advance = model.resume if first else model.run
        length = float(min(CHUNK, days - first))
        predictions = advance(forcing=forcing, save_interval=1.0, total_time=length, output_averages=True)
        fields = predictions.to_xarray()
        yield {
            "temperature": fields["surface_flux.t0"].transpose("time", "lat", "lon").values,
            "pressure": REFERENCE_PRESSURE
            * fields["normalized_surface_pressure"].transpose("time", "lat", "lon").values,
            "time": fields["time"].values.astype("datetime64[s]").astype(np.int64),
            "lat": fields["lat"].values,
            "lon": fields["lon"].values,
        }


def pack(values: np.ndarray, offset: float, step: float) -> np.ndarray:
    """round((values − offset) / step) as 16-bit numbers; raises where they do not fit."""
    packed = np.rint((values.astype(np.float64) - offset) / step)
    if not np.all(np.abs(packed) <= np.iinfo(np.int16).max):  # false for NaN too: a run that blew up stops here
        raise ValueError(f"values from {values.min()} to {values.max()} do not fit into {offset} ± 32767·{step}")
    return packed.astype(np.int16)


def write(out: Path, chunks: Sequence[dict[str, np.ndarray]], spin_up: int) -> None:
    """All days but the first `spin_up` in one file."""
    kept = {
        name: np.concatenate([chunk[name] for chunk in chunks])[spin_up:]
        for name in ("temperature", "pressure", "time")
    }
    # a file that is there is complete: it is written under another name first
    part = out.with_name(out.name + ".part.npz")
    np.savez_compressed(
        part,
        t_0_005K=pack(kept["temperature"], TEMPERATURE_OFFSET, TEMPERATURE_STEP),
        p_2Pa=pack(kept["pressure"], PRESSURE_OFFSET, PRESSURE_STEP),
        time=kept["time"],
        lat=chunks[0]["lat"],
        lon=chunks[0]["lon"],
        note=NOTE.format(spin_up=spin_up),
    )
    part.replace(out)


def main() -> None:
    """Run the model and write one file."""
    parser = argparse.ArgumentParser(description="Simulate daily surface air temperature and pressure with SPEEDY.")
    parser.add_argument("--days", type=int, default=3650, help="days to keep (default: 3650)")
    parser.add_argument("--spin-up", type=int, default=90, help="days to leave out first (default: 90)")
    parser.add_argument("--out", type=Path, required=True, help="the .npz file to write")
    chosen = parser.parse_args()

    start = time.monotonic()
    total = chosen.spin_up + chosen.days
    chunks, done = [], 0
    for chunk in simulate(total):
        chunks.append(chunk)
        done += len(chunk["time"])
        print(f"day {done} of {total}, {time.monotonic() - start:.0f} s", flush=True)
    write(chosen.out, chunks, chosen.spin_up)


if __name__ == "__main__":
    main()
