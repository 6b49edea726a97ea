"""Write stores piece by piece: a killed run resumes where it was, and `FILE.zarr` appears only when it is complete."""

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

from loca.data.records import Records, Rows
from loca.data.store.schema import (
    Arrays,
    Moments,
    Statistics,
    StoreSchema,
    content_digest,
    dimensions,
    input_moments,
    sample_digests,
    samples_to_arrays,
)
from loca.data.store.store import Store, group_attributes, write_rows
from loca.durable import (
    differences,
    is_started,
    lock,
    sync,
    sync_tree,
    without_versions,
    write_atomically,
    write_request,
)
from loca.workers import run_tasks

PIECE_BYTES = 2**24
"""Approximate size of a piece of work of `convert`."""

SHARD_BYTES = 2**26
"""Approximate size of a file of a store: few files, each small enough to be written at once."""

SHARD_SAMPLES = 2**16
"""Maximum number of samples in a file; its index takes 16 bytes for each, read before any sample."""

Progress = Callable[[int, int], object]
"""Called with the number of completed samples and their total number."""


def versions() -> dict[str, str]:
    """Versions of the packages that the samples depend on."""
    return {name: version(name) for name in ("loca-jax", "jax", "numpy", "scipy")}


def convert(
    records: Records, path: str | os.PathLike[str], *, rows: Rows = slice(None), progress: Progress | None = None
) -> Store:
    """Write records, or some of their rows, as a store; the same call resumes an interrupted one.

    **Arguments:**

    - `records`: what `loca.data.open` returns.
    - `path`: `FILE.zarr`, which appears only when it is complete; until then `FILE.zarr.partial` holds finished pieces.
    - `rows`: the rows to write; all unless given.
    - `progress`: called with the number of completed samples and their total number.
    """
    numbers = np.arange(len(records))[rows if isinstance(rows, slice) else np.asarray(rows)]
    if not len(numbers):
        raise ValueError(f"no rows of {records.source} were selected; it has {len(records)}")
    if not records.outputs:
        raise ValueError(f"{records.source} has no outputs, and a store holds pairs; open it with outputs=")
    ends = records.load(numbers[[0, -1]])
    once, each = samples_to_arrays(ends)
    example = {name: array[0] for name, array in each.items()}
    coordinates = ends.sensor_coordinates, ends.query_coordinates
    schema = StoreSchema(len(numbers), records.domain, records.inputs, records.outputs, once, example, *coordinates)
    provenance = {
        "source": records.source,
        "rows": describe_rows(numbers),
        "first and last": content_digest({}, sample_digests(each)),  # sources of equal name may differ in content
        "versions": versions(),
    }
    return write_store(
        path,
        schema,
        SelectedRows(records, numbers),
        provenance=provenance,
        block=max(1, PIECE_BYTES // sum(array.nbytes for array in example.values())),
        progress=progress,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class SelectedRows:
    """Reads the arrays of selected rows of records, numbered consecutively."""

    records: Records
    numbers: np.ndarray

    def __call__(self, rows: range) -> Arrays:
        """Read some of the selected rows."""
        return samples_to_arrays(self.records.load(self.numbers[rows.start : rows.stop]))[1]


def describe_rows(numbers: np.ndarray) -> str:
    """Rows as first:last:step if they are evenly spaced, else by their digest."""
    step = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    if np.array_equal(numbers, numbers[0] + step * np.arange(len(numbers))):
        return f"{numbers[0]}:{numbers[-1]}:{step}"
    return "sha256:" + hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()


def write_store(
    path: str | os.PathLike[str],
    schema: StoreSchema,
    read: Callable[[range], Arrays],
    *,
    provenance: dict[str, Any],
    block: int,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Store:
    """Write a store, or resume an interrupted call with the same arguments.

    **Arguments:**

    - `path`: `FILE.zarr`.
    - `schema`: the content of the store.
    - `read`: returns the arrays of some samples; a pure function of their numbers.
    - `provenance`: the origin of the samples, in a form that JSON can hold.
    - `block`: number of samples in a piece of work.
    - `workers`, `executor`: see `run_tasks`.
    - `progress`: called with the number of completed samples and their total number.
    """
    path = Path(path)
    partial = PartialStore(path, schema, provenance, min(block, schema.count))
    if path.exists() and not partial.directory.exists():
        return partial.existing()
    with lock(partial.directory):
        if path.exists():  # interrupted after the store was complete but before the partial one was removed
            store = partial.existing()
            shutil.rmtree(partial.directory)
            return store
        partial.start()
        for done in partial.fill(read, workers, executor):
            if progress is not None:
                progress(done, schema.count)
        partial.finish()
    return Store.open(path)


@dataclasses.dataclass(frozen=True)
class WritePiece:
    """Reads the samples of a piece and writes them to a file, with their digests and moments."""

    read: Callable[[range], Arrays]
    directory: Path

    def __call__(self, rows: range) -> None:
        """Write the piece, unless it exists."""
        path = piece_path(self.directory, rows)
        if path.exists():
            return
        arrays = self.read(rows)
        summary = {
            "u_moments": input_moments(arrays).table,
            "s_moments": Moments.of(arrays["s"]).table,
            "digests": sample_digests(arrays),
        }
        write_arrays(path, {**arrays, **summary})


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays to a file, by name."""
    write_atomically(path, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file, by name."""
    with np.load(path) as arrays:
        return dict(arrays)


def piece_path(directory: Path, rows: range) -> Path:
    """The file of a piece."""
    return directory / f"{rows.start:012d}.npz"


class PartialStore:
    """`FILE.zarr.partial`: pieces that are not packed yet, the shards packed so far, and a summary of each."""

    def __init__(self, path: Path, schema: StoreSchema, provenance: dict[str, Any], block: int):
        self.path, self.schema, self.block = path, schema, block
        self.shard = block * pieces_per_shard(schema, block)
        self.request = json.loads(
            json.dumps({**schema.description(), "block": block, "shard": self.shard, "provenance": provenance})
        )
        self.directory = path.with_name(path.name + ".partial")
        self.data, self.packed = self.directory / "data", self.directory / "packed"
        # named after the request, because workers of a killed run with other arguments may still be running
        mark = hashlib.sha256(json.dumps(self.request, sort_keys=True).encode()).hexdigest()[:16]
        self.pieces = self.directory / f"pieces-{mark}"

    def existing(self) -> Store:
        """The existing store, if it is the requested one."""
        found = group_attributes(self.path).get("loca", {})
        if difference := differences(without_versions(found), without_versions(self.request)):
            raise FileExistsError(
                f"{self.path} already exists and holds something else ({difference}); "
                "choose another name, or delete it first"
            )
        return Store.open(self.path)

    def start(self) -> None:
        """Write the request and create the arrays, or check that an interrupted run requested the same."""
        started = is_started(self.directory, self.request)
        self.pieces.mkdir(exist_ok=True)  # also when resuming: tools that copy files may leave out empty directories
        self.packed.mkdir(exist_ok=True)
        if not started:
            self.create_arrays()
            write_request(self.directory, self.request)
        for leftover in [*self.pieces.glob(".*"), *self.packed.glob(".*")]:  # from a killed run
            leftover.unlink(missing_ok=True)

    def create_arrays(self) -> None:
        """Create the empty arrays, and write those that all samples share."""
        import zarr
        from zarr.codecs import Crc32cCodec

        group = zarr.create_group(self.data, overwrite=True)
        indexed = "index" in self.schema.each
        for name, array in self.schema.each.items():
            group.create_array(
                name,
                shape=(self.schema.count, *array.shape),
                dtype=array.dtype,
                chunks=(1, *array.shape),
                shards=(self.shard, *array.shape),
                compressors=Crc32cCodec(),
                dimension_names=dimensions(name, True, indexed),
                config={"write_empty_chunks": True},
            )
        for name, array in self.schema.once.items():
            group.create_array(
                name,
                data=array,
                chunks=array.shape,
                compressors=Crc32cCodec(),
                dimension_names=dimensions(name, False, indexed),
                config={"write_empty_chunks": True},
            )

    def fill(self, read: Callable[[range], Arrays], workers: int, executor: Executor | None) -> Iterator[int]:
        """Compute missing pieces, pack each complete shard, and yield the number of completed samples."""
        open_shards = [rows for rows in cut(range(self.schema.count), self.shard) if not self.summary(rows).exists()]
        missing = {
            shard: {rows for rows in cut(shard, self.block) if not piece_path(self.pieces, rows).exists()}
            for shard in open_shards
        }
        done = self.schema.count - sum(len(rows) for each in missing.values() for rows in each)
        yield done
        for shard in open_shards:
            if not missing[shard]:
                self.pack(shard)
        todo = sorted((rows for each in missing.values() for rows in each), key=lambda rows: rows.start)
        for rows in run_tasks(WritePiece(read, self.pieces.absolute()), todo, workers=workers, executor=executor):
            start = rows.start - rows.start % self.shard
            shard = range(start, min(start + self.shard, self.schema.count))
            missing[shard].remove(rows)
            if not missing[shard]:
                self.pack(shard)
            done += len(rows)
            yield done

    def pack(self, shard: range) -> None:
        """Pack the pieces of a shard; they are removed when the shard and its summary are on the disk."""
        files = [piece_path(self.pieces, rows) for rows in cut(shard, self.block)]
        pieces = [read_arrays(file) for file in files]
        for name in self.schema.each:
            write_rows(self.data / name, shard, np.concatenate([piece[name] for piece in pieces]))
            trailing = ("0" for _ in self.schema.each[name].shape)
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
        """The file with the summary of a shard; the shard is packed once it exists."""
        return piece_path(self.packed, shard)

    def finish(self) -> None:
        """Write the description, move the store to its path, and remove the partial one."""
        import zarr

        for leftover in [*self.data.rglob("*.partial"), *self.data.rglob("*.__lock")]:  # written by a killed run
            leftover.unlink()
        shards = [read_arrays(self.summary(shard)) for shard in cut(range(self.schema.count), self.shard)]
        statistics = {
            name: Statistics.of(Moments(*each) for shard in shards for each in shard[f"{name}_moments"]).to_json()
            for name in ("u", "s")
        }
        digest = content_digest(self.schema.once, np.concatenate([shard["digests"] for shard in shards]))
        description = {**self.request, "statistics": statistics, "digest": digest}
        zarr.open_group(self.data, mode="r+").attrs.put({"loca": description})
        with warnings.catch_warnings():  # not part of the Zarr v3 standard yet, but xarray warns without it
            warnings.filterwarnings("ignore", "Consolidated metadata")
            zarr.consolidate_metadata(self.data)
        sync_tree(self.data)
        self.data.rename(self.path)
        sync(self.path.parent)
        shutil.rmtree(self.directory, ignore_errors=True)


def pieces_per_shard(schema: StoreSchema, block: int) -> int:
    """The number of pieces in a file, for pieces of `block` samples."""
    largest = max(array.nbytes for array in schema.each.values())
    samples = min(SHARD_BYTES // largest, SHARD_SAMPLES, schema.count)
    return max(1, -(-samples // block) if samples == schema.count else samples // block)


def cut(rows: range, size: int) -> list[range]:
    """Consecutive ranges of this size; the last may be smaller."""
    return [range(start, min(start + size, rows.stop)) for start in range(rows.start, rows.stop, size)]
