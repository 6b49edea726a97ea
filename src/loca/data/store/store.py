"""Our own format: a Zarr v3 group with one chunk per sample, a checksum on every chunk, and its own description."""

from __future__ import annotations

import json
import math
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data.normalization import Normalization
from loca.data.records import Records, Rows
from loca.data.samples import Samples, Variable, grid_shape
from loca.data.store.layout import FORMAT, content_digest, domain_from_json, put_together, sample_digests
from loca.data.store.moments import Statistics
from loca.data.store.reading import RowReader
from loca.domains import Sphere
from loca.durable import CorruptDataError

if TYPE_CHECKING:
    import xarray

VERIFIED_AT_ONCE = 1000
"""Samples held in memory while all are checked."""


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is a store of ours."""
    return "loca" in group_attributes(Path(path))


def group_attributes(path: Path) -> dict[str, Any]:
    """The attributes of a Zarr v3 group; empty if there is none."""
    try:
        return json.loads((path / "zarr.json").read_bytes()).get("attributes", {})
    except (OSError, ValueError):
        return {}


class Store(Records):
    """N pairs (u, s) in a Zarr v3 group `FILE.zarr`, read when they are asked for.

    Use `Store.open`. A sample whose stored bits have changed is refused with `CorruptDataError`.
    """

    def __init__(self, path: Path, description: dict[str, Any]):
        self.path = path
        self.source = str(path)
        self.description = description
        self.domain = domain_from_json(description["domain"])
        self.inputs = tuple(Variable(**variable) for variable in description["inputs"])
        self.outputs = tuple(Variable(**variable) for variable in description["outputs"])

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """The store at a path; reads its description only."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}; make it with `loca generate` or `loca convert`")
        description = group_attributes(path).get("loca")
        if description is None:
            raise ValueError(f"{path} is not a store of loca; convert other files with `loca convert` first")
        if description["format"] > FORMAT:
            raise ValueError(
                f"{path} has format {description['format']}, this version of loca reads up to {FORMAT}; "
                "upgrade with `pip install --upgrade loca-jax`"
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
        """SHA-256 of the content: equal for equal samples in equal order, however they were computed."""
        return self.description["digest"]

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the samples come from: the problem and its arguments or the source file, seed, versions, citation."""
        return self.description["provenance"]

    @cached_property
    def statistics(self) -> dict[str, Statistics]:
        """Count, mean, standard deviation, minimum and maximum of every channel of `u` and of `s`."""
        return {name: Statistics.from_json(lists) for name, lists in self.description["statistics"].items()}

    def normalization(self) -> Normalization:
        """What `Normalization.fit` would find in all samples, without reading them."""
        shifts_and_scales = (shift_and_scale(self.statistics[name]) for name in ("u", "s"))
        return Normalization(*(part for pair in shifts_and_scales for part in pair))

    @cached_property
    def once(self) -> dict[str, np.ndarray]:
        """The arrays that all samples share, as they are stored."""
        import zarr

        group = zarr.open_group(self.path, mode="r")
        return {name: np.asarray(group[name]) for name in self.description["shared"]}

    @cached_property
    def shared(self) -> dict[str, Array]:
        """The arrays that all samples share, as models use them."""
        return {name: jnp.asarray(array, jnp.float32) for name, array in self.once.items()}

    @cached_property
    def reader(self) -> RowReader:
        """What reads the arrays with a row for each sample."""
        return RowReader(self.path, list(self.description["arrays"]), len(self))

    def load(self, rows: Rows = slice(None)) -> Samples:
        arrays = self.reader(self.numbers(rows))
        return put_together(self.shared, arrays, domain=self.domain, inputs=self.inputs, outputs=self.outputs)

    def numbers(self, rows: Rows) -> np.ndarray:
        """The samples' numbers, counted from the end if negative."""
        numbers = np.arange(len(self))
        return numbers[rows if isinstance(rows, slice) else np.asarray(rows)]

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        import xarray

        s, numbers = np.asarray(s), self.numbers(rows)
        if len(s) != len(numbers) or s.shape[-1] != len(self.outputs):
            raise ValueError(
                f"s has {len(s)} functions of {s.shape[-1]} channels, but {len(numbers)} rows of "
                f"{len(self.outputs)} channels were asked for; pass one function per row"
            )
        dimensions, shape, coordinates = self.query_coordinates(numbers, s.shape[1])
        values = s.reshape(len(s), *shape, len(self.outputs))
        fields = {
            variable.name: (("sample", *dimensions), values[..., i], {"units": variable.unit} if variable.unit else {})
            for i, variable in enumerate(self.outputs)
        }
        return xarray.Dataset(fields, {"sample": numbers, **coordinates}, {"source": self.source})

    def query_coordinates(
        self, numbers: np.ndarray, count: int
    ) -> tuple[tuple[str, ...], tuple[int, ...], dict[str, Any]]:
        """Names, lengths and coordinates of the axes of output functions: those of a grid if the queries form one."""
        sphere = isinstance(self.domain, Sphere)
        names = ("latitude", "longitude") if sphere else tuple(f"y{i + 1}" for i in range(self.domain.dimension))
        units = ({"units": "degrees_north"}, {"units": "degrees_east"}) if sphere else ({},) * len(names)
        if "y" in self.once and "index" not in self.description["arrays"]:
            y, own = self.once["y"], ()
            shape = grid_shape(self.shared["y"])
            if shape is not None and math.prod(shape) == count:
                points = y.reshape(*shape, -1)
                axes = [np.moveaxis(points[..., i], i, 0).reshape(n, -1)[:, 0] for i, n in enumerate(shape)]
                return names, shape, {n: (n, a, u) for n, a, u in zip(names, axes, units, strict=True)}
        else:
            y, own = np.asarray(self.load(numbers).y.locations(len(numbers))), ("sample",)
        if y.shape[-2] != count:
            raise ValueError(f"s has {count} values per function, but the data has {y.shape[-2]} queries")
        return ("query",), (count,), {n: ((*own, "query"), y[..., i], units[i]) for i, n in enumerate(names)}

    def verify(self) -> None:
        """Read everything and compare it with the digest; raise `CorruptDataError` unless it is what was written."""
        parts = (range(i, min(i + VERIFIED_AT_ONCE, len(self))) for i in range(0, len(self), VERIFIED_AT_ONCE))
        digests = np.concatenate([sample_digests(self.reader(np.asarray(part))) for part in parts])
        if content_digest(self.once, digests) != self.digest:
            raise CorruptDataError(f"{self.path}: the samples are not those that were written; restore it from a copy")

    def check_files(self) -> None:
        """Raise unless all shards are there; Zarr itself takes a missing one for one full of nothing."""
        shards = -(-len(self) // self.description["shard"])
        for name, (_, *shape) in self.description["arrays"].items():
            for i in range(shards):
                file = self.path.joinpath(name, "c", str(i), *("0" for _ in shape))
                if not file.exists():
                    raise CorruptDataError(
                        f"{file} is missing, with samples from {i * self.description['shard']} on; restore it from a "
                        "copy, or delete the store and make it again"
                    )


def shift_and_scale(statistics: Statistics) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """Mean and standard deviation; 1 for a channel that never varies, whose deviation is round-off."""
    negligible = statistics.std <= 10.0 * np.finfo(np.float32).eps * np.abs(statistics.mean)
    return (
        jnp.asarray(statistics.mean, jnp.float32),
        jnp.asarray(np.where(negligible, 1.0, statistics.std), jnp.float32),
    )
