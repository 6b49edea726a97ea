"""Climate: from air temperature to air pressure."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
from collections.abc import Sequence
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from loca.data import Samples, Variable
from loca.domains import Box, Domain, Sphere, area_weights
from loca.problems.climate_files import Record, read_era_interim, read_ncep, read_ncep_monthly, read_speedy
from loca.problems.problem import Problem
from loca.typing import Key

When = int | np.integer | str | datetime.date | np.datetime64
"""The number of a field in the record, or a date such as "2005-01-01"."""

PAPER = "Kissas et al., Learning Operators with Coupled Attention, JMLR 23 (2022), climate modeling"

DATA = {
    "ncep": "Kalnay et al., The NCEP/NCAR 40-Year Reanalysis Project, Bull. Amer. Meteor. Soc. 77 (1996); NOAA PSL",
    "speedy": "Molteni, Clim. Dyn. 20 (2003), SPEEDY; simulated with its JAX version, PyPI jcm 3.0.0",
    "era_interim": "Dee et al., The ERA-Interim reanalysis, Q. J. R. Meteorol. Soc. 137 (2011); ECMWF, via synoptReg",
    "ncep_monthly": "Kalnay et al., Bull. Amer. Meteor. Soc. 77 (1996); NOAA PSL, monthly means",
}

SPLIT = 1825
"""Number of training functions, and of test functions, in the paper: five years of 365 days each."""


@dataclasses.dataclass(frozen=True)
class Climate(Problem):
    """T ↦ p: from today's field of air temperature to today's field of pressure, in kelvin and pascals.

    There is no equation to solve: the pairs are the days (or months) of a record, in files that are read once per
    process, when first needed. Locations are (latitude, longitude) in degrees: on a `Sphere` for the globe and for
    land points, in a `Box` for a region. The error of the mean field is already below one percent, so report
    `loca.metrics.skill` with `weights` beside every relative error.

    Create one with `Climate.ncep`, `Climate.speedy`, `Climate.era_interim` or `Climate.ncep_monthly`.

    **Arguments:**

    - `source`: the record.
    - `path`: the file of the record, or for `"ncep"` the directory of its files.
    - `years`, `resolution`: see `Climate.ncep`.
    - `pressure`: see `Climate.ncep_monthly`.
    """

    citation: ClassVar[str] = PAPER
    block: ClassVar[int] = 500

    source: Literal["ncep", "speedy", "era_interim", "ncep_monthly"]
    path: str
    years: Sequence[int] = (2000, 2009)
    resolution: Literal["paper", "full"] = "paper"
    pressure: Literal["pacific", "land", "global"] = "pacific"

    def __post_init__(self):
        if self.source not in DATA:
            raise ValueError(f"unknown source {self.source!r}; choose one of {sorted(DATA)}")
        if self.resolution not in ("paper", "full"):
            raise ValueError(f"unknown resolution {self.resolution!r}; choose 'paper' (72 x 72) or 'full' (73 x 144)")
        if self.pressure not in ("pacific", "land", "global"):
            raise ValueError(f"unknown pressure {self.pressure!r}; choose 'pacific', 'land' or 'global'")
        if len(self.years) != 2 or self.years[0] > self.years[1]:
            raise ValueError(f"`years` must be the first and the last year to read, got {self.years}")
        object.__setattr__(self, "years", tuple(self.years))  # JSON has lists, which cannot be hashed
        object.__setattr__(self, "citation", f"{PAPER}; {DATA[self.source]}")  # shadows that of the class

    @classmethod
    def ncep(
        cls,
        directory: str | os.PathLike[str],
        years: Sequence[int] = (2000, 2009),
        resolution: Literal["paper", "full"] = "paper",
    ) -> Climate:
        """Daily surface air temperature and surface pressure of the NCEP/NCAR Reanalysis 1: the paper's record.

        The directory holds `air.sig995.YYYY.nc` and `pres.sfc.YYYY.nc` as published by NOAA's Physical Sciences
        Laboratory. 29 February is left out, as in the paper, so the default ten years are 1825 days to train on
        (2000–2004) and 1825 days to test on (2005–2009).

        **Arguments:**

        - `directory`: the folder with the files.
        - `years`: the first and the last year, both included.
        - `resolution`: `"paper"` keeps 72 × 72 points, every second longitude and all latitudes but 90° S; `"full"`
          keeps the 73 × 144 points of the files.
        """
        return cls("ncep", os.fspath(directory), years=years, resolution=resolution)

    @classmethod
    def speedy(cls, path: str | os.PathLike[str]) -> Climate:
        """Ten simulated years of daily surface air temperature and surface pressure on a 48 × 96 Gaussian grid.

        `studies/speedy_daily.py` writes the file.
        """
        return cls("speedy", os.fspath(path))

    @classmethod
    def era_interim(cls, path: str | os.PathLike[str]) -> Climate:
        """Daily temperature at 850 hPa and mean sea level pressure over Western Europe, ERA-Interim 2000–2010.

        `path` is an .npz file with `t850` in K and `mslp` in Pa on (day, lat, lon), `time`, `lat` and `lon`.
        """
        return cls("era_interim", os.fspath(path))

    @classmethod
    def ncep_monthly(
        cls, path: str | os.PathLike[str], pressure: Literal["pacific", "land", "global"] = "pacific"
    ) -> Climate:
        """Monthly surface air temperature of the globe (73 × 144) and sea level pressure, NCEP/NCAR Reanalysis 1.

        **Arguments:**

        - `path`: an .npz file with both.
        - `pressure`: on the North `"pacific"` (21 × 53 points, a box), at 2496 irregular points on `"land"`, or
          `"global"`, at 73 × 144 points, reconstructed from 20 principal components.
        """
        return cls("ncep_monthly", os.fspath(path), pressure=pressure)

    @property
    def domain(self) -> Domain:
        if self.source == "era_interim" or (self.source, self.pressure) == ("ncep_monthly", "pacific"):
            return Box(self.y.min(0).tolist(), self.y.max(0).tolist())
        return Sphere()

    @property
    def x(self) -> Float[np.ndarray, "m 2"]:
        return read(self).x

    @property
    def y(self) -> Float[np.ndarray, "M 2"]:
        return read(self).y

    @property
    def inputs(self) -> tuple[Variable, ...]:
        return (Variable("air_temperature", "K"),)

    @property
    def outputs(self) -> tuple[Variable, ...]:
        at_surface = self.source in ("ncep", "speedy")
        return (Variable("surface_air_pressure" if at_surface else "air_pressure_at_mean_sea_level", "Pa"),)

    @property
    def weights(self) -> Float[np.ndarray, " M"]:
        """The share of the area that each query represents, both on the globe and on a region."""
        return area_weights(Sphere(), self.y)

    @property
    def sensor_weights(self) -> Float[np.ndarray, " m"]:
        """The share of the area that each sensor represents."""
        return area_weights(Sphere(), self.x)

    @property
    def time(self) -> Shaped[np.ndarray, " N"]:
        """The dates of the record as datetime64; for a monthly mean, the first day of the month."""
        return read(self).time

    def __len__(self) -> int:
        return len(self.time)

    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m 1"], Float[np.ndarray, "B M 1"]]:
        """Fields of the record in a random order that depends on `key`; each occurs once, so the sequence is finite."""
        if len(rows) and not (0 <= min(rows) and max(rows) < len(self)):
            raise ValueError(
                f"numbers {min(rows)} to {max(rows)} are not in a record of {len(self)} fields; "
                f"pass numbers from 0 to {len(self) - 1}"
            )
        order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist()).permutation(len(self))
        record, chosen = read(self), order[np.asarray(rows, int)]
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
        return Samples(
            jnp.asarray(record.u[first:last, :, None]),
            jnp.asarray(self.y, jnp.float32),
            jnp.asarray(record.s[first:last, :, None]),
            x=jnp.asarray(self.x, jnp.float32),
            domain=self.domain,
            inputs=self.inputs,
            outputs=self.outputs,
        )

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

    @property
    def train_time(self) -> Shaped[np.ndarray, " N"]:
        """The dates of `train`."""
        return self.time[: self.split]

    @property
    def test_time(self) -> Shaped[np.ndarray, " N"]:
        """The dates of `test`."""
        return self.time[len(self) - self.split :]


@functools.lru_cache(maxsize=2)
def read(problem: Climate) -> Record:
    """Read the record of a problem; the last two records are cached."""
    if problem.source == "ncep":
        return read_ncep(problem.path, problem.years, problem.resolution)
    if problem.source == "speedy":
        return read_speedy(problem.path)
    if problem.source == "era_interim":
        return read_era_interim(problem.path)
    return read_ncep_monthly(problem.path, problem.pressure)
