"""Readers of temperature and pressure records, one for each source."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Shaped

from loca.problems.problem import grid

if TYPE_CHECKING:  # importing it takes as long as importing everything else
    import xarray

ZERO_CELSIUS = 273.15

PUBLISHER = (
    "NOAA's Physical Sciences Laboratory publishes it under 'NCEP-NCAR Reanalysis 1', surface daily averages "
    "(https://psl.noaa.gov/data/gridded/data.ncep.reanalysis.html)"
)

LATITUDE, LONGITUDE = np.linspace(90.0, -90.0, 73), 2.5 * np.arange(144)
"""The grid of the daily files."""

DAILY_FILES = {"air": ("air.sig995", ("degK", "K")), "pres": ("pres.sfc", ("Pascals", "Pa"))}
"""For each variable, the beginning of its file names and the spellings of its unit."""


class Record(NamedTuple):
    """Fields at N times: temperature u in kelvin at the sensors x, pressure s in pascals at the queries y."""

    time: Shaped[np.ndarray, " N"]
    x: Float64[np.ndarray, "m 2"]
    y: Float64[np.ndarray, "M 2"]
    u: Float32[np.ndarray, "N m"]
    s: Float32[np.ndarray, "N M"]


def read_ncep(directory: str, years: Sequence[int], resolution: Literal["paper", "full"]) -> Record:
    """Read `air.sig995.YYYY.nc` and `pres.sfc.YYYY.nc` as published, without 29 February, as in the paper."""
    first, last = years
    time, points, fields = {}, {}, {}
    for name in DAILY_FILES:
        files = [_read_ncep_year(Path(directory), name, year, resolution) for year in range(first, last + 1)]
        time[name] = np.concatenate([field["time"].values for field in files]).astype("datetime64[s]")
        points[name] = grid(*(files[0][axis].values.astype(np.float64) for axis in ("lat", "lon")))
        fields[name] = np.concatenate([field.values.reshape(len(field), -1) for field in files])
    if not np.array_equal(time["air"], time["pres"]):
        raise ValueError(
            f"the dates of `air` and `pres` in {directory} differ: {len(time['air'])} up to {time['air'][-1]} and "
            f"{len(time['pres'])} up to {time['pres'][-1]}; download the files of both variables on the same day"
        )
    kept = ~is_leap_day(time["air"])
    return Record(time["air"][kept], points["air"], points["pres"], fields["air"][kept], fields["pres"][kept])


def _read_ncep_year(directory: Path, name: str, year: int, resolution: str) -> xarray.DataArray:
    import xarray

    stem, units = DAILY_FILES[name]
    file = directory / f"{stem}.{year}.nc"
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; download {file.name} into {directory}: {PUBLISHER}")
    with warnings.catch_warnings():
        # some years have both a `missing_value` and a different `_FillValue`; xarray masks both and warns
        warnings.filterwarnings("ignore", message=".*multiple fill values", category=xarray.SerializationWarning)
        with xarray.open_dataset(file, engine="h5netcdf") as data:
            if name not in data:
                raise ValueError(
                    f"{file} holds {sorted(map(str, data.data_vars))} but no variable `{name}`; {PUBLISHER}"
                )
            field = data[name].transpose("time", "lat", "lon").astype(np.float32).load()
    if field.attrs.get("units") not in units:
        raise ValueError(f"{file} gives `{name}` in {field.attrs.get('units')!r}; expected one of {units}")
    latitude, longitude = field["lat"].values, field["lon"].values
    if not (np.array_equal(latitude, LATITUDE) and np.array_equal(longitude, LONGITUDE)):
        raise ValueError(
            f"{file} holds {len(latitude)} latitudes from {latitude[0]} to {latitude[-1]} and {len(longitude)} "
            f"longitudes from {longitude[0]} to {longitude[-1]}; expected 73 from 90 to -90 and 144 from 0 to 357.5, "
            f"the grid of the published file: {PUBLISHER}"
        )
    missing = int(np.isnan(field.values).sum())
    if missing:
        raise ValueError(f"{file} lacks {missing} values of `{name}`; download it again: {PUBLISHER}")
    if resolution == "paper":  # a copy, so that the memory of the rest is freed
        return field.isel(lat=slice(None, -1), lon=slice(None, None, 2)).copy()
    return field


def is_leap_day(time: Shaped[np.ndarray, " N"]) -> Bool[np.ndarray, " N"]:
    """Whether a date is 29 February."""
    day, month = time.astype("datetime64[D]"), time.astype("datetime64[M]")
    return (month.astype(int) % 12 == 1) & ((day - month).astype(int) == 28)


def read_speedy(path: str) -> Record:
    """Read a file written by `studies/speedy_daily.py`."""
    data = _open(path, ("t_0_005K", "p_2Pa", "time", "lat", "lon"))
    y = grid(data["lat"].astype(np.float64), data["lon"].astype(np.float64))
    u, s = _flat(270.0 + data["t_0_005K"] * 0.005), _flat(80000.0 + data["p_2Pa"] * 2.0)
    return Record(data["time"].astype("datetime64[s]"), y, y, u, s)


def read_era_interim(path: str) -> Record:
    """Read `t850` and `mslp` on (day, lat, lon)."""
    data = _open(path, ("t850", "mslp", "time", "lat", "lon"))
    y = grid(data["lat"].astype(np.float64), data["lon"].astype(np.float64))
    return Record(data["time"].astype("datetime64[s]"), y, y, _flat(data["t850"]), _flat(data["mslp"]))


def read_ncep_monthly(path: str, pressure: Literal["pacific", "land", "global"]) -> Record:
    """Read the monthly means of the months that temperature and pressure have in common."""
    kind = {"pacific": "slp_npac", "land": "slp_land", "global": "slp_eof"}[pressure]
    values = ("slp_eof_pc", "slp_eof_pattern", "slp_eof_mean") if pressure == "global" else (f"{kind}_cPa",)
    air = ("air_cK", "air_time", "air_lat", "air_lon")
    data = _open(path, (*air, *values, f"{kind}_time", f"{kind}_lat", f"{kind}_lon"))
    air_months, pressure_months = (data[name].astype("datetime64[M]") for name in ("air_time", f"{kind}_time"))
    time, of_air, of_pressure = np.intersect1d(air_months, pressure_months, return_indices=True)

    u = ZERO_CELSIUS + 0.01 * data["air_cK"][of_air]
    x = grid(data["air_lat"].astype(np.float64), data["air_lon"].astype(np.float64))
    latitude, longitude = data[f"{kind}_lat"].astype(np.float64), data[f"{kind}_lon"].astype(np.float64)
    y = np.stack([latitude, longitude], axis=-1) if pressure == "land" else grid(latitude, longitude)
    if pressure == "global":
        hectopascals = data["slp_eof_mean"] + np.tensordot(
            data["slp_eof_pc"][of_pressure].astype(np.float64), data["slp_eof_pattern"], axes=1
        )
    else:
        hectopascals = 1000.0 + 0.01 * data[f"{kind}_cPa"][of_pressure]
    return Record(time.astype("datetime64[s]"), x, y, _flat(u), _flat(100.0 * hectopascals))


def _flat(fields: Shaped[np.ndarray, "N ..."]) -> Float32[np.ndarray, "N m"]:
    return fields.reshape(len(fields), -1).astype(np.float32)


def _open(path: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}; pass the path of an .npz file with {', '.join(names)}")
    with np.load(path, allow_pickle=False) as archive:
        missing = [name for name in names if name not in archive.files]
        if missing:
            raise ValueError(f"{path} holds {archive.files} but not {missing}; is it a file of another source?")
        return {name: archive[name] for name in names}
