"""Pairs of functions in files, read on demand."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from loca.data.samples import Samples, Variable
from loca.domains import Domain
from loca.typing import Key

if TYPE_CHECKING:  # importing xarray takes as long as importing everything else
    import xarray

Rows = slice | Sequence[int] | np.ndarray
"""A selection of the N pairs: a slice or a list of numbers."""


class Records(abc.ABC):
    """N labeled pairs (u, s) that stay in their files until they are loaded.

    `loca.data.open` returns records for every format. They can be loaded, streamed, converted, checked and plotted.
    """

    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    domain: Domain
    source: str
    """The file name, for messages."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def load(self, rows: Rows = slice(None)) -> Samples:
        """Read these pairs into memory, in single precision."""

    @abc.abstractmethod
    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        """Output functions, such as predictions for these rows, with the coordinates, names and units of the data."""


class Part(Records):
    """A subset of the pairs of other records, left in their file, with P labels of each function.

    The labels of a function depend only on the key and on its number in the file, so they are the same whether the
    pairs are loaded at once or streamed.

    **Arguments:**

    - `whole`: the records to select from.
    - `rows`: numbers of the pairs, in the desired order.
    - `key`, `labels`: keep this number of labels of every function; by default all.
    """

    def __init__(
        self, whole: Records, rows: Int[np.ndarray, " N"], *, key: Key | None = None, labels: int | None = None
    ):
        if (key is None) != (labels is None):
            raise ValueError("`labels` and `key` belong together; pass both to keep random labels of every function")
        self.whole, self.rows, self.key, self.labels = whole, np.asarray(rows), key, labels
        self.inputs, self.outputs, self.domain, self.source = whole.inputs, whole.outputs, whole.domain, whole.source

    def __len__(self) -> int:
        return len(self.rows)

    def load(self, rows: Rows = slice(None)) -> Samples:
        chosen = self.rows[rows]
        samples = self.whole.load(chosen)
        if self.key is None or self.labels is None:
            return samples
        return samples.observe(jax.vmap(jax.random.fold_in, (None, 0))(self.key, jnp.asarray(chosen)), self.labels)

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        return self.whole.label(s, self.rows[rows])
