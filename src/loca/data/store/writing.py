"""Stores made piece by piece: whatever is killed, what is done stays done, and `FILE.zarr` is there only when whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from loca.data.store.layout import Arrays, StoreLayout, content_digest, dimensions, sample_digests
from loca.data.store.moments import Moments, Statistics
from loca.data.store.reading import with_tensorstore
from loca.data.store.store import Store, group_attributes
from loca.durable import differences, is_begun, lock, sync, without_versions, write_atomically, write_request
from loca.workers import carry_out

SHARD_BYTES = 2**26
"""About how large a file of a store is: few files, each small enough to be written at once."""

SHARD_SAMPLES = 2**16
"""How many samples a file has at most; where each lies takes 16 bytes, read before any of them."""

Progress = Callable[[int, int], object]
"""Called with how many samples are done, and of how many."""


def versions() -> dict[str, str]:
    """The packages that the numbers depend on."""
    return {name: version(name) for name in ("loca-jax", "jax", "numpy", "scipy")}


def write_store(
    path: str | os.PathLike[str],
    layout: StoreLayout,
    read: Callable[[range], Arrays],
    *,
    provenance: dict[str, Any],
    block: int,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Store:
    """Make a store, or go on where an earlier call with the same arguments was stopped.

    **Arguments:**

    - `read`: the arrays of some samples; a pure function of their numbers.
    - `block`: how many samples are one piece of work.
    - `workers`, `executor`: who does the work, see `carry_out`.
    """
    path = Path(path)
    draft = Draft(path, layout, provenance, min(block, layout.count))
    if path.exists() and not draft.directory.exists():
        return draft.existing()
    with lock(draft.directory):
        if path.exists():  # stopped after it was whole but before the draft was removed
            store = draft.existing()
            shutil.rmtree(draft.directory)
            return store
        draft.begin()
        for done in draft.fill(read, workers, executor):
            if progress is not None:
                progress(done, layout.count)
        draft.finish()
    return Store.open(path)


@dataclasses.dataclass(frozen=True)
class Piece:
    """Does one piece of work: reads some samples, sums them up and leaves them in a file."""

    read: Callable[[range], Arrays]
    directory: Path

    def __call__(self, rows: range) -> None:
        """Do it, unless it is done."""
        path = piece_path(self.directory, rows)
        if path.exists():
            return
        arrays = self.read(rows)
        summary = {
            "u_moments": Moments.of(arrays["u"], arrays.get("mask")).table,
            "s_moments": Moments.of(arrays["s"]).table,
            "digests": sample_digests(arrays),
        }
        write_arrays(path, {**arrays, **summary})


def write_arrays(path: Path, arrays: Arrays) -> None:
    """A whole file of arrays by name."""
    write_atomically(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of such a file."""
    with np.load(path) as arrays:
        return dict(arrays)


def piece_path(directory: Path, rows: range) -> Path:
    """The file of a piece of work."""
    return directory / f"{rows.start:012d}.npz"


class Draft:
    """`FILE.zarr.partial`: pieces that wait to be packed, the shards packed so far, and a summary of each."""

    def __init__(self, path: Path, layout: StoreLayout, provenance: dict[str, Any], block: int):
        self.path, self.layout, self.block = path, layout, block
        self.shard = block * pieces_per_shard(layout, block)
        self.request = json.loads(
            json.dumps({**layout.description(), "block": block, "shard": self.shard, "provenance": provenance})
        )
        self.directory = path.with_name(path.name + ".partial")
        self.data, self.packed = self.directory / "data", self.directory / "packed"
        # a name of its own, for workers of a killed run with other arguments may still be about
        mark = hashlib.sha256(json.dumps(self.request, sort_keys=True).encode()).hexdigest()[:16]
        self.pieces = self.directory / f"pieces-{mark}"

    def existing(self) -> Store:
        """The store that is there already, if it is the one asked for."""
        found = group_attributes(self.path).get("loca", {})
        if difference := differences(without_versions(found), without_versions(self.request)):
            raise FileExistsError(
                f"{self.path} is there already and holds something else ({difference}); "
                "choose another name, or delete it first"
            )
        return Store.open(self.path)

    def begin(self) -> None:
        """Write down what is asked for, or see that it is what was asked for before."""
        if not is_begun(self.directory, self.request):
            self.pieces.mkdir(exist_ok=True)
            self.packed.mkdir(exist_ok=True)
            self.create_arrays()
            write_request(self.directory, self.request)
        for leftover in [*self.pieces.glob(".*"), *self.packed.glob(".*")]:  # of a killed run
            leftover.unlink(missing_ok=True)

    def create_arrays(self) -> None:
        """The empty arrays, and those that all samples share."""
        import zarr
        from zarr.codecs import Crc32cCodec

        group = zarr.create_group(self.data, overwrite=True)
        indexed = "index" in self.layout.each
        for name, array in self.layout.each.items():
            group.create_array(
                name,
                shape=(self.layout.count, *array.shape),
                dtype=array.dtype,
                chunks=(1, *array.shape),
                shards=(self.shard, *array.shape),
                compressors=Crc32cCodec(),
                dimension_names=dimensions(name, True, indexed),
                config={"write_empty_chunks": True},
            )
        for name, array in self.layout.once.items():
            group.create_array(
                name,
                data=array,
                chunks=array.shape,
                compressors=Crc32cCodec(),
                dimension_names=dimensions(name, False, indexed),
                config={"write_empty_chunks": True},
            )

    def fill(self, read: Callable[[range], Arrays], workers: int, executor: Executor | None) -> Iterator[int]:
        """Do what is not done yet and pack each shard as soon as it is complete; gives how many samples are done."""
        open_shards = [rows for rows in cut(range(self.layout.count), self.shard) if not self.summary(rows).exists()]
        missing = {
            shard: {rows for rows in cut(shard, self.block) if not piece_path(self.pieces, rows).exists()}
            for shard in open_shards
        }
        done = self.layout.count - sum(len(rows) for each in missing.values() for rows in each)
        yield done
        for shard in open_shards:
            if not missing[shard]:
                self.pack(shard)
        todo = sorted((rows for each in missing.values() for rows in each), key=lambda rows: rows.start)
        for rows in carry_out(Piece(read, self.pieces.absolute()), todo, workers=workers, executor=executor):
            start = rows.start - rows.start % self.shard
            shard = range(start, min(start + self.shard, self.layout.count))
            missing[shard].remove(rows)
            if not missing[shard]:
                self.pack(shard)
            done += len(rows)
            yield done

    def pack(self, shard: range) -> None:
        """Move complete pieces into a shard; only when it is on the disk, with its summary, are they removed."""
        files = [piece_path(self.pieces, rows) for rows in cut(shard, self.block)]
        pieces = [read_arrays(file) for file in files]
        for name in self.layout.each:
            write_rows(self.data / name, shard, np.concatenate([piece[name] for piece in pieces]))
            trailing = ("0" for _ in self.layout.each[name].shape)
            sync(self.data.joinpath(name, "c", str(shard.start // self.shard), *trailing))
        summary = {
            "u_moments": np.stack([piece["u_moments"] for piece in pieces]),
            "s_moments": np.stack([piece["s_moments"] for piece in pieces]),
            "digests": np.concatenate([piece["digests"] for piece in pieces]),
        }
        write_arrays(self.summary(shard), summary)
        for file in files:
            file.unlink()

    def summary(self, shard: range) -> Path:
        """The file that says a shard is packed, and what is in it."""
        return piece_path(self.packed, shard)

    def finish(self) -> None:
        """Describe the whole, give it its name, and remove what it was made from."""
        import zarr

        for leftover in [*self.data.rglob("*.partial"), *self.data.rglob("*.__lock")]:  # what a killed run was writing
            leftover.unlink()
        shards = [read_arrays(self.summary(shard)) for shard in cut(range(self.layout.count), self.shard)]
        statistics = {
            name: Statistics.of(Moments(*each) for shard in shards for each in shard[f"{name}_moments"]).to_json()
            for name in ("u", "s")
        }
        digest = content_digest(self.layout.once, np.concatenate([shard["digests"] for shard in shards]))
        description = {**self.request, "statistics": statistics, "digest": digest}
        zarr.open_group(self.data, mode="r+").attrs.put({"loca": description})
        with warnings.catch_warnings():  # not part of the Zarr v3 standard yet, but xarray warns whoever has none
            warnings.filterwarnings("ignore", "Consolidated metadata")
            zarr.consolidate_metadata(self.data)
        sync(self.data / "zarr.json")
        self.data.rename(self.path)
        sync(self.path.parent)
        shutil.rmtree(self.directory, ignore_errors=True)


def pieces_per_shard(layout: StoreLayout, block: int) -> int:
    """How many pieces of so many samples make up a file."""
    largest = max(array.nbytes for array in layout.each.values())
    samples = min(SHARD_BYTES // largest, SHARD_SAMPLES, layout.count)
    return max(1, -(-samples // block) if samples == layout.count else samples // block)


def write_rows(path: Path, rows: range, values: np.ndarray) -> None:
    """Write rows that make up a shard of an array; both libraries put the file in its place only when it is whole."""
    if with_tensorstore():
        import tensorstore

        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path.absolute()}/"}}
        opened = tensorstore.open({**spec, "store_data_equal_to_fill_value": True}, write=True).result()
        opened[rows.start : rows.stop].write(values).result()
    else:  # the same, more slowly
        import zarr

        with zarr.config.set({"array.write_empty_chunks": True}):  # `config=` is for new arrays only
            array = zarr.open_array(path, mode="r+")
        array[rows.start : rows.stop] = values


def cut(rows: range, size: int) -> list[range]:
    """Consecutive parts of this size; the last may be smaller."""
    return [range(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]
