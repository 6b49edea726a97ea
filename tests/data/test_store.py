"""Stores: samples are read back bit by bit or not at all, with their description."""

import dataclasses
import json
import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from loca.data import (
    CorruptDataError,
    Free,
    Indexed,
    Records,
    Samples,
    Shared,
    Store,
    Variable,
    convert,
)
from loca.data import store as stores
from loca.domains import Box, Sphere, Torus
from loca.typing import Measurements


class InMemory(Records):
    """Samples that pretend to be in a file."""

    def __init__(self, samples, source="memory"):
        self.samples, self.source = samples, source
        self.inputs, self.outputs, self.domain = samples.inputs, samples.outputs, samples.domain

    def __len__(self):
        return len(self.samples)

    def load(self, rows=slice(None)):
        return take(self.samples, rows)

    def label(self, s, rows=slice(None)):
        raise AssertionError("nobody asks")


def take(data, rows):
    return data.take(jnp.asarray(np.arange(len(data))[rows]))


def plane(n1, n2, low=(0.0, 0.0), high=(1.0, 1.0)):
    axes = jnp.linspace(low[0], high[0], n1), jnp.linspace(low[1], high[1], n2)
    return jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def samples(key, count=23, queries=None, measured=False, domain=None):
    u_key, s_key, x_key = jax.random.split(key, 3)
    queries = Shared(plane(3, 4)) if queries is None else queries
    u = 5.0 + jax.random.normal(u_key, (count, 6, 2))
    if measured:
        x = jax.random.uniform(x_key, (count, 6, 1))
        u = Measurements(u, x, jnp.arange(6) < 1 + jnp.arange(count)[:, None] % 6)
    return Samples(
        u,
        queries,
        jax.random.normal(s_key, (count, queries.count, 3)) * jnp.array([1.0, 10.0, 100.0]),
        x=None if measured else jnp.linspace(0.0, 1.0, 6)[:, None],
        domain=Box.unit(2) if domain is None else domain,
        inputs=[Variable("a", "K"), Variable("b")],
        outputs=[Variable("p", "Pa"), Variable("v", "m/s"), Variable("w")],
    )


@pytest.fixture
def small_shards(monkeypatch):
    """Six samples are a shard, so that little data has several."""
    monkeypatch.setattr(stores, "SHARD_BYTES", 6 * (48 + 144))


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


FORMS = {
    "shared": lambda key: samples(key),
    "indexed": lambda key: samples(key).observe(key, 5),
    "free": lambda key: samples(key, queries=Free(jax.random.uniform(key, (23, 7, 2)))),
    "measured": lambda key: samples(key, measured=True),
    "measured and free": lambda key: samples(key, measured=True, queries=Free(jax.random.uniform(key, (23, 7, 2)))),
    "torus": lambda key: samples(key, domain=Torus((0.0, -1.0), (0.1, 2.5))),
    "sphere": lambda key: samples(key, domain=Sphere()),
}


QUICK = ("indexed", "measured and free", "sphere")


@pytest.mark.parametrize(
    "form", [form if form in QUICK else pytest.param(form, marks=pytest.mark.full) for form in FORMS]
)
def test_what_goes_in_comes_out(form, tmp_path, getkey, small_shards):
    """Every form of samples, exactly, in any order."""
    data = FORMS[form](getkey())
    store = convert(InMemory(data), tmp_path / "data.zarr")
    assert_same(store.load(), data)
    assert_same(store.load([22, 0, 7, 7, -1]), take(data, [22, 0, 7, 7, 22]))
    assert_same(store.load(slice(20, 2, -5)), take(data, np.arange(20, 2, -5)))
    assert_same(store.load(np.arange(23) % 2 == 0), take(data, np.arange(0, 23, 2)))
    assert_same(store.select([22, 0, 7]).select([2, 0]).load([-1]), take(data, [22]))
    store.verify()


def test_functions_that_are_zero_are_written_too(tmp_path, getkey, small_shards):
    """Whole shards of them: a file that holds nothing but the value of empty places is still a file."""
    data = samples(getkey())
    data = dataclasses.replace(data, s=jnp.zeros_like(data.s))
    assert_same(convert(InMemory(data), tmp_path / "zero.zarr").load(), data)


def test_some_rows_are_converted(tmp_path, getkey, small_shards):
    data = samples(getkey())
    for i, (chosen, count) in enumerate([(slice(3, 20, 2), 9), ([9, 2, 4], 3)]):
        store = convert(InMemory(data), tmp_path / f"{i}.zarr", rows=chosen)
        assert_same(store.load(), take(data, chosen))
        assert store.provenance["source"] == "memory"
        assert store.provenance["rows"].startswith(f"{count} of 23, sha256 ")


def test_another_choice_of_the_same_source_is_not_the_same(tmp_path, getkey):
    """As with parts of a file that have equal names, sizes and shapes."""
    path = tmp_path / "data.zarr"
    train, test = samples(getkey()), samples(getkey())
    assert convert(InMemory(train), path).digest == convert(InMemory(train), path).digest
    with pytest.raises(FileExistsError, match="first and last is"):
        convert(InMemory(test), path)


def test_layout_is_the_one_that_is_promised(tmp_path, getkey, small_shards):
    """By the Zarr v3 standard alone: one sample per chunk, a checksum on each, names for all axes."""
    convert(InMemory(samples(getkey())), tmp_path / "data.zarr")
    for name, shape, axes in [("u", [6, 2], ["sensor", "input"]), ("s", [12, 3], ["query", "output"])]:
        about = json.loads((tmp_path / "data.zarr" / name / "zarr.json").read_text())
        assert about["zarr_format"] == 3
        assert (about["shape"], about["data_type"]) == ([23, *shape], "float32")
        assert about["dimension_names"] == ["sample", *axes]
        assert about["chunk_grid"]["configuration"]["chunk_shape"] == [6, *shape]
        (sharding,) = about["codecs"]
        assert sharding["configuration"]["chunk_shape"] == [1, *shape]
        assert [codec["name"] for codec in sharding["configuration"]["codecs"]] == ["bytes", "crc32c"]
        assert len(list((tmp_path / "data.zarr" / name / "c").iterdir())) == 4  # ⌈23 / 6⌉ files
    assert not (tmp_path / "data.zarr.partial").exists()


def test_xarray_opens_it(tmp_path, getkey):
    data = samples(getkey())
    convert(InMemory(data), tmp_path / "data.zarr")
    with warnings.catch_warnings(), xarray.open_zarr(tmp_path / "data.zarr", chunks=None) as opened:
        warnings.simplefilter("error")
        assert opened.s.dims == ("sample", "query", "output")
        assert opened.x.dims == ("sensor", "sensor_axis")
        assert np.array_equal(opened.s, data.s)
        assert np.array_equal(opened.u, data.u)


def test_the_digest_depends_on_the_samples_alone(tmp_path, getkey, monkeypatch):
    data = samples(getkey())
    digests = []
    for i, shard in enumerate((1, 3, 5, 100)):
        monkeypatch.setattr(stores, "SHARD_BYTES", shard * (48 + 144))
        digests.append(convert(InMemory(data, f"source {i}"), tmp_path / f"{i}.zarr").digest)
    assert len(set(digests)) == 1
    s = np.array(data.s)
    s[-1, -1, -1] = np.nextafter(s[-1, -1, -1], np.float32(np.inf))
    changed = dataclasses.replace(data, s=jnp.asarray(s))
    swapped = take(data, [1, 0, *range(2, 23)])
    for name, other in (("changed", changed), ("swapped", swapped)):
        assert convert(InMemory(other), tmp_path / f"{name}.zarr").digest not in digests


def chunk_places(file, per_shard):
    """Where each sample lies in a shard: the standard puts (offset, length) of all chunks and a checksum at its end."""
    index = file.read_bytes()[-16 * per_shard - 4 : -4]
    return np.frombuffer(index, "<u8").reshape(per_shard, 2).astype(int)


def flip(file, place, bit):
    stored = bytearray(file.read_bytes())
    stored[place] ^= 1 << bit
    file.write_bytes(stored)


@pytest.mark.parametrize("trials", [5, pytest.param(20, marks=pytest.mark.full)])
def test_every_flipped_bit_is_found_and_named(trials, tmp_path, getkey, small_shards):
    good = convert(InMemory(samples(getkey())), tmp_path / "good.zarr")
    rng = np.random.default_rng(0)
    for trial in range(trials):
        path = tmp_path / f"{trial}.zarr"
        shutil.copytree(tmp_path / "good.zarr", path)
        name, row = rng.choice(["u", "s"]), int(rng.integers(23))
        file = path / name / "c" / str(row // 6) / "0" / "0"
        offset, length = chunk_places(file, 6)[row % 6]
        flip(file, rng.integers(offset, offset + length), rng.integers(8))
        store = Store.open(path)
        with pytest.raises(CorruptDataError, match=f"{trial}.zarr: array '{name}', chunk of sample {row}: .*restore"):
            store.load()
        with pytest.raises(CorruptDataError, match=f"chunk of sample {row}:"):
            store.load([0, row, 22])
        others = [i for i in range(23) if i != row]
        assert_same(store.load(others), good.load(others))


def test_a_damaged_index_and_missing_bytes_are_found(tmp_path, getkey, small_shards):
    convert(InMemory(samples(getkey())), tmp_path / "data.zarr")
    file = tmp_path / "data.zarr/u/c/1/0/0"
    stored = file.read_bytes()
    flip(file, len(stored) - 20, 3)
    with pytest.raises(CorruptDataError, match="array 'u', chunk of sample 6, 7, 8, 9, 10 and 1 more"):
        Store.open(tmp_path / "data.zarr").load()
    file.write_bytes(stored[:-1])
    with pytest.raises(CorruptDataError, match="array 'u', chunk of sample 6"):
        Store.open(tmp_path / "data.zarr").load()
    file.unlink()
    with pytest.raises(CorruptDataError, match="missing, with the samples from 6 on"):
        Store.open(tmp_path / "data.zarr")


def test_verification_sees_what_checksums_cannot(tmp_path, getkey, small_shards):
    """Two whole shards exchanged: every checksum is right, the data is not."""
    convert(InMemory(samples(getkey())), tmp_path / "data.zarr")
    first, second = (tmp_path / f"data.zarr/s/c/{i}/0/0" for i in (0, 1))
    stored = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(stored)
    with pytest.raises(CorruptDataError, match="do not match their digest"):
        Store.open(tmp_path / "data.zarr").verify()


def test_labels_of_a_grid_are_those_of_the_grid(tmp_path, getkey):
    """s = y₁ + 10 y₂ written by the flat order of queries is y₁ + 10 y₂ of the labels."""
    y = plane(3, 4, high=(1.0, 2.0))
    s = jnp.broadcast_to((y[:, :1] + 10 * y[:, 1:]), (5, 12, 1))
    data = Samples(jnp.ones((5, 2, 1)), y, s, domain=Box((0.0, 0.0), (1.0, 2.0)), outputs=[Variable("p", "Pa")])
    labels = convert(InMemory(data), tmp_path / "data.zarr").label(np.asarray(s[:2]), [4, 1])
    assert labels.p.dims == ("sample", "y1", "y2")
    assert labels.p.attrs["units"] == "Pa"
    assert labels.sample.values.tolist() == [4, 1]
    assert np.allclose(labels.p, (labels.y1 + 10 * labels.y2).expand_dims(sample=[4, 1]))


def test_labels_on_the_sphere_are_latitude_and_longitude(tmp_path, getkey):
    y = plane(3, 4, low=(60.0, 0.0), high=(-60.0, 270.0))
    data = Samples(jnp.ones((5, 2, 1)), y, jnp.ones((5, 12, 1)), domain=Sphere())
    labels = convert(InMemory(data), tmp_path / "data.zarr").label(np.asarray(data.s))
    assert labels.s1.dims == ("sample", "latitude", "longitude")
    assert labels.latitude.values.tolist() == [60.0, 0.0, -60.0]
    assert labels.longitude.attrs["units"] == "degrees_east"


@pytest.mark.parametrize("form", ["free", "indexed", "scattered"])
def test_labels_of_scattered_queries_carry_their_locations(form, tmp_path, getkey):
    points = jax.random.uniform(getkey(), (9, 2))
    queries = {
        "free": Free(jax.random.uniform(getkey(), (23, 7, 2))),
        "indexed": Indexed(points, jax.random.randint(getkey(), (23, 7), 0, 9)),
        "scattered": Shared(points),
    }[form]
    locations = queries.locations(23)
    data = Samples(jnp.ones((23, 2, 1)), queries, locations[..., :1] - locations[..., 1:], domain=Box.unit(2))
    labels = convert(InMemory(data), tmp_path / "data.zarr").label(np.asarray(data.s)[[3, 8]], [3, 8])
    assert labels.s1.dims == ("sample", "query")
    assert np.allclose(labels.s1, (labels.y1 - labels.y2).broadcast_like(labels.s1))


def test_what_is_no_store_is_refused(tmp_path, getkey):
    with pytest.raises(FileNotFoundError, match="loca generate"):
        Store.open(tmp_path / "nothing.zarr")
    with pytest.raises(ValueError, match="not a store of loca; convert"):
        Store.open(tmp_path)
    convert(InMemory(samples(getkey())), tmp_path / "data.zarr")
    about = tmp_path / "data.zarr/zarr.json"
    newer = about.read_text().replace(f'"format": {stores.FORMAT}', f'"format": {stores.FORMAT + 1}')
    about.write_text(newer)
    with pytest.raises(ValueError, match="create it again"):
        Store.open(tmp_path / "data.zarr")
