"""Planted defects are found, each by its own check and no other; sound data passes."""

import dataclasses
import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

from commands import command
from loca.checks import CheckReport, check
from loca.checks.locations import check_locations, grid_fields, rough_part
from loca.checks.pairs import EFFECT, check_drift, distances, relation
from loca.cli.app import app
from loca.cli.arguments import load
from loca.data import Samples, Shared, Variable
from loca.domains import Box, Sphere, Torus
from loca.problems import PROBLEMS, Antiderivative
from loca.typing import Measurements

DATA = Path(__file__).parents[3] / "shared/data"
SENSORS = 64


def smooth(seed, count, *, modes=5, channels=1):
    """Random trigonometric polynomials, period 1: (count, SENSORS, channels) values on [0, 1)."""
    generator = np.random.default_rng(seed)
    x = np.arange(SENSORS) / SENSORS
    k = np.arange(1, modes + 1)
    waves = np.concatenate([np.cos(2 * np.pi * k[:, None] * x), np.sin(2 * np.pi * k[:, None] * x)])
    return generator.standard_normal((count, channels, 2 * modes)) @ waves + generator.standard_normal(
        (count, channels, 1)
    )


def pairs(seed=0, count=200, channels=1, modes=5, **options):
    """u ↦ s = u₁² shifted, smooth and periodic in both."""
    u = smooth(seed, count, channels=channels, modes=modes).swapaxes(1, 2)
    return samples(u, np.roll(u[..., :1], 5, axis=1) ** 2, **options)


def samples(u, s, **options):
    x = (np.arange(SENSORS) / SENSORS)[:, None]
    options = {"x": jnp.asarray(x, jnp.float32), "domain": Torus.unit(1), **options}
    y = options.pop("y", options["x"])
    return Samples(jnp.asarray(u, jnp.float32), jnp.asarray(y, jnp.float32), jnp.asarray(s, jnp.float32), **options)


def edit(data, **changes):
    """The same data with u or s changed by functions of NumPy arrays."""
    values = {}
    for name, change in changes.items():
        array = np.array(getattr(data, name), np.float64)
        values[name] = jnp.asarray(change(array), jnp.float32)
    return dataclasses.replace(data, **values)


def put(value, *where):
    def change(array):
        array[where] = value
        return array

    return change


def scaled(factor, channel):
    return lambda array: array * np.where(np.arange(array.shape[-1]) == channel, factor, 1.0)


def doubled(data, source=3, target=7, *, output=True):
    data = edit(data, u=lambda u: put(u[source], target)(u))
    return edit(data, s=lambda s: put(s[source], target)(s)) if output else data


def cut_off(data):
    """A ramp added to a periodic function: it no longer closes."""
    ramp = 3.0 * np.arange(SENSORS)[:, None] / SENSORS
    return edit(data, u=lambda u: u + ramp)


def with_time(give_away):
    """Outputs at times 0 and 1, the first of which is the input if it is given away."""
    u = smooth(0, 200).swapaxes(1, 2)
    x = (np.arange(SENSORS) / SENSORS)[:, None]
    y = np.concatenate([np.hstack([np.full_like(x, t), x]) for t in (0.0, 1.0)])
    first = u if give_away else np.roll(u, 3, axis=1)
    s = np.concatenate([first, np.roll(u, 9, axis=1) ** 2], axis=1)
    return samples(u, s, y=y, domain=Box((0.0, 0.0), (1.0, 1.0)))


DEFECTS = {
    "NaN in an input": ("not-finite", lambda: [edit(pairs(), u=put(np.nan, 17, 3))]),
    "Inf in an output": ("not-finite", lambda: [edit(pairs(), s=put(np.inf, 17, 3))]),
    "NaN in test data": ("not-finite", lambda: [pairs(), edit(pairs(1), s=put(np.nan, 0))]),
    "a constant input": ("constant", lambda: [edit(pairs(channels=2), u=put(273.15, ..., 1))]),
    "a constant output": ("constant", lambda: [edit(pairs(), s=put(1.0, ...))]),
    "outputs left empty": ("constant-function", lambda: [edit(pairs(), s=put(0.0, slice(10, 20)))]),
    "one channel in another unit": ("scales", lambda: [edit(pairs(channels=2), u=scaled(1e6, 1))]),
    "one function in another unit": ("outliers", lambda: [edit(pairs(), u=lambda u: put(u[5] * 1e3, 5)(u))]),
    "a spike": ("outliers", lambda: [edit(pairs(), s=put(1e6, 5, 5))]),
    "a fill value": ("fill-value", lambda: [edit(pairs(), u=put(-9999.0, slice(0, None, 2), 3))]),
    "too large a mean": ("precision", lambda: [edit(pairs(), u=lambda u: u + 1e6)]),
    "too large a unit": ("range", lambda: [edit(pairs(), s=lambda s: s * 1e25)]),
    "a pair twice": ("repeated", lambda: [doubled(pairs())]),
    "one input, two outputs": ("contradictory", lambda: [doubled(pairs(), output=False)]),
    "a test function in training": ("leak", lambda: [pairs(), edit(pairs(1), u=put(np.asarray(pairs().u[3]), 7))]),
    "livelier test functions": ("drift", lambda: [pairs(), edit(pairs(1), u=lambda u: 2.0 * u)]),
    "rougher test functions": ("drift", lambda: [pairs(), pairs(1, modes=8)]),
    "an open edge on a torus": ("edges", lambda: [cut_off(pairs())]),
    "noise": ("resolution", lambda: [edit(pairs(), u=lambda u: u + 2 * np.random.default_rng(5).normal(size=u.shape))]),
    "queries outside": (
        "outside",
        lambda: [dataclasses.replace(pairs(domain=Box((0.0,), (1.0,))), domain=Box((0.5,), (1.5,)))],
    ),
    "a query twice": ("repeated-queries", lambda: [pairs(y=(np.arange(SENSORS) // 2 * 2 / SENSORS)[:, None])]),
    "an output that is an input": ("copy", lambda: [samples(u := smooth(0, 200).swapaxes(1, 2), 1.8 * u + 32.0)]),
    "the first output time is the input": ("copy", lambda: [with_time(give_away=True)]),
    "pairs mixed up": ("unrelated", lambda: [edit(pairs(), s=np.random.default_rng(3).permutation)]),
    "other sensors in testing": ("mismatch", lambda: [pairs(), pairs(1, x=jnp.linspace(0, 2, SENSORS)[:, None])]),
    "other variables in testing": ("mismatch", lambda: [pairs(), pairs(1, inputs=[Variable("T")])]),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found_and_nothing_else(defect):
    name, plant = DEFECTS[defect]
    report = check(*plant())
    assert report.names("error", "warning") == {name}, report
    assert not report.is_fine


def own_sensors(seed):
    """The same functions measured at places and in numbers of their own."""
    data = pairs(seed)
    keep = np.sort(np.argsort(np.random.default_rng(seed).random((200, SENSORS)), axis=1)[:, :40], axis=1)
    u = jnp.take_along_axis(data.u, keep[..., None], axis=1)
    mask = jnp.asarray(np.arange(40) < np.random.default_rng(seed + 1).integers(20, 41, (200, 1)))
    # what does not count may be anything
    u = jnp.where(mask[..., None], u, jnp.nan)
    return Samples(Measurements(u, data.x[keep], mask), data.y, data.s, domain=data.domain)


CLEAN = {
    "periodic": lambda seed: pairs(seed),
    "a thousand": lambda seed: pairs(seed, 1000),
    "three channels": lambda seed: pairs(seed, channels=3),
    "few labels": lambda seed: pairs(seed).observe(jax.random.key(seed), 20),
    "own sensors": own_sensors,
    "own queries": lambda seed: dataclasses.replace(
        pairs(seed), y=Samples(pairs(seed).u, jnp.tile(pairs(seed).x, (200, 1, 1)), pairs(seed).s).y
    ),
    "many scales": lambda seed: Antiderivative.multi_scale().sample(jax.random.key(seed), 300),
}


@pytest.mark.parametrize(
    "clean", [pytest.param(name, marks=pytest.mark.full) if name == "many scales" else name for name in CLEAN]
)
def test_sound_data_passes(clean):
    make = CLEAN[clean]
    report = check(make(10), make(11))
    assert report.is_fine, report


def test_a_split_of_sound_data_passes(getkey):
    train, test = pairs(4, 600).split(getkey(), 500, 100)
    assert check(train, test).is_fine


EXPERIMENTS = [pytest.param(name, marks=[] if name == "antiderivative" else [pytest.mark.full]) for name in PROBLEMS]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_experiments_pass(name):
    problem = PROBLEMS[name]()
    report = check(problem.sample(jax.random.key(0), 300), problem.sample(jax.random.key(1), 100))
    assert report.is_fine, report


def real(name):
    """A file of real data, where there is one."""
    if not (DATA / name).exists():
        pytest.skip(f"needs {DATA / name}")
    return DATA / name


def test_real_weather_passes_and_a_season_against_another_is_drift():
    with np.load(real("erainterim_daily_weurope.npz")) as stored:
        u, s, lat, lon = (stored[name] for name in ("t850", "mslp", "lat", "lon"))
    x = jnp.asarray(np.stack(np.meshgrid(lat, lon, indexing="ij"), axis=-1).reshape(-1, 2), jnp.float32)
    u, s = (jnp.asarray(values.reshape(-1, 143, 1)) for values in (u, s))
    years = [slice(0, 1826, 5), slice(1826, 3652, 5)]  # five years each, every fifth day
    report = check(*(Samples(u[rows], x, s[rows], x=x, domain=Sphere()) for rows in years))
    assert report.is_fine, report
    winter, summer = (Samples(u[rows], x, s[rows]) for rows in (slice(0, 90), slice(180, 270)))
    assert "drift" in check(winter, summer).names("warning")


def test_edges_of_a_box_are_worth_a_note_only():
    report = check(dataclasses.replace(cut_off(pairs()), domain=Box((0.0,), (1.0,))))
    assert report.is_fine
    # the outputs are periodic, and squares, positive over decades
    assert report.names("note") == {"edges", "periodic", "transform"}


@pytest.mark.parametrize("repeated", [False, True])
def test_a_periodic_axis_of_a_box_is_noticed(repeated):
    data = pairs()
    u, s, x = (np.asarray(each) for each in (data.u, data.s, data.x))
    if repeated:  # the last point is the first one again
        u, s = (np.concatenate([each, each[:, :1]], axis=1) for each in (u, s))
        x = np.append(x, [[1.0]], axis=0)
    (note,) = (f for f in check(Samples(u, x, s, x=x)).findings if f.name == "periodic")
    assert "both ends of y in every function" in note.message
    assert "with the period 1," in note.message


@pytest.mark.parametrize("ends", ["open", "zero", "noise"])
def test_open_or_fixed_ends_are_not_taken_for_a_period(ends):
    data = edit(pairs(domain=Box((0.0,), (1.0,))), s=lambda s: s)
    t, noise = np.arange(SENSORS)[:, None] / (SENSORS - 1), np.random.default_rng(0).normal(size=data.s.shape)
    change = {"open": lambda s: s + t * s[:, :1], "zero": lambda s: s * np.sin(np.pi * t), "noise": lambda s: noise}
    assert "periodic" not in check(edit(data, s=change[ends])).names()


def test_a_handful_of_functions_is_too_few():
    few = pairs().take(jnp.arange(3))
    (finding,) = (f for f in check(few).findings if f.level == "warning")
    assert finding.name == "few"
    assert "only 3 functions" in finding.message


def test_a_near_copy_in_the_test_data_is_noted():
    report = check(pairs(), edit(pairs(1), u=put(1.0001 * np.asarray(pairs().u[3]), 7)))
    assert report.is_fine
    assert "near-leak" in report.names("note")


def test_missing_values_are_not_repeated_functions():
    holed = edit(pairs(), u=put(np.nan, slice(0, 50)))
    assert check(holed, holed.take(jnp.arange(50))).names("error", "warning") == {"not-finite"}


def test_the_example_of_a_location_outside_is_one():
    y = jnp.array([[jnp.nan], [0.25], [7.5], [0.75]])
    data = pairs()
    data = eqx.tree_at(lambda data: (data.y, data.s), data, (Shared(y), data.s[:, :4]))
    found = [finding.message for finding in check_locations(dataclasses.replace(data, domain=Box((0.0,), (1.0,))))]
    assert any("for example [7.5]" in message for message in found), found


def test_what_chance_does_to_pairs_is_known_without_shuffling():
    generator = np.random.default_rng(0)
    u, s = distances(generator.normal(size=(20, 3))), distances(generator.exponential(size=(20, 2)))
    orders = [generator.permutation(20) for _ in range(4000)]
    chance = [np.sum(u * s[np.ix_(order, order)]) for order in orders]
    # a standard deviation from 4000 draws is known to 1.1 %, or a little worse for other than normal ones
    assert np.sum(u * s) / relation(u, s) == pytest.approx(np.std(chance), rel=0.05)


def kolmogorov_smirnov(a, b):
    """sup |F_a − F_b|, the largest distance of the two empirical distribution functions, and its p-value."""
    return scipy.stats.ks_2samp(a, b, method="asymp")


@pytest.mark.parametrize("sizes", [(300, 100), (1000, 1000), (40, 25)])
def test_false_alarms_about_drift_are_rare(sizes):
    """At most as frequent as promised, up to three standard deviations of counting."""
    generator, level, count = np.random.default_rng(0), 0.05, 500
    drawn = [kolmogorov_smirnov(*(generator.standard_normal(size) for size in sizes)) for _ in range(count)]
    alarms = np.mean([found.pvalue < level for found in drawn])
    assert alarms < level + 3 * np.sqrt(level * (1 - level) / count)


def test_drift_is_both_significant_and_large():
    """A large distance of few functions may be chance; a small one of many is none, but harmless."""
    for count, shift in [(40, 0.6), (2000, 0.3)]:
        train, test = pairs(0, count), edit(pairs(1, count), u=lambda u, shift=shift: u + shift)
        means = (np.asarray(part.u).mean(axis=(1, 2)) for part in (train, test))
        found = kolmogorov_smirnov(*means)
        assert (found.statistic > EFFECT) != (found.pvalue < 1e-3)
        assert not list(check_drift(train, test))


def test_noise_is_rough_and_paths_with_decaying_spectra_are_not():
    """White noise has a third of its variance in the upper third of its spectrum, round-off on a ramp nearly none."""
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((400, SENSORS))
    k = np.arange(1, SENSORS // 2 + 1)
    phases = np.exp(2j * np.pi * generator.random((400, len(k))))
    fields = {
        "white": noise,
        "Brownian": np.cumsum(noise, axis=1),
        "pink": np.fft.irfft(np.concatenate([np.zeros((400, 1)), phases / np.sqrt(k)], axis=1), SENSORS, axis=1),
        "ramp": np.linspace(0, 1, SENSORS) + 1e-7 * noise,
    }
    rough = {}
    for name, values in fields.items():
        (field,) = grid_fields(samples(values[..., None], values[..., None]), "input")
        rough[name] = rough_part(field, 0)
    assert rough["white"] == pytest.approx(1 / 3, abs=0.02)
    assert rough["Brownian"] < 0.05
    assert rough["pink"] > 0.1
    assert rough["ramp"] < 1e-9


# ---- command --------------------------------------------------------------------------------------------------------


def write(path, data):
    """Pairs as a NetCDF file."""
    import xarray

    x = np.asarray(data.x)[:, 0]
    arrays = {name: (("n", "x"), np.asarray(values)[..., 0]) for name, values in (("a", data.u), ("b", data.s))}
    xarray.Dataset(arrays, coords={"x": x}).to_netcdf(path, engine="h5netcdf")
    return [str(path), "--inputs", "a", "--outputs", "b", "--sample", "n"]


def test_exit_code_of_sound_data_is_0():
    said = command("check", "antiderivative", "--test", "antiderivative", "--count", "60")
    assert "60 of 60 functions, 60 test functions" in said


@pytest.mark.slow
def test_exit_code_of_a_defect_is_1_and_json_says_what(tmp_path):
    arguments = write(tmp_path / "holed.nc", edit(pairs(), u=put(np.nan, 17, 3)))
    done = CliRunner().invoke(app, ["check", *arguments, "--json"])
    assert done.exit_code == 1, done.output
    findings = json.loads(done.stdout)["findings"]
    assert {finding["name"] for finding in findings if finding["level"] != "note"} == {"not-finite"}


def test_test_data_of_a_problem_begins_where_training_data_ends():
    arguments = ("sensors=20", "queries=7")
    both, _ = load("antiderivative", {}, 5, arguments=arguments)
    test, _ = load("antiderivative", {}, 2, arguments=arguments, skip=3)
    assert both.s.shape == (5, 7, 1)
    np.testing.assert_array_equal(test.u, both.u[3:])


def test_functions_of_a_file_are_spread_over_it(tmp_path):
    path, _, inputs, _, outputs, _, sample = write(tmp_path / "pairs.nc", pairs())
    few, total = load(path, {"inputs": inputs, "outputs": outputs, "sample": sample}, 3, spread=True)
    assert total == 200
    np.testing.assert_array_equal(few.u, pairs().u[jnp.array([0, 100, 199])])


@pytest.mark.slow
def test_sheets_are_written(tmp_path):
    arguments = write(tmp_path / "pairs.nc", pairs())
    for name in ("sheet.png", "deeper/sheet.pdf"):
        command("show", *arguments, "--out", tmp_path / name, "--rows", "2")
        assert (tmp_path / name).stat().st_size > 1000
    command("show", *arguments, "--out", tmp_path / "sheet.doc", code=2)


def test_a_report_prints_one_paragraph_for_each_finding():
    report = check(edit(pairs(), u=put(np.nan, 17, 3)))
    said = str(report)
    assert all(f"{found.level}: {found.name}: " in said for found in report.findings)
    assert max(map(len, said.splitlines())) <= 100
    assert str(CheckReport(())) == "nothing found"
