"""Predictions tile by tile: those of the model, labeled as the data is, in little memory, however often killed."""

import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from commands import command, words
from crashing import Crash, crash_at, find_unsynced, forked
from loca import durable, uncertainty
from loca.data import Free, Indexed, Labeled, Part, Samples, Shared, Variable, convert
from loca.domains import Box, Sphere, Torus
from loca.durable import lock
from loca.encoders import Sensors
from loca.models import FNO, LOCA, DeepONet
from loca.prediction import QueryGrid, predict, predict_dataset, predict_to, read_points, tiles, write_dataset
from loca.prediction.tiles import InMemory
from loca.rules import MonteCarlo, OwnQueries
from loca.saving import save
from loca.typing import Measurements

pytestmark = pytest.mark.slow

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


def weather(days=7, dims=("time", "lat", "lon"), latitudes=8, longitudes=16):
    """Temperature and pressure on a globe."""
    sizes = {"time": days, "lat": latitudes, "lon": longitudes}
    shape = [sizes[dim] for dim in dims]
    return xarray.Dataset(
        {
            "air": (dims, normal(*shape), {"units": "degK", "long_name": "temperature"}),
            "pres": (dims, 3.0 + 2.0 * normal(*shape), {"units": "Pascals", "valid_range": np.float32([0.0, 9.0])}),
        },
        {
            "time": np.datetime64("2000-01-01", "ns") + np.arange(days) * np.timedelta64(1, "D"),
            "lat": ("lat", np.linspace(90.0, -90.0, latitudes), {"units": "degrees_north"}),
            "lon": ("lon", np.linspace(0.0, 360.0, longitudes, endpoint=False), {"units": "degrees_east"}),
        },
        {"title": "daily"},
    )


def flat(queries, functions=11):
    """Two outputs in the unit square."""
    key = jax.random.key(0)
    s = jax.random.normal(key, (functions, queries.count, 2))
    return Samples(jax.random.normal(key, (functions, 6, 1)), queries, s, domain=Box.unit(2))


def loca(samples, rule=None):
    rule = rule if rule is not None else MonteCarlo(samples.domain, 30, key=jax.random.key(2))
    encoder = None if isinstance(samples.u, Measurements) else Sensors(samples.u.shape[1])
    sizes = {"num_features": 6, "lift_size": 5, "lift_widths": (8,), "proposal_widths": (8,), "feature_widths": (8,)}
    return LOCA.create(samples, key=jax.random.key(1), rule=rule, encoder=encoder, **sizes)


def deeponet(samples):
    return DeepONet.create(samples, key=jax.random.key(1), num_features=6, branch_widths=(8,), trunk_widths=(8,))


def fno(samples):
    return FNO.create(samples, key=jax.random.key(1), modes=3, width=4, depth=2)


@eqx.filter_jit
def answers(model, u, queries):
    return model.predict(u, queries)


def expected(model, data):
    samples = data.load()
    return data.label(np.asarray(answers(model, samples.u, samples.y)))


def assert_same(found, wanted):
    """Values to rounding, and everything else exactly."""
    xarray.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert {n: v.dims for n, v in found.variables.items()} == {n: v.dims for n, v in wanted.variables.items()}
    for name, coordinate in wanted.coords.items():
        xarray.testing.assert_identical(found.coords[name].variable, coordinate.variable)
    for name, output in wanted.data_vars.items():
        assert found[name].dtype == np.float32
        assert found[name].attrs.keys() == output.attrs.keys()
        assert found[name].attrs.get("units") == output.attrs.get("units")
    assert {n: found.attrs[n] for n in wanted.attrs} == wanted.attrs


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of at most 40 queries and a few functions, several groups of functions."""
    monkeypatch.setattr(tiles, "MOST_QUERIES", 40)
    monkeypatch.setattr(tiles, "BYTES", 800)


@pytest.fixture
def small_own_tiles(monkeypatch):
    """At most 5 of a function's own queries at once."""
    monkeypatch.setattr(tiles, "MOST_QUERIES", 5)


@pytest.mark.full
@pytest.mark.parametrize("build", [loca, *(pytest.param(build, marks=pytest.mark.full) for build in (deeponet, fno))])
def test_the_file_holds_the_predictions_of_the_model(build, tmp_path, small_tiles):
    data = Labeled(weather(), "air", ["pres", "air"], "time")
    model, seen = build(data.load()), []
    found = predict_to(model, data, tmp_path / "p.zarr", progress=lambda *moment: seen.append(moment))
    assert_same(found, expected(model, data))
    total = seen[0][1]
    assert total >= 16
    assert seen == [(i, total) for i in range(total + 1)]


@pytest.mark.parametrize("dims", [("lon", "time", "lat"), pytest.param(("lat", "lon", "time"), marks=pytest.mark.full)])
def test_the_order_of_dimensions_is_that_of_the_data(dims, tmp_path, small_tiles):
    dataset = weather(dims=dims)
    dataset["pres"] = dataset.pres.transpose("lat", "time", "lon")
    data = Labeled(dataset, "air", ["air", "pres"], "time")
    model = deeponet(data.load())
    assert_same(predict_to(model, data, tmp_path / "p.zarr"), expected(model, data))


def test_what_is_missing_in_the_data_is_missing_in_the_prediction(tmp_path, small_tiles):
    dataset = weather()
    dataset["pres"] = dataset.pres.where(dataset.lat + dataset.lon / 10.0 > 0.0)  # no pressure on land
    data = Labeled(dataset, "air", "pres", "time")
    model = deeponet(data.load())
    found = predict_to(model, data, tmp_path / "p.zarr")
    assert np.array_equal(np.isnan(found.pres), np.isnan(dataset.pres))
    assert np.isnan(found.pres).any()
    assert_same(found, expected(model, data))


def test_a_grid_with_holes_is_restored_from_its_points(tmp_path, small_tiles):
    """Stores and models know a list of places; predictions are on the grid again, with the attributes of outputs."""
    dataset = weather()
    dataset["pres"] = dataset.pres.where((dataset.lat > 0.0) | (dataset.lon > 200.0))  # latitudes fall
    data = Labeled(dataset, "air", "pres", "time")
    model, wanted = deeponet(data.load()), predict_dataset(deeponet(data.load()), data)
    inputs = Labeled(dataset[["air"]], "air", (), "time")
    for name, records in {
        "store": convert(data, tmp_path / "data.zarr"),
        "inputs": inputs,
        "samples": data.load(),
    }.items():
        for found in (predict_to(model, records, tmp_path / f"{name}.zarr"), predict_dataset(model, records)):
            assert found.pres.dims[1:] == ("lat", "lon")
            assert found.pres.attrs["units"] == "Pascals"
            np.testing.assert_allclose(found.lat, dataset.lat, rtol=1e-6)
            np.testing.assert_allclose(found.lon, dataset.lon, rtol=1e-6)
            np.testing.assert_allclose(found.pres, wanted.pres, rtol=1e-5, atol=1e-5)


def test_samples_have_predictions_as_files_do(tmp_path):
    y = jax.random.uniform(jax.random.key(3), (11, 9, 2))
    for form, queries in {"free": Free(y), "points": Shared(y[0])}.items():
        samples = flat(queries)
        model = deeponet(samples)
        found = predict_dataset(model, samples)
        assert dict(found.sizes) == {"sample": 11, "query": 9}
        np.testing.assert_allclose(found.s2, answers(model, samples.u, samples.y)[..., 1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.y1, y[..., 0] if form == "free" else y[0, :, 0])
        assert_same(predict_to(model, samples, tmp_path / f"{form}.zarr"), found)


def test_functions_are_read_once(tmp_path):
    """Besides the first and the last, which are compared with the model; also for p-values."""
    data = Labeled(weather(days=40), "air", "pres", "time")
    samples, asked = data.load(), []

    class Watched(InMemory):
        def load(self, rows=slice(None)):
            asked.append(np.arange(40)[rows].tolist())
            return super().load(rows)

    calibrated = uncertainty.calibrate(deeponet(samples), samples)
    found = predict_to(calibrated, Watched(samples), tmp_path / "p.zarr")
    blocks = [numbers for numbers in asked if len(numbers) > 1]
    assert blocks == [list(range(40))]
    np.testing.assert_allclose(found.in_distribution, calibrated.in_distribution(samples.u), atol=1e-6)


@pytest.mark.parametrize("suffix", [".nc", ".zarr", ".csv"])
def test_data_sets_are_written_to_files_given_by_name(suffix, tmp_path):
    data = Labeled(weather(days=2), "air", "pres", "time")
    found, path = predict_dataset(deeponet(data.load()), data), str(tmp_path / f"p{suffix}")
    write_dataset(found, path)
    if suffix == ".csv":
        assert len(pathlib.Path(path).read_text().splitlines()) == 1 + found.pres.size
        return
    xarray.testing.assert_equal(xarray.open_dataset(path), found)
    axes = read_points(path, [Variable("lat"), Variable("lon")])
    np.testing.assert_array_equal(axes.axes[1], found.lon)
    if suffix == ".zarr":
        with pytest.raises(FileExistsError, match="choose another name"):
            write_dataset(found, path)
    assert [each.name for each in tmp_path.iterdir()] == [f"p{suffix}"]


@pytest.mark.parametrize("build", [loca, pytest.param(deeponet, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "form", ["indexed", *(pytest.param(form, marks=pytest.mark.full) for form in ("shared", "free"))]
)
def test_all_forms_of_queries(build, form, tmp_path, request):
    y = jax.random.uniform(jax.random.key(3), (90, 2))
    index = jax.random.randint(jax.random.key(4), (11, 9), 0, 20)
    queries = {"shared": Shared(y), "indexed": Indexed(y[:20], index), "free": Free(y[index])}[form]
    request.getfixturevalue("small_tiles" if form == "shared" else "small_own_tiles")
    data = convert(InMemory(flat(queries)), tmp_path / "data.zarr")
    model = build(data.load())
    assert_same(predict_to(model, data, tmp_path / "p.zarr"), expected(model, data))
    part = Part(data, np.array([7, 2, 2, 9]))
    assert_same(predict_to(model, part, tmp_path / "part.zarr"), expected(model, part))


@pytest.mark.full
def test_places_that_differ_from_function_to_function(tmp_path, small_own_tiles):
    """Stations that move, with times among their coordinates, as `Labeled` gives them."""
    along = ("day", "point")
    x = np.linspace(0.0, 1.0, 12, dtype=np.float32) + 0.02 * normal(5, 12)  # nearby stations would amplify rounding
    dataset = xarray.Dataset(
        {"height": (along, normal(5, 12), {"units": "m"}), "speed": (along, normal(5, 12))},
        {"x": (along, x, {"units": "km"}), "day": np.datetime64("2001-01-01", "ns") + np.arange(5)},
    )
    data = Labeled(dataset, "height", "speed", "day")
    samples = data.load()
    assert isinstance(samples.y, Free)
    model = loca(samples)
    found = predict_to(model, data, tmp_path / "p.zarr")
    assert "x" in found.coords
    assert_same(found, expected(model, data))
    grid = QueryGrid.even(data.domain, (50,))
    asked = predict_to(model, data, tmp_path / "q.zarr", queries=grid)
    assert set(asked.coords) == {"day", "y1"}
    wanted = answers(model, samples.u, Shared(jnp.asarray(grid.points((slice(0, 50),)))))
    np.testing.assert_allclose(asked.speed, wanted[..., 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("build", [*(pytest.param(build, marks=pytest.mark.full) for build in (loca, deeponet)), fno])
def test_predictions_on_a_grid(build, tmp_path, small_tiles):
    data = Labeled(weather(), "air", "pres", "time")
    samples = data.load()
    model = build(samples)
    found = predict_to(model, data, tmp_path / "p.zarr", queries=QueryGrid.even(Sphere(), (13, 36)))
    latitude, longitude = np.linspace(-90.0, 90.0, 13), np.arange(0.0, 360.0, 10.0)
    assert found.pres.dims == ("time", "latitude", "longitude")
    np.testing.assert_array_equal(found.latitude, latitude)
    np.testing.assert_array_equal(found.longitude, longitude)
    np.testing.assert_array_equal(found.time, data.dataset.time)
    assert found.latitude.units == "degrees_north"
    assert found.pres.units == "Pascals"
    assert set(found.coords) == {"time", "latitude", "longitude"}
    y = jnp.asarray([(lat, lon) for lat in latitude for lon in longitude], jnp.float32)
    wanted = np.asarray(answers(model, samples.u, Shared(y)))[..., 0].reshape(7, 13, 36)
    np.testing.assert_allclose(found.pres, wanted, rtol=1e-5, atol=1e-5)
    assert wanted.std(axis=(1, 2)).min() > 1e-4  # there is something to compare


def test_even_grids():
    box = QueryGrid.even(Box((0.0, -1.0), (1.0, 3.0)), (3, 5))
    assert [axis.tolist() for axis in box.axes] == [[0.0, 0.5, 1.0], [-1.0, 0.0, 1.0, 2.0, 3.0]]
    torus = QueryGrid.even(Torus((0.0,), (2.0,)), (4,))
    assert torus.axes[0].tolist() == [0.0, 0.5, 1.0, 1.5]  # 2 is 0 again
    assert box.points((slice(1, 2), slice(0, 2))).tolist() == [[0.5, -1.0], [0.5, 0.0]]
    for counts in ((3,), (3, 1), (3, 3, 3)):
        with pytest.raises(ValueError, match="needs 2 numbers of at least 2"):
            QueryGrid.even(Sphere(), counts)


@pytest.mark.full
def test_nodes_that_follow_the_queries(tmp_path, small_tiles, monkeypatch):
    """Such a model is accepted as long as all queries fit in memory, because each prediction depends on all of them."""
    data = Labeled(weather(), "air", "pres", "time")
    model = loca(data.load(), OwnQueries(Sphere()))
    assert_same(predict_to(model, data, tmp_path / "p.zarr"), expected(model, data))
    with pytest.raises(ValueError, match=r"nodes of this model are its queries .* so 4160 .*at most 4096.*MonteCarlo"):
        predict_to(model, data, tmp_path / "q.zarr", queries=QueryGrid.even(Sphere(), (65, 64)))
    free = convert(InMemory(flat(Free(jax.random.uniform(jax.random.key(3), (11, 9, 2))))), tmp_path / "data.zarr")
    model = loca(free.load(), OwnQueries(Box.unit(2)))
    assert_same(predict_to(model, free, tmp_path / "r.zarr"), expected(model, free))


def content(path):
    """Every file and what is in it."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


CHANGES = ((predict, "sync"), (durable, "sync_tree"), (durable, "sync"), (xarray.Dataset, "to_zarr"))
"""What changes the disk here, besides moving and removing files."""

STRIDE = 1 if os.environ.get("LOCA_FULL") else 11
"""The full tests crash at every moment, the gate at every eleventh."""


@pytest.mark.slow
def test_crashing_before_any_change_of_the_disk_changes_nothing(tmp_path, small_tiles):
    data = Labeled(weather(days=3), "air", ["pres", "air"], "time")
    model = deeponet(data.load())
    predict_to(model, data, tmp_path / "undisturbed.zarr")
    undisturbed = content(tmp_path / "undisturbed.zarr")
    moment = 0
    while True:
        path = tmp_path / f"{moment}.zarr"
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, moment, *CHANGES)
            try:
                predict_to(model, data, path)
            except Crash:
                pass
            else:
                break
        predict_to(model, data, path)
        assert content(path) == undisturbed
        assert not path.with_name(f"{moment}.zarr.partial").exists()
        moment += STRIDE
    assert moment > 20


def test_a_prediction_gets_its_name_when_all_of_it_is_on_the_disk(tmp_path, monkeypatch):
    data = Labeled(weather(), "air", "pres", "time")
    unsynced = find_unsynced(monkeypatch, "rename")
    predict_to(deeponet(data.load()), data, tmp_path / "a.zarr")
    assert unsynced[tmp_path / "a.zarr"] == []


def test_a_changed_bit_is_noticed(tmp_path):
    data = Labeled(weather(), "air", "pres", "time")
    path = tmp_path / "p.zarr"
    predict_to(deeponet(data.load()), data, path)
    chunk = path / "pres/c/0/0/0"
    flipped = bytearray(chunk.read_bytes())
    flipped[5] ^= 1
    chunk.write_bytes(flipped)
    with pytest.raises(ValueError, match="checksum"):
        xarray.open_zarr(path, chunks=None).pres.load()


def test_other_requests_are_refused(tmp_path):
    def crash(done, total):
        raise Crash

    data = Labeled(weather(), "air", "pres", "time")
    model, path = deeponet(data.load()), tmp_path / "p.zarr"
    other_model = eqx.tree_at(lambda m: m.bias, model, model.bias + 1.0)
    other_data = Labeled(weather(), "air", "pres", "time")
    fewer = Labeled(weather(days=5), "air", "pres", "time")
    grid = QueryGrid.even(Sphere(), (4, 5))
    others = [
        ((other_model, data), {}, "provenance.model"),
        ((model, other_data), {}, "provenance.data"),
        ((model, fewer), {}, "provenance.functions is 7, now requested: 5"),
        ((model, data), {"queries": grid}, "provenance.queries"),
    ]
    with pytest.raises(Crash):
        predict_to(model, data, path, progress=crash)
    for arguments, more, said in others:
        with pytest.raises(FileExistsError, match=rf"partial was started with other arguments .*{said}.*delete it"):
            predict_to(*arguments, path, **more)
    predict_to(model, data, path)
    before = content(path)
    for arguments, more, said in others:
        with pytest.raises(FileExistsError, match=rf"holds something else .*{said}.*choose another name"):
            predict_to(*arguments, path, **more)
    assert_same(predict_to(model, data, path), expected(model, data))  # it is there already
    assert content(path) == before
    (tmp_path / "else.zarr").mkdir()
    with pytest.raises(FileExistsError, match="holds something else"):
        predict_to(model, data, tmp_path / "else.zarr")
    with pytest.raises(ValueError, match=r"outputs pres .*, air .*, but the model was made for pres"):
        predict_to(model, Labeled(weather(), "air", ["pres", "air"], "time"), tmp_path / "q.zarr")
    with lock(tmp_path / "q.zarr.partial"), pytest.raises(RuntimeError, match="another process"):
        predict_to(model, data, tmp_path / "q.zarr")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model and data as files."""
    place = tmp_path_factory.mktemp("files")
    data = Labeled(weather(), "air", "pres", "time")
    model = loca(data.load())
    save(model, place / "model.safetensors", data=data)
    convert(data, place / "data.zarr")
    return place


@pytest.mark.slow
def test_the_command(place):
    asked = ["predict", place / "model.safetensors", place / "data.zarr", "--out"]
    command(*asked, place / "p.nc")
    said = words(command(*asked, place / "p.zarr"))
    assert "1/1" in said
    assert "is complete: 7 functions" in said
    assert "already exists: 7 functions" in words(command(*asked, place / "p.zarr"))
    at_once = xarray.open_dataset(place / "p.nc", engine="h5netcdf")
    xarray.testing.assert_allclose(xarray.open_zarr(place / "p.zarr", chunks=None), at_once, rtol=1e-5, atol=1e-5)
    command(*asked, place / "g.zarr", "--grid", "5x6")
    assert xarray.open_zarr(place / "g.zarr", chunks=None).sizes == {"sample": 7, "lat": 5, "lon": 6}
    assert "holds something else" in words(command(*asked, place / "g.zarr", "--grid", "5x7", code=1))
    assert "such as 721x1440" in words(command(*asked, place / "h.zarr", "--grid", "5by6", code=2))


@pytest.mark.full
def test_killed_at_random_moments(place, tmp_path):
    """SIGKILL three times, while tiles are made and written; then every file is that of an undisturbed run."""
    line = ["predict", str(place / "model.safetensors"), str(place / "data.zarr"), "--grid", "2000x1000", "--out"]
    command(*line, tmp_path / "undisturbed.zarr")
    path, log, rng = tmp_path / "killed.zarr", tmp_path / "log", random.Random(0)

    def done():
        return len(list(tmp_path.glob("killed.zarr.partial/pieces-*/[0-9]*")))

    with forked(log) as (start, status_of):
        for kills in range(4):
            pid, before = start([*line, str(path)]), done()
            if kills < 3:
                deadline = time.monotonic() + 120
                while done() < before + 2 and time.monotonic() < deadline:
                    time.sleep(0.01)
                time.sleep(rng.uniform(0.0, 0.3))
                os.kill(pid, signal.SIGKILL)
            status = status_of()
            assert status == (signal.SIGKILL if kills < 3 else 0), log.read_text()
            assert kills == 3 or done() > before  # what was done stays done
    assert content(path) == content(tmp_path / "undisturbed.zarr")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["killed.zarr", "log", "undisturbed.zarr"]
    shutil.rmtree(path)
    shutil.rmtree(tmp_path / "undisturbed.zarr")


MEMORY = """
import sys
import jax, numpy as np, xarray, zarr
from loca.data import Labeled
from loca.prediction import QueryGrid, predict_to
from loca.models import DeepONet
from loca_reproduction.benchmarks.throughput import peak_megabytes, resident_megabytes

dims, values = ("sample", "y1", "y2"), np.random.default_rng(0).standard_normal((128, 8, 8), np.float32)
data = Labeled(xarray.Dataset({"u": (dims, values), "s": (dims, values)}), "u", "s", "sample")
model = DeepONet.create(data.load(), key=jax.random.key(0), num_features=8, branch_widths=(8,), trunk_widths=(8,))
before = resident_megabytes()
found = predict_to(model, data, sys.argv[1], queries=QueryGrid.even(data.domain, (1000, 1000)))
print(found.s.nbytes / 1e6, peak_megabytes() - before)
"""


@pytest.mark.full
def test_memory_is_bounded(tmp_path):
    """128 functions at a million queries are 512 MB; the process grows by much less."""
    line = [sys.executable, "-W", "ignore", "-c", MEMORY, str(tmp_path / "p.zarr")]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written, grown = map(float, done.stdout.split())
    assert written == pytest.approx(512.0)
    assert grown < 250.0
    shutil.rmtree(tmp_path / "p.zarr")
