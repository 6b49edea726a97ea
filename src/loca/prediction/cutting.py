"""How predictions are cut into tiles of functions and queries, each of which fits in memory many times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import equinox as eqx
import jax

from loca.prediction.grid import Tile
from loca.typing import PyTree

TILE_BYTES = 2**24
"""About how much is written at once, and how much of the data is read at once."""

HALF_BYTES = 2**24
"""About how much is kept of what depends on u alone, and of what depends on y alone: φ of a tile, v of a group."""

MOST_QUERIES = 2**17
"""Queries of a tile at most: one that is interrupted is computed again."""

MOST_FUNCTIONS = 32
"""Functions that go through an encoder at once at most."""


def chunk(shape: Sequence[int], limit: int) -> tuple[int, ...]:
    """Sides of the tiles that cut a grid evenly, at most `limit` points each: whole in the axes that run fastest."""
    sides: list[int] = []
    room = max(1, limit)
    for length in reversed(shape):
        side = -(-length // -(-length // room))
        sides.append(side)
        room = room // side if side == length else 1
    return tuple(reversed(sides))


def tiles(shape: Sequence[int], sides: Sequence[int]) -> Iterator[Tile]:
    """All tiles of a grid, in its order."""
    axes = zip(shape, sides, strict=True)
    return itertools.product(*([slice(i, min(i + side, n)) for i in range(0, n, side)] for n, side in axes))


def extent(tile: Tile) -> tuple[int, ...]:
    """The sides of a tile."""
    return tuple(along.stop - along.start for along in tile)


def name_of(tile: Tile) -> str:
    """What a tile is called: where it begins."""
    return ".".join(str(along.start) for along in tile)


def bytes_of(tree: PyTree) -> int:
    """How much memory the arrays of something take, or would."""
    arrays = (leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct))
    return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


def bytes_after(function: Callable[..., PyTree], *given: PyTree) -> int:
    """How much memory the result of a function takes, without calling it."""
    return bytes_of(eqx.filter_eval_shape(function, *given))


def within(number: int, least: int, most: int) -> int:
    """The nearest number between the two."""
    return max(least, min(number, most))
