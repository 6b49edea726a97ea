"""A store: a Zarr v3 group with one chunk per sample, a checksum on every chunk, and a description of its content."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.data.grids import grid_axes
from loca.data.normalization import Normalization
from loca.data.records import Records, Rows, pieces
from loca.data.samples import Samples, Variable
from loca.data.store.schema import FORMAT, Statistics, content_digest, sample_digests, samples_from_arrays
from loca.domains import domain_from_json
from loca.durable import CorruptDataError

if TYPE_CHECKING:
    import xarray


INDEX_BYTES = 16
"""Bytes per sample of a shard's index; it is read again for every batch unless the cache can hold it."""

CACHE_BYTES = 2**22
"""Additional cache, for samples that are being read."""


def with_tensorstore() -> bool:
    """Whether tensorstore is installed."""
    return importlib.util.find_spec("tensorstore") is not None


Read = Callable[[Int[np.ndarray, " B"]], Callable[[], np.ndarray]]
"""Starts to read rows of an array, and returns a function that waits for them."""


def open_with_tensorstore(path: Path, names: Sequence[str], count: int) -> dict[str, Read]:
    """Arrays that are read in parallel, without Python's lock."""
    import tensorstore

    index_bytes = INDEX_BYTES * count * len(names)
    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": CACHE_BYTES + 2 * index_bytes}})
    opened = [tensorstore.open(tensorstore_spec(path / name), context=context, read=True) for name in names]
    arrays = {name: future.result() for name, future in zip(names, opened, strict=True)}
    return {name: lambda rows, array=array: array[rows].read().result for name, array in arrays.items()}


def tensorstore_spec(path: Path) -> dict[str, Any]:
    """How tensorstore finds an array."""
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path.absolute()}/"}}


def open_with_zarr(path: Path, names: Sequence[str]) -> dict[str, Read]:
    """Arrays that are read without optional dependencies."""
    import zarr

    arrays: dict[str, Any] = {name: zarr.open_array(path / name, mode="r") for name in names}
    return {name: lambda rows, array=array: lambda: array.oindex[rows] for name, array in arrays.items()}


def write_rows(path: Path, rows: range, values: np.ndarray) -> None:
    """Write the rows of one shard of an array; both libraries do so atomically."""
    if with_tensorstore():
        import tensorstore

        spec = {**tensorstore_spec(path), "store_data_equal_to_fill_value": True}
        opened = tensorstore.open(spec, write=True).result()
        opened[rows.start : rows.stop].write(values).result()
    else:  # the same, more slowly
        import zarr

        with zarr.config.set({"array.write_empty_chunks": True}):  # `config=` is for new arrays only
            array = zarr.open_array(path, mode="r+")
        array[rows.start : rows.stop] = values


VERIFIED_AT_ONCE = 1000
"""Number of samples held in memory during verification."""


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is a store."""
    return "loca" in group_attributes(Path(path))


def group_attributes(path: Path) -> dict[str, Any]:
    """The attributes of a Zarr v3 group; empty if the path is not one."""
    try:
        return json.loads((path / "zarr.json").read_bytes()).get("attributes", {})
    except (OSError, ValueError):
        return {}


class Store(Records):
    """N pairs (u, s) in a Zarr v3 group `FILE.zarr`, read on demand.

    Use `Store.open`. Reading a damaged sample raises `CorruptDataError`.
    """

    def __init__(self, path: Path, description: dict[str, Any]):
        self.path = path
        self.source = str(path)
        self.description = description
        self.domain = domain_from_json(description["domain"])
        self.inputs = tuple(Variable(**variable) for variable in description["inputs"])
        self.outputs = tuple(Variable(**variable) for variable in description["outputs"])
        self.sensor_coordinates = tuple(Variable(**variable) for variable in description["sensor_coordinates"])
        self.query_coordinates = tuple(Variable(**variable) for variable in description["query_coordinates"])

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

    def __repr__(self) -> str:
        return f"Store({self.source!r}, {len(self)} samples)"

    @property
    def digest(self) -> str:
        """SHA-256 of the content: equal for equal samples in equal order, however the work was divided."""
        return self.description["digest"]

    @property
    def provenance(self) -> dict[str, Any]:
        """The origin of the samples: problem and arguments or source file, seed, versions, citation."""
        return self.description["provenance"]

    @cached_property
    def statistics(self) -> dict[str, Statistics]:
        """Count, mean, standard deviation, minimum and maximum of every channel of `u` and of `s`."""
        return {name: Statistics.from_json(lists) for name, lists in self.description["statistics"].items()}

    def normalization(self) -> Normalization:
        """The normalization that `Normalization.fit` finds for all samples, without reading them."""
        (u_shift, u_scale), (s_shift, s_scale) = (self.statistics[name].shift_and_scale() for name in ("u", "s"))
        return Normalization(u_shift, u_scale, s_shift, s_scale)

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
    def arrays(self) -> dict[str, Read]:
        """What reads the arrays with one row for each sample."""
        names = list(self.description["arrays"])
        if with_tensorstore():
            return open_with_tensorstore(self.path, names, len(self))
        return open_with_zarr(self.path, names)

    def read(self, numbers: Int[np.ndarray, " B"]) -> dict[str, np.ndarray]:
        """The rows of every array with these numbers, in the order given; every bit of them is checked."""
        try:
            # all reads are started before the first is awaited
            started = {name: read(numbers) for name, read in self.arrays.items()}
            return {name: np.asarray(result()) for name, result in started.items()}
        except (ValueError, OSError) as error:
            self.check_rows(numbers, error)
            raise

    def check_rows(self, numbers: Int[np.ndarray, " B"], error: Exception) -> None:
        """Raise `CorruptDataError` that names the samples that cannot be read, if there are any."""

        def is_readable(read: Read, row: int) -> bool:
            try:
                read(np.array([row]))()
            except (ValueError, OSError):
                return False
            return True

        for name, read in self.arrays.items():
            bad = [row for row in np.unique(numbers).tolist() if not is_readable(read, row)]
            if bad:
                few = ", ".join(map(str, bad[:5])) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
                raise CorruptDataError(
                    f"{self.path}: array '{name}', chunk of sample {few}: the bytes do not match their checksum. "
                    "The file was damaged after it was written; restore it from a copy, or delete it and create it "
                    "again with `loca generate` or `loca convert`"
                ) from error

    def load(self, rows: Rows = slice(None)) -> Samples:
        return samples_from_arrays(
            self.shared,
            self.read(self.numbers(rows)),
            domain=self.domain,
            inputs=self.inputs,
            outputs=self.outputs,
            sensor_coordinates=self.sensor_coordinates,
            query_coordinates=self.query_coordinates,
        )

    def numbers(self, rows: Rows) -> np.ndarray:
        """The numbers of the samples; negative rows count from the end."""
        numbers = np.arange(len(self))
        return numbers[rows if isinstance(rows, slice) else np.asarray(rows)]

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        import xarray

        s, numbers = np.asarray(s), self.numbers(rows)
        if len(s) != len(numbers) or s.shape[-1] != len(self.outputs):
            raise ValueError(
                f"s has {len(s)} functions of {s.shape[-1]} channels, but {len(numbers)} rows of "
                f"{len(self.outputs)} channels were expected; pass one function per row"
            )
        dimensions, shape, coordinates = self.label_coordinates(numbers, s.shape[1])
        values = s.reshape(len(s), *shape, len(self.outputs))
        fields = {
            variable.name: (("sample", *dimensions), values[..., i], variable.attributes)
            for i, variable in enumerate(self.outputs)
        }
        return xarray.Dataset(fields, {"sample": numbers, **coordinates}, {"source": self.source})

    def label_coordinates(
        self, numbers: np.ndarray, count: int
    ) -> tuple[tuple[str, ...], tuple[int, ...], dict[str, Any]]:
        """Names, sizes and coordinates of the axes of output functions: those of a grid if the queries form one."""
        known = map(Variable, self.domain.coordinate_names, self.domain.coordinate_units)
        known = self.query_coordinates or tuple(known)
        names, units = tuple(each.name for each in known), tuple(each.attributes for each in known)
        if "y" in self.once and "index" not in self.description["arrays"]:
            y, own = self.once["y"], ()
            axes = grid_axes(y)
            if axes is not None and len(y) == count:
                shape = tuple(map(len, axes))
                return names, shape, {n: (n, a, u) for n, a, u in zip(names, axes, units, strict=True)}
        else:
            y, own = np.asarray(self.load(numbers).y.locations(len(numbers))), ("sample",)
        if y.shape[-2] != count:
            raise ValueError(f"s has {count} values per function, but the data has {y.shape[-2]} queries")
        return ("query",), (count,), {n: ((*own, "query"), y[..., i], units[i]) for i, n in enumerate(names)}

    def verify(self) -> None:
        """Read all samples and compare them with the digest; raise `CorruptDataError` if they differ."""
        parts = pieces(range(len(self)), VERIFIED_AT_ONCE)
        digests = np.concatenate([sample_digests(self.read(np.asarray(part))) for part in parts])
        if content_digest(self.once, digests) != self.digest:
            raise CorruptDataError(f"{self.path}: the samples do not match their digest; restore the store from a copy")

    def check_files(self) -> None:
        """Raise unless all shards exist; Zarr itself reads a missing shard as fill values."""
        shards = -(-len(self) // self.description["shard"])
        for name, (_, *shape) in self.description["arrays"].items():
            for i in range(shards):
                file = self.path.joinpath(name, "c", str(i), *("0" for _ in shape))
                if not file.exists():
                    raise CorruptDataError(
                        f"{file} is missing, with the samples from {i * self.description['shard']} on; restore it from "
                        "a copy, or delete the store and create it again"
                    )
