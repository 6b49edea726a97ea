"""Predictions written to a Zarr file tile by tile."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from loca.data import Records, Samples, Shared, Store, array_digest, versions
from loca.durable import lock
from loca.models import Operator
from loca.prediction.grid import QueryGrid
from loca.prediction.partial import PartialPrediction
from loca.prediction.tiles import OwnQueryTiles, SharedQueryTiles
from loca.saving import Arrays, describe

if TYPE_CHECKING:
    import xarray

FORMAT = 1
"""Version of a request, to be raised when tiles of an older version must not be mixed with newer ones."""


def predict_to(
    model: Operator,
    data: Records,
    path: str | os.PathLike[str],
    *,
    queries: QueryGrid | None = None,
    progress: Callable[[int, int], object] | None = None,
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
    - `queries`: where to predict, such as `QueryGrid.even(domain, (721, 1440))`; by default where the data has labels.
    - `progress`: called with the number of finished tiles and the number of all tiles.
    """
    path = Path(path)
    if len(data) == 0:
        raise ValueError("this data has no functions; pass at least one")
    channels = len(model.normalization.s_shift)
    if channels != len(data.outputs):
        raise ValueError(
            f"the model has {channels} output channels but the data {len(data.outputs)} "
            f"({', '.join(variable.name for variable in data.outputs)}); pass those that the model was trained on"
        )
    first = data.load([0])
    if queries is None and not isinstance(first.y, Shared):
        tiles = OwnQueryTiles(model, data, first)
    else:
        tiles = SharedQueryTiles(model, data, first, queries)
    partial = PartialPrediction(path, {**tiles.description(), "provenance": provenance(model, data, first, queries)})
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


def opened(path: Path) -> xarray.Dataset:
    """A prediction whose values stay in the file."""
    import xarray

    return xarray.open_zarr(path, chunks=None)


def provenance(model: Operator, data: Records, first: Samples, queries: QueryGrid | None) -> dict[str, Any]:
    """What a prediction depends on; if any of it differs, so may the prediction."""
    return {
        "format": FORMAT,
        "model": model_digest(model),
        "data": data.digest if isinstance(data, Store) else ends_digest(first, data.load([len(data) - 1])),
        "functions": len(data),
        "queries": None if queries is None else [array_digest(axis) for axis in queries.axes],
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
