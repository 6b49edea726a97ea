"""Some of the pairs of a file, and some of the labels of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from loca.data.records import Records, Rows
from loca.data.samples import Samples
from loca.typing import Key

if TYPE_CHECKING:
    import xarray


class Part(Records):
    """Some of the pairs of other records, left in their file, with P labels kept of each.

    Which labels a function keeps depends on the key and on its number in the file alone: they are the same whether
    the pairs are loaded at once or stream by.

    **Arguments:**

    - `whole`: where they come from.
    - `rows`: numbers of the pairs, in the order wanted.
    - `key`, `labels`: keep so many labels of every function; all by default.
    """

    def __init__(
        self, whole: Records, rows: Int[np.ndarray, " N"], *, key: Key | None = None, labels: int | None = None
    ):
        if (key is None) != (labels is None):
            raise ValueError("to keep some labels of every function, give `labels` and the `key` they depend on")
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
