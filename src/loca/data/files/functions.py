"""Functions in a labeled data set: their values and their locations."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from loca.data.files.locations import columns, spanned
from loca.data.records import Rows

if TYPE_CHECKING:
    import xarray


class Functions:
    """Several variables of a data set, read as the channels of one function per sample.

    The dimensions of the widest variable, without the sample and those of length one, span the locations; variables
    that lack some of them are constant along these. A point that is missing (NaN) in the first sample, such as land in
    a map of the sea, is left out everywhere.

    **Arguments:**

    - `dataset`: labeled arrays, in files or in memory.
    - `names`: the variables, one channel each.
    - `sample`: the dimension that counts the functions.
    """

    def __init__(self, dataset: xarray.Dataset, names: Sequence[str], sample: str):
        self.dataset, self.names, self.sample = dataset, tuple(names), sample
        widest = dataset[max(names, key=lambda name: len(spanned(dataset[name], sample)))]
        self.columns = columns(widest, spanned(widest, sample), sample)
        # points run in the order of the columns, the last one fastest
        along = (str(dim) for column in self.columns for dim in column.dims)
        self.dims = tuple(dict.fromkeys(dim for dim in along if dim in spanned(widest, sample)))
        for name in names:
            foreign = set(spanned(dataset[name], sample)) - set(self.dims)
            if foreign:
                raise ValueError(
                    f"{name!r} has dimensions {dataset[name].dims} but {widest.name!r} has {widest.dims}: channels of "
                    "one function share their locations; interpolate one of them onto the grid of the other first"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of locations along every dimension."""
        return tuple(self.dataset.sizes[dim] for dim in self.dims)

    @property
    def moving(self) -> bool:
        """Whether every function has locations of its own."""
        return any(self.sample in column.dims for column in self.columns)

    @functools.cached_property
    def kept(self) -> Int[np.ndarray, " m"] | None:
        """Which locations are not missing in the first sample; None if all are there."""
        if self.moving:
            return None
        present = ~np.isnan(self._all_values(slice(0, 1))[0]).any(-1)
        if not present.any():
            raise ValueError(f"the first sample of {self.names} is missing (NaN) everywhere; select others")
        return None if present.all() else np.flatnonzero(present)

    def select(self, rows: Rows) -> Functions:
        """Some of the functions, at the locations that are kept of all."""
        chosen = copy.copy(self)
        chosen.kept = self.kept
        chosen.dataset = self.dataset.isel({self.sample: rows})
        chosen.columns = [c.isel({self.sample: rows}) if self.sample in c.dims else c for c in self.columns]
        return chosen

    def values(self, rows: Rows) -> Float[np.ndarray, "B m d"]:
        """The values of these functions, in single precision."""
        values = self._all_values(rows)
        return values if self.kept is None else values[:, self.kept]

    def points(self, rows: Rows) -> Float[np.ndarray, "m d"] | Float[np.ndarray, "B m d"]:
        """Their locations, in single precision: one set for all, or one for each if they move."""
        if self.moving:
            return np.stack([self._spread(column, rows, True) for column in self.columns], axis=-1)
        return self._fixed_points

    def scatter(self, values: Float[np.ndarray, "B m d"]) -> Float[np.ndarray, "B M d"]:
        """Values at every location of the file, NaN where none were kept."""
        if self.kept is None:
            return values
        everywhere = np.full((len(values), int(np.prod(self.shape)), values.shape[-1]), np.nan, values.dtype)
        everywhere[:, self.kept] = values
        return everywhere

    @functools.cached_property
    def _fixed_points(self) -> Float[np.ndarray, "m d"]:
        if not self.columns:  # numbers, not functions: they sit at one place
            return np.zeros((1, 1), np.float32)
        points = np.stack([self._spread(column, slice(None), False) for column in self.columns], axis=-1)
        return points if self.kept is None else points[self.kept]

    def _all_values(self, rows: Rows) -> Float[np.ndarray, "B M d"]:
        return np.stack([self._spread(self.dataset[name], rows, True) for name in self.names], axis=-1)

    def _spread(self, array: xarray.DataArray, rows: Rows, by_sample: bool) -> Float[np.ndarray, "*B M"]:
        """An array at all locations, those along which it is constant included, flattened."""
        if self.sample in array.dims:
            array = array.isel({self.sample: rows})
        sizes = dict(zip(self.dims, self.shape, strict=True))
        if by_sample:
            sizes = {self.sample: len(np.arange(self.dataset.sizes[self.sample])[rows]), **sizes}
        array = array.isel({dim: 0 for dim in array.dims if dim not in sizes}, drop=True)
        spread = array.variable.astype(np.float32).set_dims(sizes).transpose(*sizes)
        return np.ascontiguousarray(spread.to_numpy()).reshape(*spread.shape[:by_sample], int(np.prod(self.shape)))
