"""Predictions as labeled data sets: in memory, or written to a Zarr file tile by tile, which resumes if interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loca.data import (
    Records,
    Samples,
    Shared,
    Store,
    arrays_digest,
    coordinates_of,
    finish_group,
    group_attributes,
    versions,
)
from loca.domains import warn_outside
from loca.durable import Resumable, create, sync
from loca.models import LEVEL, Adaptation, Operator, Uncertain
from loca.prediction.queries import QueryGrid, QueryPoints, arranged
from loca.prediction.tiles import (
    LIST,
    P_VALUE,
    InMemory,
    Labels,
    OwnQueryTiles,
    SharedQueryTiles,
    StoredArray,
    Tiles,
    TileValues,
)
from loca.saving import Arrays, describe, digest_of
from loca.uncertainty import warn_unfamiliar

if TYPE_CHECKING:
    import xarray


DESCRIPTION = "loca_prediction"
"""The attribute that describes a prediction, as JSON text: NetCDF, to which users copy it, has no nested attributes."""

FORMAT = 1  # version of a request, to be raised when tiles of an older version must not be mixed with newer ones


def predict_to(
    model: Operator,
    data: Samples | Records,
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
    - `data`: the input functions, in memory or in files.
    - `path`: `FILE.zarr`.
    - `queries`: where to predict, such as `QueryGrid.even(domain, (721, 1440))`; by default where the data has labels
      or, if it has none, where the training data of the model had them.
    - `progress`: called with the number of finished tiles and the number of all tiles.
    - `regrid`: whether to interpolate inputs at other sensors to those of the model; see `loca.models.adapt`.
    - `level`: of the bands of a model that knows its error. For such a model the file also holds `NAME_std`,
      `NAME_lower` and `NAME_upper` for every output; if it is calibrated, `in_distribution`, the p-value of each input.
    """
    import xarray

    tiles, provenance = prepare(model, data, queries, regrid, level)
    request = {"provenance": provenance, **{name: array._asdict() for name, array in tiles.arrays.items()}}

    def build(work: Resumable) -> Path:
        group = work.directory / "data"
        if "arrays" not in work:
            create_arrays(group, tiles.coordinates(), tiles.arrays, request)
            work.write("arrays")
        done, total = len(work.keys()) - 1, sum(1 for _ in tiles)
        report = progress or (lambda done, total: None)
        report(done, total)
        for name, compute in tiles:
            if name not in work:
                write_tile(group, compute())
                work.write(name)
                done += 1
                report(done, total)
        finish_group(group)
        return group

    def read_request(path: Path) -> dict[str, Any]:
        return json.loads(group_attributes(path).get(DESCRIPTION, "{}"))

    create(Path(path), request, read_request, build, ignore=["versions"])
    found = xarray.open_zarr(path, chunks=None)
    if P_VALUE in tiles.arrays:
        warn_unfamiliar(found[P_VALUE].to_numpy())
    return found


def create_arrays(
    path: Path, coordinates: xarray.Dataset, arrays: Mapping[str, StoredArray], request: dict[str, Any]
) -> None:
    """Create a Zarr group with everything but the tiles."""
    import zarr
    from zarr.codecs import Crc32cCodec

    coordinates.attrs = {DESCRIPTION: json.dumps(request), **coordinates.attrs}
    coordinates.to_zarr(path, mode="w", zarr_format=3, consolidated=False)
    group = zarr.open_group(path, mode="r+")
    for name, array in arrays.items():
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


def write_tile(path: Path, values: TileValues) -> None:
    """Write a tile, whose regions are chunks, and wait until it is on the disk."""
    import zarr

    for array_name, (region, part) in values.items():
        with zarr.config.set({"array.write_empty_chunks": True}):  # a tile may contain nothing but NaN
            array = zarr.open_array(path / array_name, mode="r+")
        array[region] = part
        places = (str((along.start or 0) // side) for along, side in zip(region, array.chunks, strict=True))
        sync(path.joinpath(array_name, "c", *places))


def predict_dataset(
    model: Operator,
    data: Samples | Records,
    *,
    queries: QueryGrid | QueryPoints | None = None,
    regrid: bool = False,
    level: float = LEVEL,
) -> xarray.Dataset:
    """F(uᵢ) for all input functions, in memory, with the names, units and coordinates of the data.

    It is computed in the same tiles as the file of `predict_to`.

    **Arguments:**

    - `model`: the operator.
    - `data`: the input functions, in memory or in files.
    - `queries`, `regrid`, `level`: as in `predict_to`.
    """
    tiles, _ = prepare(model, data, queries, regrid, level)
    arrays = {name: np.full(array.shape, np.nan, array.dtype) for name, array in tiles.arrays.items()}
    for _, compute in tiles:
        for name, (region, part) in compute().items():
            arrays[name][region] = part
    if P_VALUE in arrays:
        warn_unfamiliar(arrays[P_VALUE])
    variables = {
        name: (array.dims, arrays[name], {k: v for k, v in array.attributes.items() if k != "coordinates"})
        for name, array in tiles.arrays.items()
    }
    return tiles.coordinates().assign(variables).set_coords(list(tiles.moving))


def prepare(
    model: Operator, data: Samples | Records, queries: QueryGrid | QueryPoints | None, regrid: bool, level: float
) -> tuple[Tiles, dict[str, Any]]:
    """The tiles of a prediction, and what it depends on."""
    if len(data) == 0:
        raise ValueError("this data has no functions; pass at least one")
    records = data if isinstance(data, Records) else InMemory(data)
    adaptation = Adaptation.of(model, records, regrid=regrid)
    records = adaptation.apply(records)
    first = records.load([0])
    labels = Labels(records, first.y.count)
    bands = level if isinstance(model, Uncertain) else None
    if queries is not None and model.signature is not None:
        warn_outside(model.signature.domain, queries.corners(), model.signature.query_coordinate_names)
    elif queries is None and adaptation.is_unsolved:
        known = model.signature
        if known is None or known.y is None:
            raise ValueError(
                "this data has no outputs, and the model knows no query locations of its own; choose them: --grid or "
                "--at on the command line, `queries` in Python"
            )
        queries = arranged(np.asarray(known.y, np.float64), known.query_coordinates, known.domain)
    elif queries is None and not isinstance(first.y, Shared):
        return OwnQueryTiles(model, records, first, labels, bands), provenance(model, records, first, None, bands)
    elif queries is None and LIST in labels.example.sizes and not adaptation.turns_longitude:
        coordinates = first.query_coordinates or coordinates_of(records.domain)
        found = arranged(np.asarray(first.y.points), coordinates, records.domain)
        queries = found if isinstance(found, QueryGrid) else None
    tiles = SharedQueryTiles(model, records, first, labels, queries, bands)
    return tiles, provenance(model, records, first, queries, bands)


def provenance(
    model: Operator, data: Records, first: Samples, queries: QueryGrid | QueryPoints | None, level: float | None
) -> dict[str, Any]:
    """What a prediction depends on; if any of it differs, so may the prediction.

    Of files that have no digest, the first and the last function are digested; all others would have to be read.
    """
    ends = [] if isinstance(data, Store) else [first, data.load([len(data) - 1])]
    return {
        "format": FORMAT,
        "functions": len(data),
        "level": level,
        "queries": None if queries is None else queries.digests(),
        "model": model_digest(model),
        "data": data.digest if isinstance(data, Store) else arrays_digest([(each.u, each.y) for each in ends]),
        "versions": versions(),
    }


def model_digest(model: Operator) -> str:
    """SHA-256 of the structure and the arrays of a model, without its signature: no prediction depends on that."""
    arrays: Arrays = {}
    structure = describe(model, "", arrays)
    structure["fields"].pop("signature", None)
    kept = {place: np.asarray(array) for place, array in arrays.items() if not place.startswith("signature.")}
    return digest_of(json.dumps(structure, sort_keys=True), kept)
