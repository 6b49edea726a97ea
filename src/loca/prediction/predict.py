"""Predictions as labeled data sets: in memory, or written to a Zarr file tile by tile, which resumes if interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Float

from loca.data import Records, Samples, Shared, Store, array_digest, group_attributes, versions
from loca.domains import warn_outside
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
from loca.models import LEVEL, Adaptation, Operator, Uncertain
from loca.prediction.grid import QueryGrid, QueryPoints, TileValues, own_queries
from loca.prediction.tiles import OwnQueryTiles, SharedQueryTiles, Tiles
from loca.saving import Arrays, describe
from loca.uncertainty import Calibrated, warn_unfamiliar

if TYPE_CHECKING:
    import xarray


DESCRIPTION = "loca_prediction"
"""The attribute that describes a prediction, as JSON text: NetCDF, to which users copy it, has no nested attributes."""


class PartialPrediction:
    """A Zarr group whose chunks are tiles, and an empty file `marks/TILE` for every tile that is on the disk.

    **Arguments:**

    - `path`: the path of the complete prediction.
    - `request`: a description of the prediction, as JSON values.
    """

    def __init__(self, path: Path, request: dict[str, Any]):
        self.path = path
        self.request = json.loads(json.dumps(request))
        self.directory = path.with_name(path.name + ".partial")
        self.data, self.marks = self.directory / "data", self.directory / "marks"

    def check_existing(self) -> None:
        """Raise unless the prediction that already exists is the requested one."""
        description = group_attributes(self.path).get(DESCRIPTION)
        if description is None:
            raise FileExistsError(
                f"{self.path} already exists and is not a prediction of loca; choose another name, or delete it first"
            )
        if difference := differences(without_versions(json.loads(description)), without_versions(self.request)):
            raise FileExistsError(
                f"{self.path} already exists and holds another prediction ({difference}); "
                "choose another name, or delete it first"
            )

    def begin(self, tiles: Tiles) -> None:
        """Write coordinates and empty arrays, or check that the prediction to resume is the requested one."""
        if not is_started(self.directory, self.request):
            self.marks.mkdir(exist_ok=True)
            self.create(tiles)
            write_request(self.directory, self.request)
        for leftover in self.marks.glob(".*"):  # of a killed process
            leftover.unlink()

    def create(self, tiles: Tiles) -> None:
        """Create the group with everything but the tiles."""
        import zarr
        from zarr.codecs import Crc32cCodec

        coordinates = tiles.complete_coordinates()
        coordinates.attrs = {DESCRIPTION: json.dumps(self.request), **coordinates.attrs}
        coordinates.to_zarr(self.data, mode="w", zarr_format=3, consolidated=False)
        group = zarr.open_group(self.data, mode="r+")
        for name, array in tiles.arrays.items():
            group.create_array(
                name,
                shape=array.shape,
                dtype=array.dtype,
                chunks=array.chunks,
                compressors=Crc32cCodec(),
                fill_value=float("nan") if array.dtype.startswith("float") else 0,
                dimension_names=array.dims,
                attributes=array.attributes,
            )

    def done(self) -> set[str]:
        """The names of the tiles that are on the disk."""
        return {mark.name for mark in self.marks.iterdir()}

    def write(self, name: str, values: TileValues) -> None:
        """Write a tile, and mark it once it is on the disk."""
        import zarr

        for array_name, (region, part) in values.items():
            with zarr.config.set({"array.write_empty_chunks": True}):  # a tile may contain nothing but NaN
                array = zarr.open_array(self.data / array_name, mode="r+")
            array[region] = part
            places = (str(along.start // side) for along, side in zip(region, array.chunks, strict=True))
            sync(self.data.joinpath(array_name, "c", *places))
        write_atomically(self.marks / name, lambda file: None)

    def finish(self) -> None:
        """Give the complete prediction its name, and remove everything else."""
        import zarr

        for leftover in self.data.rglob("*.partial"):  # of a killed process
            leftover.unlink()
        with warnings.catch_warnings():  # not yet part of the Zarr v3 standard, but without it xarray warns its users
            warnings.filterwarnings("ignore", "Consolidated metadata")
            zarr.consolidate_metadata(self.data)
        sync_tree(self.data)
        self.data.rename(self.path)
        sync(self.path.parent)
        self.remove()

    def remove(self) -> None:
        """Remove the directory of the unfinished prediction."""
        shutil.rmtree(self.directory, ignore_errors=True)


FORMAT = 1
"""Version of a request, to be raised when tiles of an older version must not be mixed with newer ones."""


AT_ONCE = 100
"""Input functions that are read at once for their p-values."""


def predict_to(
    model: Operator,
    data: Records,
    path: str | os.PathLike[str],
    *,
    queries: QueryGrid | QueryPoints | None = None,
    progress: Callable[[int, int], object] | None = None,
    regrid: bool = False,
    level: float = LEVEL,
) -> xarray.Dataset:
    """Write F(uᵢ) for all input functions to `FILE.zarr`, and open it without reading the values.

    The file is a Zarr v3 group that xarray opens, with the names, units and coordinates of the data and a checksum for
    every chunk. It appears only when it is complete; until then `FILE.zarr.partial` holds the finished tiles. If the
    process is killed, the same call resumes there, and the file is the same, byte for byte, as without interruption.

    Memory depends neither on the number of functions nor on the size of a query grid; at least one function of the
    data is read at a time. A model whose nodes are its queries is refused if there are too many of them.

    **Arguments:**

    - `model`: the operator.
    - `data`: the input functions, in files.
    - `path`: `FILE.zarr`.
    - `queries`: where to predict, such as `QueryGrid.even(domain, (721, 1440))`; by default where the data has labels
      or, if it has none, where the training data of the model had them.
    - `progress`: called with the number of finished tiles and the number of all tiles.
    - `regrid`: whether to interpolate inputs at other sensors to those of the model; see `loca.models.adapt`.
    - `level`: of the bands of a model that knows its error. For such a model the file also holds `NAME_std`,
      `NAME_lower` and `NAME_upper` for every output; if it is calibrated, `in_distribution`, the p-value of each input.
    """
    path = Path(path)
    tiles, description = prepare(model, data, queries, regrid, level)
    partial = PartialPrediction(path, {**tiles.description(), "provenance": description})
    if path.exists() and not partial.directory.exists():
        partial.check_existing()
        return opened(path)
    with lock(partial.directory):
        if path.exists():  # interrupted after the prediction was complete but before the partial one was removed
            partial.check_existing()
            partial.remove()
            return opened(path)
        partial.begin(tiles)
        done, total = partial.done(), len(tiles.names)
        report = progress or (lambda done, total: None)
        report(len(done), total)
        for count, (name, values) in enumerate(tiles.compute(done), len(done) + 1):
            partial.write(name, values)
            report(count, total)
        partial.finish()
    return opened(path)


def predict_dataset(
    model: Operator,
    data: Records,
    *,
    queries: QueryGrid | QueryPoints | None = None,
    regrid: bool = False,
    level: float = LEVEL,
) -> xarray.Dataset:
    """F(uᵢ) for all input functions, in memory, with the names, units and coordinates of the data.

    It is computed in the same tiles as the file of `predict_to`.

    **Arguments:**

    - `model`: the operator.
    - `data`: the input functions, in files.
    - `queries`, `regrid`, `level`: as in `predict_to`.
    """
    tiles, _ = prepare(model, data, queries, regrid, level)
    arrays = {name: np.full(array.shape, np.nan, array.dtype) for name, array in tiles.arrays.items()}
    for _, values in tiles.compute(()):
        for name, (region, part) in values.items():
            arrays[name][region] = part
    variables = {
        name: (array.dims, arrays[name], {k: v for k, v in array.attributes.items() if k != "coordinates"})
        for name, array in tiles.arrays.items()
    }
    return tiles.complete_coordinates().assign(variables).set_coords(list(tiles.moving))


def prepare(
    model: Operator, data: Records, queries: QueryGrid | QueryPoints | None, regrid: bool, level: float
) -> tuple[Tiles, dict[str, Any]]:
    """The tiles of a prediction, and what it depends on."""
    if len(data) == 0:
        raise ValueError("this data has no functions; pass at least one")
    adaptation = Adaptation.of(model, data, regrid=regrid)
    data = adaptation.apply(data)
    if queries is None and adaptation.is_unsolved:
        queries = own_queries(model)
    elif queries is not None and model.signature is not None:
        warn_outside(model.signature.domain, queries.corners(), model.signature.query_coordinate_names)
    first = data.load([0])
    bands = level if isinstance(model, Uncertain) else None
    if queries is None and not isinstance(first.y, Shared):
        tiles = OwnQueryTiles(model, data, first, bands)
    else:
        tiles = SharedQueryTiles(model, data, first, queries, bands)
    if isinstance(model, Calibrated):
        tiles.p_values = input_p_values(model, data)
        warn_unfamiliar(tiles.p_values)
    return tiles, provenance(model, data, first, queries)


def input_p_values(model: Calibrated, data: Records) -> Float[np.ndarray, " N"]:
    """The p-value of every input function, see `loca.uncertainty.Familiarity`."""
    rows = (slice(start, min(start + AT_ONCE, len(data))) for start in range(0, len(data), AT_ONCE))
    return np.concatenate([np.asarray(model.in_distribution(data.load(each).u)) for each in rows])


def opened(path: Path) -> xarray.Dataset:
    """A prediction whose values stay in the file."""
    import xarray

    return xarray.open_zarr(path, chunks=None)


def provenance(
    model: Operator, data: Records, first: Samples, queries: QueryGrid | QueryPoints | None
) -> dict[str, Any]:
    """What a prediction depends on; if any of it differs, so may the prediction."""
    return {
        "format": FORMAT,
        "model": model_digest(model),
        "data": data.digest if isinstance(data, Store) else ends_digest(first, data.load([len(data) - 1])),
        "functions": len(data),
        "queries": None if queries is None else queries.digests(),
        "versions": versions(),
    }


def model_digest(model: Operator) -> str:
    """SHA-256 of the structure and the arrays of a model, without its signature: no prediction depends on that."""
    arrays: Arrays = {}
    structure = describe(model, "", arrays)
    structure["fields"].pop("signature", None)
    digest = hashlib.sha256(json.dumps(structure, sort_keys=True).encode())
    for place in sorted(arrays):
        if not place.startswith("signature."):
            digest.update(array_digest(np.asarray(arrays[place])).encode())
    return digest.hexdigest()


def ends_digest(first: Samples, last: Samples) -> str:
    """SHA-256 of the first and the last function; a digest of all functions would have to read all of them."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves(((first.u, first.y), (last.u, last.y))):
        digest.update(array_digest(np.asarray(array)).encode())
    return digest.hexdigest()
