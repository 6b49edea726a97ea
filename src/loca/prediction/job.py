"""What it takes to make a prediction: the arrays it will have, and tiles of them that can be made one by one."""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loca.prediction.grid import Tile

if TYPE_CHECKING:
    import xarray


class Stored(NamedTuple):
    """An array that is written in tiles: its dimensions, and the sides of the whole and of a tile along them."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    attributes: dict[str, Any]


Parts = Mapping[str, tuple[Tile, np.ndarray]]
"""What is made at once: for each array where it belongs, and the values."""


class Job(abc.ABC):
    """A prediction cut into tiles, each a pure function of model, data and queries."""

    arrays: Mapping[str, Stored]

    @property
    @abc.abstractmethod
    def names(self) -> list[str]:
        """What the tiles are called, in the order in which they are made."""

    @abc.abstractmethod
    def make(self, done: Collection[str]) -> Iterator[tuple[str, Parts]]:
        """The tiles that are not done yet."""

    @abc.abstractmethod
    def coordinates(self) -> xarray.Dataset:
        """The coordinates that are not written in tiles."""

    def description(self) -> dict[str, Any]:
        """What makes this job what it is, as JSON can hold it."""
        return {name: array._asdict() for name, array in self.arrays.items()}
