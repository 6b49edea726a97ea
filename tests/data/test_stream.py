"""Streaming: the batches of memory, in their order, wherever it begins and however many processes share it."""

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Sequence

import jax
import numpy as np
import pytest

from loca.data import CorruptDataError, Store, Stream, Variable
from loca.domains import Box
from loca.problems import Problem, generate
from loca.typing import Key

COUNT, SIZE, SEED = 1000, 12, 5


@dataclasses.dataclass(frozen=True)
class Numbered(Problem):
    """u of number i is i, everywhere."""

    citation = "none"
    domain = Box.unit(1)
    x = np.linspace(0.0, 1.0, 4)[:, None]
    y = np.linspace(0.0, 1.0, 5)[:, None]
    inputs = (Variable("u"),)
    outputs = (Variable("s"),)

    def pairs(self, key: Key, rows: Sequence[int]):
        numbers = np.asarray(rows, np.float64)[:, None, None]
        return np.broadcast_to(numbers, (len(rows), 4, 1)), -np.broadcast_to(numbers, (len(rows), 5, 1))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return generate(Numbered(), COUNT, tmp_path_factory.mktemp("stream") / "numbered.zarr")


def numbers(batch):
    """Which samples a batch holds."""
    found = np.asarray(batch.u)[:, 0, 0].astype(int)
    assert np.array_equal(np.asarray(batch.s)[:, 0, 0], -found)
    return found.tolist()


def order(store, steps, **options):
    batches = Stream(store, size=SIZE, seed=SEED, **options)
    found = [numbers(next(batches)) for _ in range(steps)]
    batches.close()
    return found


@pytest.fixture(scope="module")
def reference(store):
    """The batches that samples in memory give, over more than three epochs."""
    data = store.load()
    batch = jax.jit(lambda step: data.batch(SEED, step, SIZE).u[:, 0, 0])
    return [np.asarray(batch(step)).astype(int).tolist() for step in range(300)]


@pytest.mark.slow
def test_streamed_batches_are_those_of_memory(store, reference):
    data = store.load()
    batches = Stream(store, size=SIZE, seed=SEED)
    for step in range(3):
        streamed, in_memory = next(batches), data.batch(SEED, step, SIZE)
        assert jax.tree.structure(streamed) == jax.tree.structure(in_memory)
        assert jax.tree.all(jax.tree.map(np.array_equal, streamed, in_memory))
    batches.close()
    assert order(store, 300) == reference
    epoch = itertools.islice(itertools.chain(*reference), COUNT)
    assert sorted(epoch) == list(range(COUNT))  # every sample once


@pytest.mark.slow
def test_resuming_at_100_points_changes_nothing(store, reference):
    rng = np.random.default_rng(0)
    for step in rng.integers(0, 298, 100).tolist():
        batches = Stream(store, size=SIZE, seed=SEED, start=step)
        assert [numbers(next(batches)) for _ in range(2)] == reference[step : step + 2]
        assert batches.step == step + 2
        batches.close()
    assert order(store, 20, start=123, threads=4) == reference[123:143]


CODE = """
import json, sys
import numpy as np
from loca.data import Store, Stream
path, size, seed, start, steps, *processes = json.loads(sys.argv[1])
for process in processes:
    batches = Stream(Store.open(path), size=size, seed=seed, start=start, process=tuple(process))
    print(json.dumps([np.asarray(next(batches).u)[:, 0, 0].astype(int).tolist() for _ in range(steps)]))
    batches.close()
"""


@pytest.mark.full
def test_processes_share_the_same_order(store, reference):
    """Four processes, and two of them again as two: their parts side by side are the batches of one."""
    shares = [[(0, 4), (0, 2)], [(1, 4), (1, 2)], [(2, 4)], [(3, 4)]]
    arguments = [json.dumps([str(store.path), SIZE, SEED, 70, 30, *share]) for share in shares]
    running = [
        subprocess.Popen([sys.executable, "-c", CODE, argument], stdout=subprocess.PIPE, text=True)
        for argument in arguments
    ]
    found = [list(map(json.loads, process.communicate()[0].splitlines())) for process in running]
    of_four = [list(itertools.chain(*parts)) for parts in zip(*(each[0] for each in found), strict=True)]
    of_two = [list(itertools.chain(*parts)) for parts in zip(found[0][1], found[1][1], strict=True)]
    assert of_four == of_two == reference[70:100]


def test_a_flipped_bit_stops_the_stream(store, tmp_path):
    damaged = generate(Numbered(), COUNT, tmp_path / "damaged.zarr")
    file = damaged.path / "s/c/0/0/0"
    stored = bytearray(file.read_bytes())
    stored[len(stored) // 4] ^= 1
    file.write_bytes(stored)
    batches = Stream(Store.open(damaged.path), size=100, seed=0)
    with pytest.raises(CorruptDataError, match=r"damaged.zarr: array 's', chunk of sample \d+: .*restore"):
        list(itertools.islice(batches, COUNT // 100))
    batches.close()


def test_what_cannot_be_streamed_is_refused(store, monkeypatch):
    for options, message in (
        ({"process": (0, 5)}, "cannot be divided evenly among 5 processes"),
        ({"process": (2, 2)}, "0 ≤ i < n"),
    ):
        with pytest.raises(ValueError, match=message):
            Stream(store, size=12, seed=0, **options)
    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(ImportError, match=r"pip install loca-jax\[stream\]"):
        Stream(store, size=12, seed=0)
