"""Digests of data, by which work in a directory recognizes the data that it was started for."""

from __future__ import annotations

import hashlib

import jax
import numpy as np

from loca.data.records import Part, Records
from loca.data.samples import Samples
from loca.data.store.store import Store
from loca.typing import PyTree

PROBED_ROWS = 16
"""The number of functions that are read from files without a digest."""


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


def arrays_digest(tree: PyTree) -> str:
    """SHA-256 of the types, shapes and bytes of all arrays of a tree, shortened to 32 digits."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:32]
