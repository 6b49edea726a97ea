"""Climate: from air temperature to air pressure, in records of four sources."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Float64, Shaped

from loca.data import Samples, Variable
from loca.domains import Box, Domain, Sphere, area_weights, grid
from loca.problems import Problem
from loca.typing import Key
from loca_reproduction.problems.order import shuffled

if TYPE_CHECKING:  # importing it takes as long as importing everything else
    import xarray

When = int | np.integer | str | datetime.date | np.datetime64
"""The number of a field in the record, or a date such as "2005-01-01"."""

Time = Shaped[np.ndarray, " N"]
"""Dates, as datetime64."""

PAPER = "Kissas et al., Learning Operators with Coupled Attention, JMLR 23 (2022), climate modeling"

DATA = {
    "ncep": "Kalnay et al., The NCEP/NCAR 40-Year Reanalysis Project, Bull. Amer. Meteor. Soc. 77 (1996); NOAA PSL",
    "speedy": "Molteni, Clim. Dyn. 20 (2003), SPEEDY; simulated with its JAX version, PyPI jcm 3.0.0",
    "era_interim": "Dee et al., The ERA-Interim reanalysis, Q. J. R. Meteorol. Soc. 137 (2011); ECMWF, via synoptReg",
    "ncep_monthly": "Kalnay et al., Bull. Amer. Meteor. Soc. 77 (1996); NOAA PSL, monthly means",
}

SPLIT = 1825  # number of training functions, and of test functions, in the paper: five years of 365 days each


@dataclasses.dataclass(frozen=True)
class Climate(Problem):
    """T ↦ p: from today's field of air temperature to today's field of pressure, in kelvin and pascals.

    There is no equation to solve: the pairs are the days (or months) of a record, in files that are read once per
    process, when first needed. Locations are (latitude, longitude) in degrees: on a `Sphere` for the globe and for
    land points, in a `Box` for a region. The error of the mean field is already below one percent, so report
    `loca.metrics.skill` with `weights` beside every relative error.

    The records:

    - `"ncep"`: daily surface air temperature and surface pressure of the NCEP/NCAR Reanalysis 1, the paper's record, in
      files `air.sig995.YYYY.nc` and `pres.sfc.YYYY.nc` as NOAA's Physical Sciences Laboratory publishes them. As in the
      paper, 72 × 72 points are kept, every second longitude and all latitudes but 90° S, and 29 February is left out,
      so the default ten years are 1825 days to train on (2000–2004) and 1825 days to test on (2005–2009).
    - `"speedy"`: ten simulated years of daily surface air temperature and surface pressure on a 48 × 96 Gaussian grid,
      in the file that `reproduction/studies/speedy_daily.py` writes.
    - `"era_interim"`: daily temperature at 850 hPa and mean sea level pressure over Western Europe, 2000–2010: an .npz
      file with `t850` in K and `mslp` in Pa on (day, lat, lon), `time`, `lat` and `lon`.
    - `"ncep_monthly"`: monthly surface air temperature of the globe (73 × 144) and sea level pressure at 2496 irregular
      land points: an .npz file with `air_cK` in 0.01 K above 0 °C on (month, lat, lon), `slp_land_cPa` in Pa above
      1000 hPa on (month, point), and their `_time`, `_lat` and `_lon`.

    **Arguments:**

    - `source`: the record.
    - `path`: the file of the record, or for `"ncep"` the directory of its files.
    - `years`: the first and the last year of `"ncep"`, both included.
    """

    citation: ClassVar[str] = PAPER
    inputs: ClassVar[tuple[Variable, ...]] = (Variable("air_temperature", "K"),)
    block: ClassVar[int] = 500

    source: str
    path: str | os.PathLike[str]
    years: Sequence[int] = (2000, 2009)

    def __post_init__(self):
        if self.source not in DATA:
            raise ValueError(f"unknown source {self.source!r}; choose one of {', '.join(DATA)}")
        if len(self.years) != 2 or self.years[0] > self.years[1]:
            raise ValueError(f"`years` must be the first and the last year to read, got {self.years}")
        object.__setattr__(self, "path", os.fspath(self.path))
        object.__setattr__(self, "years", tuple(self.years))  # JSON has lists, which cannot be hashed
        pressure = "surface_air_pressure" if self.source in ("ncep", "speedy") else "air_pressure_at_mean_sea_level"
        object.__setattr__(self, "outputs", (Variable(pressure, "Pa"),))
        object.__setattr__(self, "citation", f"{PAPER}; {DATA[self.source]}")  # shadows that of the class

    @property
    def domain(self) -> Domain:
        if self.source == "era_interim":
            return Box(self.y.min(0).tolist(), self.y.max(0).tolist())
        return Sphere()

    @property
    def x(self) -> Float[np.ndarray, "m 2"]:
        return read(self).x

    @property
    def y(self) -> Float[np.ndarray, "M 2"]:
        return read(self).y

    @property
    def weights(self) -> Float[np.ndarray, " M"]:
        """The share of the area that each query represents, both on the globe and on a region."""
        return area_weights(Sphere(), self.y)

    @property
    def time(self) -> Time:
        """The dates of the record as datetime64; for a monthly mean, the first day of the month."""
        return read(self).time

    def __len__(self) -> int:
        return len(self.time)

    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m 1"], Float[np.ndarray, "B M 1"]]:
        """Fields of the record in a random order that depends on `key`; each occurs once, so the sequence is finite."""
        record, chosen = read(self), shuffled(key, rows, len(self), "the record", "fields")
        return record.u[chosen, :, None].astype(np.float64), record.s[chosen, :, None].astype(np.float64)

    def between(self, start: When, stop: When) -> Samples:
        """The fields from `start` to `stop`, excluding `stop`, in order of time; both are dates or numbers."""
        first, last = self._number(start), self._number(stop)
        if not 0 <= first < last <= len(self):
            raise ValueError(
                f"no fields from {start} to {stop}: the record has {len(self)} fields, "
                f"from {self.time[0]} to {self.time[-1]}; pass dates or numbers in this range"
            )
        record = read(self)
        return self._samples(record.u[first:last, :, None], record.s[first:last, :, None])

    def _number(self, when: When) -> int:
        if isinstance(when, int | np.integer):
            return int(when)
        return int(np.searchsorted(self.time, np.asarray(when, "datetime64[s]")))

    @property
    def split(self) -> int:
        """The size of each of the paper's two sets: 1825, or half of a record that is shorter than both."""
        return min(SPLIT, len(self) // 2)

    @property
    def train(self) -> Samples:
        """The paper's training set: the first `split` fields."""
        return self.between(0, self.split)

    @property
    def test(self) -> Samples:
        """The paper's test set: the last `split` fields."""
        return self.between(len(self) - self.split, len(self))


# ---- files ----------------------------------------------------------------------------------------------------------

PUBLISHER = (
    "NOAA's Physical Sciences Laboratory publishes it under 'NCEP-NCAR Reanalysis 1', surface daily averages "
    "(https://psl.noaa.gov/data/gridded/data.ncep.reanalysis.html)"
)

LATITUDE, LONGITUDE = np.linspace(90.0, -90.0, 73), 2.5 * np.arange(144)  # the grid of the daily files

DAILY_FILES = {"air": ("air.sig995", ("degK", "K")), "pres": ("pres.sfc", ("Pascals", "Pa"))}
"""For each variable, the beginning of its file names and the spellings of its unit."""


class Record(NamedTuple):
    """Fields at N times: temperature u in kelvin at the sensors x, pressure s in pascals at the queries y."""

    time: Time
    x: Float64[np.ndarray, "m 2"]
    y: Float64[np.ndarray, "M 2"]
    u: Float32[np.ndarray, "N m"]
    s: Float32[np.ndarray, "N M"]


@functools.lru_cache(maxsize=2)
def read(problem: Climate) -> Record:
    """Read the record of a problem; the last two records are cached."""
    if problem.source == "ncep":
        return read_ncep(problem.path, problem.years)
    if problem.source == "ncep_monthly":
        return read_ncep_monthly(problem.path)
    if problem.source == "speedy":
        data = _open(problem.path, ("t_0_005K", "p_2Pa", "time", "lat", "lon"))
        u, s = 270.0 + data["t_0_005K"] * 0.005, 80000.0 + data["p_2Pa"] * 2.0
    else:
        data = _open(problem.path, ("t850", "mslp", "time", "lat", "lon"))
        u, s = data["t850"], data["mslp"]
    y = grid(data["lat"].astype(np.float64), data["lon"].astype(np.float64))
    return Record(data["time"].astype("datetime64[s]"), y, y, _flat(u), _flat(s))


def read_ncep(directory: str | os.PathLike[str], years: Sequence[int]) -> Record:
    """Read `air.sig995.YYYY.nc` and `pres.sfc.YYYY.nc` as published, without 29 February, as in the paper."""
    first, last = years
    time, points, fields = {}, {}, {}
    for name in DAILY_FILES:
        files = [_read_ncep_year(Path(directory), name, year) for year in range(first, last + 1)]
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


def _read_ncep_year(directory: Path, name: str, year: int) -> xarray.DataArray:
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
    return field.isel(lat=slice(None, -1), lon=slice(None, None, 2)).copy()  # a copy frees the memory of the rest


def is_leap_day(time: Time) -> Bool[np.ndarray, " N"]:
    """Whether a date is 29 February."""
    day, month = time.astype("datetime64[D]"), time.astype("datetime64[M]")
    return (month.astype(int) % 12 == 1) & ((day - month).astype(int) == 28)


def read_ncep_monthly(path: str | os.PathLike[str]) -> Record:
    """Read the monthly means of the months that temperature and pressure have in common."""
    axes = (f"{kind}_{axis}" for kind in ("air", "slp_land") for axis in ("time", "lat", "lon"))
    data = _open(path, ("air_cK", "slp_land_cPa", *axes))
    air, land = (data[name].astype("datetime64[M]") for name in ("air_time", "slp_land_time"))
    time, of_air, of_pressure = np.intersect1d(air, land, return_indices=True)
    x = grid(data["air_lat"].astype(np.float64), data["air_lon"].astype(np.float64))
    y = np.stack([data["slp_land_lat"], data["slp_land_lon"]], axis=-1).astype(np.float64)
    kelvin = 273.15 + 0.01 * data["air_cK"][of_air]
    hectopascals = 1000.0 + 0.01 * data["slp_land_cPa"][of_pressure]
    return Record(time.astype("datetime64[s]"), x, y, _flat(kelvin), _flat(100.0 * hectopascals))


def _flat(fields: Shaped[np.ndarray, "N ..."]) -> Float32[np.ndarray, "N m"]:
    return fields.reshape(len(fields), -1).astype(np.float32)


def _open(path: str | os.PathLike[str], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}; pass the path of an .npz file with {', '.join(names)}")
    with np.load(path, allow_pickle=False) as archive:
        missing = [name for name in names if name not in archive.files]
        if missing:
            raise ValueError(f"{path} holds {archive.files} but not {missing}; is it a file of another source?")
        return {name: archive[name] for name in names}


# ---- the seasonal mean ----------------------------------------------------------------------------------------------

SECONDS_PER_YEAR = 365.2425 * 86400.0  # the mean length of a year in the Gregorian calendar
HARMONICS = 2  # the annual and the semiannual cycle


@dataclasses.dataclass(frozen=True)
class Climatology:
    """s̄(t, y) = a₀(y) + Σₖ aₖ(y) cos 2πkt + bₖ(y) sin 2πkt, k ≤ 2, t in years: the prediction from the date alone.

    **Arguments:**

    - `coefficients`: a₀, a₁, b₁, a₂, b₂ at every location.
    """

    coefficients: Float[np.ndarray, "5 P d_s"]

    @classmethod
    def fit(cls, time: Time, fields: Float[Array | np.ndarray, "N P d_s"]) -> Climatology:
        """Fit by least squares over the given dates."""
        waves = annual_waves(time)
        if len(time) < waves.shape[1]:
            raise ValueError(f"a climatology needs at least {waves.shape[1]} fields, got {len(time)}")
        values = np.asarray(fields, np.float64)
        flat = np.linalg.lstsq(waves, values.reshape(len(values), -1), rcond=None)[0]
        return cls(flat.reshape(-1, *values.shape[1:]))

    def __call__(self, time: Time) -> Float[np.ndarray, "N P d_s"]:
        """The mean fields of these dates."""
        return np.tensordot(annual_waves(time), self.coefficients, axes=1)


def annual_waves(time: Time) -> Float[np.ndarray, "N 5"]:
    """1, cos 2πt, sin 2πt, cos 4πt, sin 4πt with t in years since 2000-01-01."""
    angle = 2.0 * np.pi / SECONDS_PER_YEAR * ((time - np.datetime64("2000-01-01", "s")) / np.timedelta64(1, "s"))
    waves = [f(k * angle) for k in range(1, HARMONICS + 1) for f in (np.cos, np.sin)]
    return np.stack([np.ones_like(angle), *waves], axis=1)
