"""Climate: files as published, records as problems, and the seasonal mean that every model has to beat."""

import importlib.util
import json
from pathlib import Path

import h5netcdf
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import Variable
from loca.domains import Box, Sphere
from loca.metrics import relative_l2
from loca_reproduction.problems import Climate, Climatology
from loca_reproduction.problems.climate import is_leap_day

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared/data"


def real(name):
    file = DATA / name
    if not file.is_file():
        pytest.skip(f"needs the real record {file}, which is not part of the project")
    return file


# --- NCEP daily files, written with their attributes as the Physical Sciences Laboratory publishes them ---

LATITUDE, LONGITUDE = np.linspace(90.0, -90.0, 73), 2.5 * np.arange(144)
DAYS = ["01-01", "02-28", "02-29", "03-01", "12-31"]
AIR, PRES = "air", "pres"
STEMS = {AIR: "air.sig995", PRES: "pres.sfc"}


def dates(year):
    leap = year % 4 == 0
    return np.array([f"{year}-{day}" for day in DAYS if leap or day != "02-29"], "datetime64[D]")


def truth(name, time):
    """A field that tells every day, latitude and longitude apart, in steps that 16 bits hold exactly."""
    day = (time - np.datetime64("2000-01-01")).astype(int) % 1000
    units = day[:, None, None] + 3 * np.arange(73)[:, None] + 5 * np.arange(144)
    return 230.0 + 0.01 * units if name == AIR else 60000.0 + 10.0 * units


def publish(directory, name, year, *, packed=False, time=None, values=None, latitude=LATITUDE, **attributes):
    time = dates(year) if time is None else time
    values = truth(name, time) if values is None else values
    missing, fill = np.float32(-9.96921e36), np.float32(-9.96921e36)
    known = {"units": "degK" if name == AIR else "Pascals"}
    if packed:
        offset, scale = (512.81, 0.01) if name == AIR else (367650.0, 10.0)
        stored = np.where(np.isnan(values), 32766, np.rint((values - offset) / scale)).astype(np.int16)
        known |= {"add_offset": np.float32(offset), "scale_factor": np.float32(scale)}
        missing, fill = np.int16(32766), np.int16(-32767)
    else:
        stored = np.where(np.isnan(values), missing, values).astype(np.float32)
    known |= {"missing_value": missing} | attributes
    hours = (time - np.datetime64("1800-01-01")) / np.timedelta64(1, "h")
    with h5netcdf.File(directory / f"{STEMS[name]}.{year}.nc", "w") as file:
        file.dimensions = {"time": None, "lat": 73, "lon": 144}
        file.resize_dimension("time", len(time))
        for axis, numbers, dtype, unit in [
            ("lat", latitude, "f4", "degrees_north"),
            ("lon", LONGITUDE, "f4", "degrees_east"),
            ("time", hours, "f8", "hours since 1800-01-01 00:00:0.0"),
        ]:
            file.create_variable(axis, (axis,), dtype, data=numbers.astype(dtype)).attrs["units"] = unit
        file.variables["time"].attrs["delta_t"] = "0000-00-01 00:00:00"
        variable = file.create_variable(name, ("time", "lat", "lon"), stored.dtype, data=stored, fillvalue=fill)
        for attribute, value in known.items():
            variable.attrs[attribute] = value
        file.attrs["Conventions"] = "COARDS"
        file.attrs["title"] = "mean daily NMC reanalysis"


@pytest.mark.parametrize("packed", [True, False], ids=["int16", "float32"])
def test_ncep_files_are_read_as_published(tmp_path, packed):
    for year in (2003, 2004):
        for name in STEMS:
            publish(tmp_path, name, year, packed=packed)
    problem = Climate("ncep", tmp_path, years=(2003, 2004))

    # 29 February 2004 is left out, every other day is there
    expected = [f"{year}-{day}" for year in (2003, 2004) for day in DAYS if day != "02-29"]
    np.testing.assert_array_equal(problem.time, np.array(expected, "datetime64[s]"))

    rows, columns = slice(0, 72), slice(0, 144, 2)
    np.testing.assert_allclose(problem.y[:, 1].reshape(72, 72)[0], np.linspace(0.0, 355.0, 72))
    np.testing.assert_allclose(problem.y[:, 0].reshape(72, 72)[:, 0], np.linspace(90.0, -87.5, 72))
    np.testing.assert_array_equal(problem.x, problem.y)

    samples = problem.between(0, len(problem))
    for name, values in ((AIR, samples.u), (PRES, samples.s)):
        fields = truth(name, problem.time.astype("datetime64[D]"))[:, rows, columns]
        # float32 keeps 1.5e-5 K and 0.004 Pa; packed files are unpacked with factors of single precision
        tolerance = {AIR: 1e-4, PRES: 0.02}[name]
        np.testing.assert_allclose(np.asarray(values).reshape(fields.shape), fields, rtol=0, atol=tolerance)
    assert samples.inputs == (Variable("air_temperature", "K"),)
    assert samples.outputs == (Variable("surface_air_pressure", "Pa"),)
    assert problem.domain == Sphere()
    assert problem.weights.sum() == pytest.approx(1.0)


def test_ten_years_without_their_leap_days_are_the_paper_s_two_sets():
    """2 × 1825 days, the second set beginning with 2005; centuries are leap years every fourth time only."""
    first, last = Climate("ncep", "anywhere").years
    days = np.arange(f"{first}-01-01", f"{last + 1}-01-01", dtype="datetime64[D]")
    kept = days[~is_leap_day(days)]
    assert len(kept) == 2 * 1825
    assert str(kept[1825]) == "2005-01-01"
    century = np.arange("1899-01-01", "1905-01-01", dtype="datetime64[D]")
    assert [str(day) for day in century[is_leap_day(century)]] == ["1904-02-29"]


def test_a_missing_year_says_which_file_and_where_it_is_published(tmp_path):
    for name in STEMS:
        publish(tmp_path, name, 2000)
    problem = Climate("ncep", tmp_path, years=(2000, 2001))
    with pytest.raises(FileNotFoundError, match=r"air\.sig995\.2001\.nc(.|\n)*Physical Sciences Laboratory"):
        _ = problem.y


@pytest.mark.parametrize("packed", [True, False], ids=["int16", "float32"])
def test_missing_values_are_refused_not_learned(tmp_path, packed):
    values = truth(AIR, dates(2001))
    values[1, 20, 30] = np.nan
    publish(tmp_path, AIR, 2001, packed=packed, values=values)
    publish(tmp_path, PRES, 2001, packed=packed)
    with pytest.raises(ValueError, match=r"air\.sig995\.2001\.nc lacks 1 value"):
        _ = Climate("ncep", tmp_path, years=(2001, 2001)).y


def test_other_units_grids_and_dates_are_refused(tmp_path):
    publish(tmp_path, AIR, 2001)
    publish(tmp_path, PRES, 2001, units="millibars")
    with pytest.raises(ValueError, match="millibars"):
        _ = Climate("ncep", tmp_path, years=(2001, 2001)).y
    publish(tmp_path, PRES, 2001, latitude=LATITUDE[::-1])
    with pytest.raises(ValueError, match=r"from -90\.0 to 90\.0"):
        _ = Climate("ncep", tmp_path, years=(2001, 2001)).y
    publish(tmp_path, PRES, 2001, time=dates(2001)[1:])
    with pytest.raises(ValueError, match=r"the dates of `air` and `pres` .* differ"):
        _ = Climate("ncep", tmp_path, years=(2001, 2001)).y


def speedy_study():
    spec = importlib.util.spec_from_file_location("speedy_daily", ROOT / "reproduction/studies/speedy_daily.py")
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    return study


@pytest.fixture
def small(tmp_path):
    """Forty days on a 6 × 8 grid in the file that the study writes, in two chunks, ten days of them spin-up."""
    random = np.random.default_rng(0)
    time = (np.datetime64("2000-01-01T12", "s") + np.arange(40) * np.timedelta64(86400, "s")).astype(np.int64)
    whole = {"temperature": random.uniform(220, 310, (40, 6, 8)), "pressure": random.uniform(5e4, 1.08e5, (40, 6, 8))}
    axes = {"lat": np.linspace(-75.0, 75.0, 6), "lon": 45.0 * np.arange(8)}
    chunks = [
        {"time": time[i], **{name: a[i] for name, a in whole.items()}, **axes} for i in (slice(30), slice(30, 40))
    ]
    speedy_study().write(tmp_path / "small.npz", chunks, spin_up=10)
    return Climate("speedy", tmp_path / "small.npz"), whole, axes


def test_what_the_speedy_study_writes_is_read_back(small):
    problem, whole, axes = small
    assert len(problem) == 30
    assert problem.time[0] == np.datetime64("2000-01-11T12:00:00")
    samples = problem.between(0, 30)
    half = {"temperature": 0.0025, "pressure": 1.0}  # rounding to the steps of the file
    for name, values in (("temperature", samples.u), ("pressure", samples.s)):
        error = np.abs(np.asarray(values, np.float64).reshape(30, 6, 8) - whole[name][10:])
        assert 0.9 * half[name] < error.max() <= half[name] * (1 + 1e-2)
    np.testing.assert_array_equal(problem.y.reshape(6, 8, 2)[:, 3, 0], axes["lat"])
    np.testing.assert_array_equal(problem.y.reshape(6, 8, 2)[2, :, 1], axes["lon"])


def test_a_key_stands_for_one_order_of_the_days(small, getkey):
    problem, _, _ = small
    key = getkey()
    u, s = problem.pairs(key, range(30))
    assert u.dtype == s.dtype == np.float64
    # number i is a pure function of (key, i), in whatever company
    for rows in ([7], [29, 0, 7], range(5, 9)):
        for whole, some in zip((u, s), problem.pairs(key, rows), strict=True):
            np.testing.assert_array_equal(some, whole[list(rows)])
    # every day once, its own temperature with its own pressure
    record = problem.between(0, 30)
    match = (u[:, None] == np.asarray(record.u)[None]).all((2, 3))
    np.testing.assert_array_equal(match.sum(0), 1)
    np.testing.assert_array_equal(match.sum(1), 1)
    np.testing.assert_array_equal(s, np.asarray(record.s)[match.argmax(1)])
    assert not np.array_equal(problem.pairs(getkey(), range(30))[0], u)
    np.testing.assert_array_equal(problem.sample(key, 4).u, u[:4].astype(np.float32))
    for rows in ([30], [-1, 3]):
        with pytest.raises(ValueError, match="the record has 30 fields, each used once"):
            problem.pairs(key, rows)


def test_dates_and_numbers_choose_the_same_fields(small):
    problem, _, _ = small
    by_date, by_number = problem.between("2000-01-15", "2000-01-20"), problem.between(4, 9)
    np.testing.assert_array_equal(by_date.s, by_number.s)
    np.testing.assert_array_equal(problem.between(np.datetime64("2000-01-15"), "2000-01-20").s, by_number.s)
    np.testing.assert_array_equal(problem.between(*np.array([4, 9])).s, by_number.s)
    for nothing in (("2010-01-01", "2011-01-01"), (9, 4), (0, 31)):
        with pytest.raises(ValueError, match="2000-01-11"):
            problem.between(*nothing)
    np.testing.assert_array_equal(jnp.concatenate([problem.train.s, problem.test.s]), problem.between(0, 30).s)


def test_a_problem_travels_as_json(small):
    problem, _, _ = small
    for original in (problem, Climate("ncep", "somewhere", years=(1990, 1999))):
        copy = Climate(**json.loads(json.dumps(original.arguments)))
        assert copy == original
        assert hash(copy) == hash(original)
        assert copy.citation == original.citation


def days(count, start="2001-03-05"):
    return np.datetime64(start, "s") + np.arange(count) * np.timedelta64(86400, "s")


def test_climatology_recovers_harmonics_and_extends_them():
    random = np.random.default_rng(1)
    coefficients = random.normal(size=(5, 7, 2))
    exact = Climatology(coefficients)
    fitted = Climatology.fit(days(800), exact(days(800)))
    np.testing.assert_allclose(fitted.coefficients, coefficients, atol=1e-12)
    # one Gregorian cycle later, 400 years of 365.2425 days, it is the same day of the year
    np.testing.assert_allclose(fitted(days(5, "2401-03-05")), exact(days(5)), atol=1e-9)


def test_climatology_leaves_nothing_that_the_date_explains():
    random = np.random.default_rng(2)
    time, fields = days(731), random.normal(size=(731, 4, 1))
    rest = fields - Climatology.fit(time, fields)(time)
    np.testing.assert_allclose(Climatology.fit(time, rest).coefficients, 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="at least 5 fields, got 4"):
        Climatology.fit(time[:4], fields[:4])


@pytest.mark.full
def test_speedy_baseline():
    """Recorded when the set was made: climatology has an error of 0.0056 on the test period."""
    problem = Climate("speedy", real("speedy_daily.npz"))
    assert (len(problem), problem.split, len(problem.y)) == (3650, 1825, 48 * 96)
    mean = Climatology.fit(problem.time[:1825], problem.train.s)(problem.time[-1825:])
    error = relative_l2(mean, np.asarray(problem.test.s, np.float64), problem.weights).mean()
    assert error == pytest.approx(0.0056, abs=5e-5)


def test_era_interim_covers_western_europe():
    """The first 1825 days are 2000–2004, the last 1825 are 2006–2010."""
    problem = Climate("era_interim", real("erainterim_daily_weurope.npz"))
    assert problem.domain == Box((30.0, -15.0), (55.0, 15.0))
    assert (str(problem.time[1824])[:10], str(problem.time[-1825])[:10]) == ("2004-12-29", "2006-01-02")
    cosines = np.cos(np.radians(problem.y[:, 0]))
    np.testing.assert_allclose(problem.weights, cosines / cosines.sum(), rtol=1e-12)


def test_monthly_means_are_those_of_the_month():
    problem = Climate("ncep_monthly", real("ncep_r1_monthly.npz"))
    july = problem.between("1977-07-01", "1977-08-01")
    with np.load(problem.path, allow_pickle=False) as archive:
        for values, name, zero, unit in ((july.u, "air_cK", 273.15, 0.01), (july.s, "slp_land_cPa", 1e5, 1.0)):
            months = list(archive[name.rpartition("_")[0] + "_time"].astype(str))
            expected = zero + unit * archive[name][months.index("1977-07")].ravel()
            np.testing.assert_allclose(np.asarray(values)[0, :, 0], expected, rtol=1e-6)
    assert len(problem) == 660
    assert problem.domain == Sphere()
