"""Write stores piece by piece: a killed run resumes where it was, and `FILE.zarr` appears only when it is complete."""

from __future__ import annotations

import functools
import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from loca.data.records import Records, Rows, pieces
from loca.data.store.schema import (
    Arrays,
    Statistics,
    StoreSchema,
    content_digest,
    dimensions,
    input_moments,
    moments,
    sample_digests,
    samples_to_arrays,
)
from loca.data.store.store import Store, group_attributes, write_rows
from loca.durable import Resumable, create, sync
from loca.workers import run_tasks

PIECE_BYTES = 2**24
"""Approximate size of a piece of work of `convert`."""

SHARD_BYTES = 2**26
"""Approximate size of a file of a store: few files, each small enough to be written at once."""

SHARD_SAMPLES = 2**16
"""Maximum number of samples in a file; its index takes 16 bytes for each, read before any sample."""


def versions() -> dict[str, str]:
    """Versions of the packages that the samples depend on."""
    return {name: version(name) for name in ("loca-jax", "jax", "numpy", "scipy")}


def convert(
    records: Records,
    path: str | os.PathLike[str],
    *,
    rows: Rows = slice(None),
    progress: Callable[[int, int], object] | None = None,
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
        lambda chosen: samples_to_arrays(records.load(numbers[chosen.start : chosen.stop]))[1],
        provenance=provenance,
        block=max(1, PIECE_BYTES // sum(array.nbytes for array in example.values())),
        progress=progress,
    )


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
    progress: Callable[[int, int], object] | None = None,
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
    block = min(block, schema.count)
    shard = block * pieces_per_shard(schema, block)
    request = {"provenance": provenance, **schema.description(), "block": block, "shard": shard}

    def build(work: Resumable) -> Path:
        writer = StoreWriter(work, schema, block, shard)
        for done in writer.fill(read, workers, executor):
            if progress is not None:
                progress(done, schema.count)
        return writer.finish()

    path = Path(path)
    create(path, request, lambda path: group_attributes(path).get("loca", {}), build, ignore=UNKNOWN_BEFORE)
    return Store.open(path)


UNKNOWN_BEFORE = ("statistics", "digest", "versions")
"""What a request lacks, and packages that a complete store may differ in."""


def write_piece(read: Callable[[range], Arrays], work: Resumable, rows: range) -> None:
    """Read the samples of a piece and write them to a file, with their digests and moments, unless it exists."""
    if piece_key(rows) not in work:
        arrays = read(rows)
        summary = {
            "u_moments": input_moments(arrays),
            "s_moments": moments(arrays["s"]),
            "digests": sample_digests(arrays),
        }
        write_arrays(work, piece_key(rows), {**arrays, **summary})


def piece_key(rows: range) -> str:
    """The key of the samples of a piece, which is removed once its shard is packed."""
    return f"samples-{rows.start}"


def shard_key(rows: range) -> str:
    """The key of the summary of a shard; the shard is packed once it exists."""
    return f"shard-{rows.start}"


def write_arrays(work: Resumable, key: str, arrays: Arrays) -> None:
    """Write arrays as a piece, by name."""
    work.write(key, lambda file: np.savez(file, **arrays))  # pyright: ignore[reportArgumentType]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays of a file, by name."""
    with np.load(path) as arrays:
        return dict(arrays)


class StoreWriter:
    """Writes `FILE.zarr.partial`: pieces that are not packed yet, the shards packed so far, and a summary of each.

    A piece has `block` samples, a file `shard`.
    """

    def __init__(self, work: Resumable, schema: StoreSchema, block: int, shard: int):
        self.work, self.schema, self.block = work, schema, block
        self.shards = pieces(range(schema.count), shard)
        self.data = work.directory / "data"
        if "arrays" not in work:
            self.create_arrays(shard)
            work.write("arrays")

    def create_arrays(self, shard: int) -> None:
        """Create the empty arrays, and write those that all samples share."""
        import zarr
        from zarr.codecs import Crc32cCodec

        group = zarr.create_group(self.data, overwrite=True)
        indexed = "index" in self.schema.each
        options = {"compressors": Crc32cCodec(), "config": {"write_empty_chunks": True}}
        for name, array in self.schema.each.items():
            group.create_array(
                name,
                shape=(self.schema.count, *array.shape),
                dtype=array.dtype,
                chunks=(1, *array.shape),
                shards=(shard, *array.shape),
                dimension_names=dimensions(name, True, indexed),
                **options,
            )
        for name, array in self.schema.once.items():
            names = dimensions(name, False, indexed)
            group.create_array(name, data=array, chunks=array.shape, dimension_names=names, **options)

    def fill(self, read: Callable[[range], Arrays], workers: int, executor: Executor | None) -> Iterator[int]:
        """Compute missing pieces, pack each complete shard, and yield the number of completed samples."""
        missing = {
            rows: shard
            for shard in self.shards
            if shard_key(shard) not in self.work
            for rows in pieces(shard, self.block)
            if piece_key(rows) not in self.work
        }
        done = self.schema.count - sum(map(len, missing))
        yield done
        left = Counter(missing.values())
        for shard in self.shards:
            if not left[shard] and shard_key(shard) not in self.work:
                self.pack(shard)
        write = functools.partial(write_piece, read, self.work)
        for rows in run_tasks(write, list(missing), workers=workers, executor=executor):
            shard = missing[rows]
            left[shard] -= 1
            if not left[shard]:
                self.pack(shard)
            done += len(rows)
            yield done

    def pack(self, shard: range) -> None:
        """Pack the pieces of a shard; they are removed when the shard and its summary are on the disk."""
        keys = [piece_key(rows) for rows in pieces(shard, self.block)]
        found = [read_arrays(self.work.path(key)) for key in keys]
        for name, array in self.schema.each.items():
            write_rows(self.data / name, shard, np.concatenate([piece[name] for piece in found]))
            sync(self.data.joinpath(name, "c", str(shard.start // len(self.shards[0])), *("0" for _ in array.shape)))
        summary = {name: np.stack([piece[name] for piece in found]) for name in ("u_moments", "s_moments")}
        summary["digests"] = np.concatenate([piece["digests"] for piece in found])
        write_arrays(self.work, shard_key(shard), summary)
        for key in keys:
            self.work.path(key).unlink()

    def finish(self) -> Path:
        """Write the description of the complete store, and return its path."""
        import zarr

        for leftover in [*self.data.rglob("*.partial"), *self.data.rglob("*.__lock")]:  # written by a killed run
            leftover.unlink()
        summaries = [read_arrays(self.work.path(shard_key(shard))) for shard in self.shards]
        statistics = {
            name: Statistics.of(table for shard in summaries for table in shard[f"{name}_moments"]).to_json()
            for name in ("u", "s")
        }
        digest = content_digest(self.schema.once, np.concatenate([shard["digests"] for shard in summaries]))
        description = {**self.work.request, "statistics": statistics, "digest": digest}
        zarr.open_group(self.data, mode="r+").attrs.put({"loca": description})
        with warnings.catch_warnings():  # not part of the Zarr v3 standard yet, but xarray warns without it
            warnings.filterwarnings("ignore", "Consolidated metadata")
            zarr.consolidate_metadata(self.data)
        return self.data


def pieces_per_shard(schema: StoreSchema, block: int) -> int:
    """The number of pieces in a file, for pieces of `block` samples."""
    largest = max(array.nbytes for array in schema.each.values())
    samples = min(SHARD_BYTES // largest, SHARD_SAMPLES, schema.count)
    return max(1, -(-samples // block) if samples == schema.count else samples // block)
