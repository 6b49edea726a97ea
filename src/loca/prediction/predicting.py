"""Predictions written to a file tile by tile."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from loca.data import Records, Samples, Shared, Store
from loca.data.store import array_digest, versions
from loca.durable import lock
from loca.models import Operator
from loca.prediction.draft import Draft
from loca.prediction.grid import QueryGrid
from loca.prediction.own import OwnJob
from loca.prediction.shared import SharedJob
from loca.saving import Arrays, describe

if TYPE_CHECKING:
    import xarray

FORMAT = 1
"""Version of what a request says, to be raised when tiles of an older version must not be mixed with newer ones."""


def predict_to(
    model: Operator,
    data: Records,
    path: str | os.PathLike[str],
    *,
    queries: QueryGrid | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> xarray.Dataset:
    """F(uᵢ) for all input functions of some data, written to `FILE.zarr`; what is returned is still in that file.

    The file is a Zarr v3 group that xarray opens, with names, units and coordinates as the data has them and a checksum
    on every chunk. It is there only when it is whole; until then `FILE.zarr.partial` holds what is done. Killed at any
    moment, the same call goes on there, and the bytes are those of a run that nobody disturbed.

    Memory does not grow with the number of functions, nor with that of the queries of a grid. Of the data itself one
    function is the least that is read. A model whose nodes are its queries is refused where these are too many.

    **Arguments:**

    - `model`: the operator.
    - `data`: the input functions, in files.
    - `path`: `FILE.zarr`.
    - `queries`: where to ask, such as `QueryGrid.even(domain, (721, 1440))`; by default where the data has labels.
    - `progress`: called with how many tiles are done, and of how many.
    """
    path = Path(path)
    if len(data) == 0:
        raise ValueError("there are no functions in this data; pass at least one")
    channels = len(model.normalization.s_shift)
    if channels != len(data.outputs):
        raise ValueError(
            f"the model has {channels} output channels but the data {len(data.outputs)} "
            f"({', '.join(variable.name for variable in data.outputs)}); name those that the model was trained on"
        )
    first = data.load([0])
    if queries is None and not isinstance(first.y, Shared):
        job = OwnJob(model, data, first)
    else:
        job = SharedJob(model, data, first, queries)
    draft = Draft(path, {**job.description(), "provenance": provenance(model, data, first, queries)})
    if path.exists() and not draft.directory.exists():
        draft.check_existing()
        return opened(path)
    with lock(draft.directory):
        if path.exists():  # stopped after it was whole but before the draft was removed
            draft.check_existing()
            draft.remove()
            return opened(path)
        draft.begin(job)
        done, total = draft.done(), len(job.names)
        tell = progress or (lambda done, total: None)
        tell(len(done), total)
        for count, (name, parts) in enumerate(job.make(done), len(done) + 1):
            draft.put(name, parts)
            tell(count, total)
        draft.finish()
    return opened(path)


def opened(path: Path) -> xarray.Dataset:
    """A prediction, left in its file."""
    import xarray

    return xarray.open_zarr(path, chunks=None)


def provenance(model: Operator, data: Records, first: Samples, queries: QueryGrid | None) -> dict[str, Any]:
    """Of what a prediction is: it is another one if any of this differs."""
    arrays: Arrays = {}
    digest = hashlib.sha256(json.dumps(describe(model, "", arrays), sort_keys=True).encode())
    for place in sorted(arrays):
        digest.update(array_digest(np.asarray(arrays[place])).encode())
    return {
        "format": FORMAT,
        "model": digest.hexdigest(),
        "data": data.digest if isinstance(data, Store) else ends_digest(first, data.load([len(data) - 1])),
        "functions": len(data),
        "queries": None if queries is None else [array_digest(axis) for axis in queries.axes],
        "versions": versions(),
    }


def ends_digest(first: Samples, last: Samples) -> str:
    """SHA-256 of the first and the last function: all others would have to be read to be compared."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves(((first.u, first.y), (last.u, last.y))):
        digest.update(array_digest(np.asarray(array)).encode())
    return digest.hexdigest()
