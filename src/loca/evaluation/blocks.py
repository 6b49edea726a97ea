"""Data in blocks of functions, from memory or from files."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp

from loca.data import Records, Samples

BLOCK = 100
"""Functions in memory at once, unless said otherwise."""


def blocks(data: Samples | Records, size: int) -> Iterator[Samples]:
    """All functions in order, so many at a time; the last block may be smaller."""
    if size < 1:
        raise ValueError(f"a block needs at least one function, got batch_size={size}")
    if len(data) == 0:
        raise ValueError("there are no functions in this data; pass at least one")
    for start in range(0, len(data), size):
        stop = min(start + size, len(data))
        yield data.load(slice(start, stop)) if isinstance(data, Records) else data.take(jnp.arange(start, stop))
