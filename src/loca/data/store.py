"""A store: a Zarr v3 group with one chunk per sample, a checksum on every chunk, and a description of its content.

It is written shard by shard: a killed run resumes where it was, and `FILE.zarr` appears only when it is complete.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.data.grids import grid_axes
from loca.data.queries import Free, Indexed, Shared
from loca.data.records import Part, Records, Rows, numbered_rows, pieces
from loca.data.samples import Samples, Variable, coordinates_of
from loca.domains import domain_from_json
from loca.durable import CorruptDataError, Resumable, create
from loca.typing import Measurements, MultiInput, PyTree
from loca.workers import run_tasks

if TYPE_CHECKING:
    import xarray

FORMAT = 1
"""Version of the format; to be raised when an older reader would misread a newer store."""

Arrays = Mapping[str, np.ndarray]
"""Arrays by name: always `u` and `s`, others where they apply."""

VARIABLES = ("inputs", "outputs", "sensor_coordinates", "query_coordinates")
"""What is described by names and units."""

SCALARS = "scalars"
"""The name of the numbers beside fields. The arrays of the first field are `u`, `x` and `mask`, those of the second
`u_2`, `x_2` and `mask_2`."""

DIMENSIONS = {
    "u": ("sensor", "input"),
    "s": ("query", "output"),
    "x": ("sensor", "sensor_axis"),
    "y": ("query", "query_axis"),
    "mask": ("sensor",),
    "index": ("query",),
}

SHARD_BYTES = 2**26
"""Approximate size of a file that `convert` writes: few files, each small enough to be written at once."""

MOST_SHARDS = 2**12
"""A store of many samples has about this many files for each array."""

INDEX_BYTES, CACHE_BYTES = 16, 2**22
"""Bytes per sample of the index of a shard, which is read again for every batch unless the cache can hold it, and of
the cache for samples that are being read."""

PROBED_ROWS = 16
"""The number of functions that are read from files without a digest."""


# ---- arrays ----------------------------------------------------------------------------------------------------------


def samples_to_arrays(samples: Samples) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays that all functions share, and those with one row for each function."""
    once: dict[str, Any] = {}
    each: dict[str, Any] = {"s": samples.s}
    if isinstance(samples.u, MultiInput) and samples.u.scalars is not None:
        each[SCALARS] = samples.u.scalars
    for end, (field, x) in zip(_endings(), samples.fields, strict=False):
        if isinstance(field, Measurements):
            each |= {f"u{end}": field.u, f"x{end}": field.x, f"mask{end}": field.mask}
        else:
            each[f"u{end}"] = field
        if x is not None:
            once[f"x{end}"] = x
    (each if isinstance(samples.y, Free) else once)["y"] = samples.y.y
    if isinstance(samples.y, Indexed):
        each["index"] = samples.y.index
    return {name: np.asarray(a) for name, a in once.items()}, {name: np.asarray(a) for name, a in each.items()}


def samples_from_arrays(once: Mapping[str, Any], each: Arrays, **about: Any) -> Samples:
    """The samples whose arrays `samples_to_arrays` returns, in single precision; `about` are arguments of `Samples`."""
    rows = {name: jnp.asarray(array) for name, array in each.items()}
    if "y" in rows:
        queries = Free(rows["y"])
    elif "index" in rows:
        queries = Indexed(once["y"], rows["index"])
    else:
        queries = Shared(once["y"])
    ends = list(itertools.takewhile(lambda end: f"u{end}" in rows, _endings()))
    fields = tuple(
        Measurements(rows[f"u{end}"], rows[f"x{end}"], rows[f"mask{end}"]) if f"mask{end}" in rows else rows[f"u{end}"]
        for end in ends
    )
    u, x = fields[0], once.get("x")
    if len(fields) > 1 or SCALARS in rows:
        u, x = MultiInput(fields, rows.get(SCALARS)), tuple(once.get(f"x{end}") for end in ends)
    return Samples(u, queries, rows["s"], x=x, **about)


def _endings() -> Iterator[str]:
    """Endings of the names of the arrays of each field: none, _2, _3, …"""
    return itertools.chain([""], (f"_{i}" for i in itertools.count(2)))


def _dimensions(name: str, indexed: bool) -> tuple[str, ...]:
    """The names of the axes of an array; axes of equal name have equal size, as xarray requires."""
    if name == SCALARS:
        return ("scalar",)
    if name == "y" and indexed:
        return ("location", "query_axis")
    letter, _, number = name.partition("_")
    return tuple(f"{axis}_{number}" if number else axis for axis in DIMENSIONS[letter])


# ---- digests ---------------------------------------------------------------------------------------------------------


def _sample_digests(each: Arrays) -> np.ndarray:
    """SHA-256 of the bytes of every sample, with its arrays in the order of their names."""
    arrays = [np.ascontiguousarray(each[name]) for name in sorted(each)]
    digests = [hashlib.sha256(b"".join(row.tobytes() for row in rows)).digest() for rows in zip(*arrays, strict=True)]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)


def _content_digest(once: Arrays, samples: np.ndarray) -> str:
    """SHA-256 of the shared arrays and the digests of all samples: independent of how the work was divided."""
    shared = "".join(array_digest(once[name]) for name in sorted(once))
    return hashlib.sha256(shared.encode() + samples.tobytes()).hexdigest()


def array_digest(*arrays: np.ndarray) -> str:
    """SHA-256 of the dtypes, shapes and bytes of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def arrays_digest(tree: PyTree) -> str:
    """SHA-256 of the types, shapes and bytes of all arrays of a tree, shortened to 32 digits."""
    return array_digest(*map(np.asarray, jax.tree.leaves(tree)))[:32]


def data_digest(data: Samples | Records) -> str:
    """What was digested and the digest: all arrays in memory, the digest of a store, or a few functions of a file."""
    match data:
        case Samples():
            return f"arrays {arrays_digest((data.u, data.y, data.s, data.x))}"
        case Store():
            return f"store {data.digest[:32]}"
        case Part():
            key = None if data.key is None else jax.random.key_data(data.key)
            text = f"{data_digest(data.whole)} {arrays_digest((data.rows, key))} {data.labels}"
            return f"part {hashlib.sha256(text.encode()).hexdigest()[:32]}"
    rows = np.unique(np.linspace(0, len(data) - 1, PROBED_ROWS).round().astype(int))
    loaded = data.load(rows)
    return f"functions {arrays_digest((loaded.u, loaded.y, loaded.s, loaded.x))}"


# ---- reading ---------------------------------------------------------------------------------------------------------


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is a store."""
    return "loca" in group_attributes(Path(path))


def group_attributes(path: Path) -> dict[str, Any]:
    """The attributes of a Zarr v3 group; empty if the path is not one."""
    try:
        return json.loads((path / "zarr.json").read_bytes()).get("attributes", {})
    except (OSError, ValueError):
        return {}


def _tensorstore_spec(path: Path) -> dict[str, Any]:
    """How tensorstore finds an array."""
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path.absolute()}/"}}


class Store(Records):
    """N pairs (u, s) in a Zarr v3 group `FILE.zarr`, read on demand.

    Use `Store.open`. Reading a damaged sample raises `CorruptDataError`.
    """

    digest: str
    """SHA-256 of the content: equal for equal samples in equal order, however the work was divided."""
    provenance: dict[str, Any]
    """The origin of the samples: problem and arguments or source file, seed, versions, citation."""

    def __init__(self, path: Path, description: dict[str, Any]):
        self.path, self.source, self.description = path, str(path), description
        self.digest, self.provenance = description["digest"], description["provenance"]
        self.domain = domain_from_json(description["domain"])
        named = (tuple(Variable(**variable) for variable in description[name]) for name in VARIABLES)
        self.inputs, self.outputs, self.sensor_coordinates, self.query_coordinates = named

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Open the store at a path; only its description is read."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist; create it with `loca generate` or `loca convert`")
        description = group_attributes(path).get("loca")
        if description is None:
            raise ValueError(f"{path} is not a store of loca; convert other files with `loca convert` first")
        if description["format"] != FORMAT:
            raise ValueError(
                f"{path} has format {description['format']}, but this version of loca reads format {FORMAT}; "
                "upgrade with `pip install --upgrade loca-jax`, or create it again"
            )
        store = cls(path, description)
        store.check_files()
        return store

    def __len__(self) -> int:
        return self.description["count"]

    @cached_property
    def once(self) -> dict[str, np.ndarray]:
        """The arrays that all samples share, as stored."""
        import zarr

        group = zarr.open_group(self.path, mode="r")
        return {name: np.asarray(group[name]) for name in self.description["shared"]}

    @cached_property
    def shared(self) -> dict[str, Array]:
        """The arrays that all samples share, in single precision."""
        return {name: jnp.asarray(array, jnp.float32) for name, array in self.once.items()}

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The arrays with one row for each sample; they are read in parallel, without Python's lock."""
        import tensorstore

        names = list(self.description["arrays"])
        index_bytes = INDEX_BYTES * len(self) * len(names)
        context = tensorstore.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES + 2 * index_bytes}})
        specs = [_tensorstore_spec(self.path / name) for name in names]
        opened = [tensorstore.open(spec, context=context, read=True) for spec in specs]
        return {name: future.result() for name, future in zip(names, opened, strict=True)}

    def read(self, numbers: Int[np.ndarray, " B"]) -> dict[str, np.ndarray]:
        """The rows of every array with these numbers, in the order given; every bit of them is checked."""
        try:
            # all reads are started before the first is awaited
            started = {name: array[numbers].read() for name, array in self.arrays.items()}
            return {name: np.asarray(future.result()) for name, future in started.items()}
        except (ValueError, OSError) as error:
            self.check_rows(numbers, error)
            raise

    def check_rows(self, numbers: Int[np.ndarray, " B"], error: Exception) -> None:
        """Raise `CorruptDataError` that names the samples that cannot be read, if there are any."""
        for name, array in self.arrays.items():
            reads = {row: array[row].read() for row in np.unique(numbers).tolist()}
            if bad := [row for row, future in reads.items() if future.exception() is not None]:
                few = ", ".join(map(str, bad[:5])) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
                raise CorruptDataError(
                    f"{self.path}: array '{name}', chunk of sample {few}: the bytes do not match their checksum; "
                    "restore the store from a copy, or delete it and create it again"
                ) from error

    def load(self, rows: Rows = slice(None)) -> Samples:
        return samples_from_arrays(
            self.shared,
            self.read(numbered_rows(rows, len(self))),
            domain=self.domain,
            **{name: getattr(self, name) for name in VARIABLES},
        )

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        s, numbers = np.asarray(s), numbered_rows(rows, len(self))
        are_shared = "y" in self.once and "index" not in self.description["arrays"]
        y = self.once["y"] if are_shared else np.asarray(self.load(numbers).y.locations(len(numbers)))
        expected = (len(numbers), y.shape[-2], len(self.outputs))
        if s.shape != expected:
            raise ValueError(f"expected values of shape (rows, queries, outputs) = {expected}, got {s.shape}")
        known = self.query_coordinates or coordinates_of(self.domain)
        return labeled(s, numbers, y, known, self.outputs).assign_attrs(source=self.source)

    def verify(self) -> None:
        """Read all samples and compare them with the digest; raise `CorruptDataError` if they differ."""
        shards = pieces(range(len(self)), self.description["shard"])
        digests = np.concatenate([_sample_digests(self.read(np.asarray(rows))) for rows in shards])
        if _content_digest(self.once, digests) != self.digest:
            raise CorruptDataError(f"{self.path}: the samples do not match their digest; restore the store from a copy")

    def check_files(self) -> None:
        """Raise unless all shards exist; Zarr itself reads a missing shard as fill values."""
        for name, (_, *shape) in self.description["arrays"].items():
            for i, rows in enumerate(pieces(range(len(self)), self.description["shard"])):
                file = self.path.joinpath(name, "c", str(i), *("0" for _ in shape))
                if not file.exists():
                    raise CorruptDataError(f"{file} is missing, with the samples from {rows.start} on; restore it")


def labeled(
    s: Float[np.ndarray, "B P d_s"],
    numbers: Int[np.ndarray, " B"],
    y: Float[np.ndarray, "P d_y"] | Float[np.ndarray, "B P d_y"],
    coordinates: Sequence[Variable],
    outputs: Sequence[Variable],
) -> xarray.Dataset:
    """Output functions along `sample`, and along the axes of the grid of shared queries or, without one, `query`."""
    import xarray

    axes = grid_axes(y) if y.ndim == 2 else None
    if axes is not None:
        dims, shape = tuple(each.name for each in coordinates), tuple(map(len, axes))
        places = {each.name: (each.name, axis, each.attributes) for each, axis in zip(coordinates, axes, strict=True)}
    else:
        dims, shape = ("query",), s.shape[1:2]
        along = dims if y.ndim == 2 else ("sample", *dims)
        places = {each.name: (along, y[..., i], each.attributes) for i, each in enumerate(coordinates)}
    values = s.reshape(len(s), *shape, len(outputs))
    fields = {each.name: (("sample", *dims), values[..., i], each.attributes) for i, each in enumerate(outputs)}
    return xarray.Dataset(fields, {"sample": numbers, **places})


# ---- writing ---------------------------------------------------------------------------------------------------------


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
    - `path`: `FILE.zarr`, which appears only when it is complete; until then `FILE.zarr.partial` holds finished shards.
    - `rows`: the rows to write; all unless given.
    - `progress`: called with the number of completed samples and their total number.
    """
    numbers = numbered_rows(rows, len(records))
    if not len(numbers):
        raise ValueError(f"no rows of {records.source} were selected; it has {len(records)}")
    if not records.outputs:
        raise ValueError(f"{records.source} has no outputs, and a store holds pairs; open it with outputs=")
    ends = records.load(numbers[[0, -1]])
    _, each = samples_to_arrays(ends)
    provenance = {
        "source": records.source,
        "rows": f"{len(numbers)} of {len(records)}, sha256 {array_digest(numbers)}",
        "first and last": _content_digest({}, _sample_digests(each)),  # sources of equal name may differ in content
        "versions": versions(),
    }
    return write_store(
        path,
        ends,
        len(numbers),
        lambda chosen: samples_to_arrays(records.load(numbers[chosen.start : chosen.stop]))[1],
        provenance=provenance,
        block=max(1, 2 * SHARD_BYTES // sum(array.nbytes for array in each.values())),
        progress=progress,
    )


def write_store(
    path: str | os.PathLike[str],
    example: Samples,
    count: int,
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
    - `example`: some samples; the store has their domain, names, and shared arrays.
    - `count`: N, the number of samples.
    - `read`: returns the arrays of some samples as `samples_to_arrays` does; a pure function of their numbers.
    - `provenance`: the origin of the samples, in a form that JSON can hold.
    - `block`: number of samples in a piece of work and in a file.
    - `workers`, `executor`: see `run_tasks`.
    - `progress`: called with the number of completed samples and their total number.
    """
    import zarr

    block = min(max(block, count // MOST_SHARDS), count)
    shards = pieces(range(count), block)
    once, each = samples_to_arrays(example)
    request = {
        "provenance": provenance,
        "format": FORMAT,
        "count": count,
        "domain": example.domain.to_json(),
        **{name: [variable._asdict() for variable in getattr(example, name)] for name in VARIABLES},
        "arrays": {name: [array.dtype.str, *array.shape[1:]] for name, array in sorted(each.items())},
        "shared": {name: array_digest(array) for name, array in sorted(once.items())},
        "shard": block,
    }

    def build(work: Resumable) -> Path:
        if "arrays" not in work:
            _create_arrays(work, once)
        write = functools.partial(_write_shard, read, work)
        missing = [rows for rows in shards if str(rows.start) not in work]
        done = count - sum(map(len, missing))
        for rows in itertools.chain([range(0)], run_tasks(write, missing, workers=workers, executor=executor)):
            done += len(rows)
            if progress is not None:
                progress(done, count)
        digests = np.concatenate([np.load(work.path(str(rows.start))) for rows in shards])
        data, description = work.path(DATA), {**work.request, "digest": _content_digest(once, digests)}
        zarr.open_group(data, mode="r+").attrs.put({"loca": description})
        finish_group(data)
        return data

    path = Path(path)
    create(path, request, lambda path: group_attributes(path).get("loca", {}), build, ignore=("digest", "versions"))
    return Store.open(path)


DATA = "data.zarr"
"""The key of the store while it is written."""


def _create_arrays(work: Resumable, once: Arrays) -> None:
    """Create the empty arrays, and write those that all samples share."""
    import zarr
    from zarr.codecs import Crc32cCodec

    group, each = zarr.create_group(work.path(DATA), overwrite=True), work.request["arrays"]
    options = {"compressors": Crc32cCodec(), "config": {"write_empty_chunks": True}}
    for name, (dtype, *shape) in each.items():
        group.create_array(
            name,
            shape=(work.request["count"], *shape),
            dtype=np.dtype(dtype),
            chunks=(1, *shape),
            shards=(work.request["shard"], *shape),
            dimension_names=("sample", *_dimensions(name, "index" in each)),
            **options,
        )
    for name, array in once.items():
        names = _dimensions(name, "index" in each)
        group.create_array(name, data=array, chunks=array.shape, dimension_names=names, **options)
    work.write("arrays")


def _write_shard(read: Callable[[range], Arrays], work: Resumable, rows: range) -> None:
    """Compute the samples of a shard and write them, and then their digests, which say that it is on the disk."""
    arrays = read(rows)
    for name, values in arrays.items():
        write_rows(work.path(DATA) / name, rows, values)
    digests = _sample_digests(arrays)
    work.write(str(rows.start), lambda file: np.save(file, digests))


def write_rows(path: Path, rows: range, values: np.ndarray) -> None:
    """Write the rows of one shard of an array atomically, and wait until they are on the disk."""
    import tensorstore

    spec = {**_tensorstore_spec(path), "store_data_equal_to_fill_value": True}
    array = tensorstore.open(spec, write=True).result()
    array[rows.start : rows.stop].write(values).result()


def finish_group(path: Path) -> None:
    """Remove what killed processes left in a Zarr group, and write the metadata of all its arrays to one file."""
    import zarr

    for leftover in [*path.rglob("*.partial"), *path.rglob("*.__lock")]:
        leftover.unlink()
    with warnings.catch_warnings():  # not part of the Zarr v3 standard yet, but xarray warns without it
        warnings.filterwarnings("ignore", "Consolidated metadata")
        zarr.consolidate_metadata(path)
