"""Pairs of functions in files, read when they are asked for."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from loca.data.samples import Samples, Variable
from loca.domains import Domain

if TYPE_CHECKING:  # importing it takes as long as importing everything else
    import xarray

Rows = slice | Sequence[int] | np.ndarray
"""Which of the N pairs: a slice or a list of numbers."""


class Records(abc.ABC):
    """N labeled pairs (u, s) that stay in their files until they are asked for.

    This is what `loca.data.open` gives for every format, and what can be streamed, converted, checked and shown.
    """

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    domain: Domain
    source: str
    """The file, for messages."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def load(self, rows: Rows = slice(None)) -> Samples:
        """These pairs, in memory and in single precision, ready for a model."""

    @abc.abstractmethod
    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        """Output functions, such as predictions for these rows, with the coordinates, names and units of the data."""
