"""Fields over time in labeled data sets and files: frames that are read when they are needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from loca.data.files.labeled import (
    Functions,
    as_names,
    check_names,
    domain_of,
    time_dimension,
    unit_of,
    with_locations,
)
from loca.data.queries import single
from loca.data.records import as_slice
from loca.data.samples import Variable
from loca.domains import Box, Domain

if TYPE_CHECKING:
    import xarray

Names = str | Sequence[str]


class Frames:
    """Frames (N, T, m, d) that stay in their file until `numpy.asarray` reads them.

    Indexing and reshaping of the first two axes choose frames without reading them.

    **Arguments:**

    - `read`: reads some frames of a trajectory, from its number and those of the frames.
    - `numbers`: of the frames in the file, trajectory after trajectory.
    - `per`: the number of frames of each trajectory in the file.
    - `inner`: m and d.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self,
        read: Callable[[int, slice | np.ndarray], Float[np.ndarray, "k m d"]],
        numbers: Int[np.ndarray, "N T"],
        per: int,
        inner: tuple[int, int],
    ):
        self.read, self.numbers, self.per, self.inner = read, numbers, per, inner

    @property
    def shape(self) -> tuple[int, ...]:
        """N, T, m and d."""
        return (*self.numbers.shape, *self.inner)

    @property
    def ndim(self) -> int:
        """Of the array that is read."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, key: Any) -> Frames:
        return Frames(self.read, self.numbers[key], self.per, self.inner)

    def reshape(self, *shape: int) -> Frames:
        """The same frames, with other axes instead of the first two."""
        return Frames(self.read, self.numbers.reshape(shape[: -len(self.inner)]), self.per, self.inner)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        flat = self.numbers.ravel()
        found = np.empty((len(flat), *self.inner), self.dtype)
        ends = np.flatnonzero(np.diff(flat // self.per, prepend=-1, append=-1))
        for start, end in itertools.pairwise(ends):  # of runs of frames of one trajectory
            found[start:end] = self.read(int(flat[start] // self.per), as_slice(flat[start:end] % self.per))
        return found.reshape(self.shape).astype(dtype or self.dtype, copy=False)


def arguments_of(
    dataset: xarray.Dataset,
    fields: Names,
    *,
    time: str | None = None,
    sample: str | None = None,
    static: Names = (),
    forcing: Names = (),
    periods: Mapping[str, float] | None = None,
    domain: Domain | None = None,
    source: str = "xarray.Dataset",
) -> dict[str, Any]:
    """The arguments of `Trajectories` that describe some variables of a data set; see `Trajectories.from_xarray`."""
    fields, static, forcing = (as_names(each) for each in (fields, static, forcing))
    if sample is None:
        sample = "trajectory"
        dataset = dataset.expand_dims(sample) if sample not in dataset.dims else dataset
    if time is not None and time not in dataset.dims:  # a single frame
        dataset = dataset.expand_dims(time)
    check_names(dataset, [*fields, *static, *forcing], sample, source)
    time = time or time_dimension(dataset, fields, sample, source)
    if constant := [name for name in (*fields, *forcing) if time not in dataset[name].dims]:
        raise ValueError(f"{', '.join(constant)} of {source} do not change along {time!r}; pass them as static=")
    dataset = with_locations(dataset, [*fields, *static, *forcing], sample)
    first = Functions(dataset[[*fields]].isel({sample: 0}), fields, time)
    if first.moving:
        raise ValueError(f"{', '.join(fields)} of {source} need locations that do not change with time")
    N, T, m = dataset.sizes[sample], dataset.sizes[time], math.prod(first.shape)
    order = (time, *first.dims)

    def values(names: Sequence[str], row: int, steps: slice | np.ndarray) -> Float[np.ndarray, "k m d"]:
        chosen = dataset[[*names]].isel({sample: row, time: steps}, missing_dims="ignore")
        return np.stack([spread(chosen[name]) for name in names], axis=-1)

    def spread(array: xarray.DataArray) -> Float[np.ndarray, "k m"]:
        """A variable at all locations; constant along dimensions that it does not have."""
        sizes = dict(zip(first.dims, first.shape, strict=True))
        sizes = {time: array.sizes.get(time, 1), **sizes}
        array = array.isel({dim: 0 for dim in array.dims if dim not in sizes}, drop=True)
        stored = array.variable.copy(deep=False, data=single(array.to_numpy(), repr(array.name)))
        return stored.set_dims(sizes).transpose(*order).to_numpy().reshape(-1, m)

    own = any(sample in dataset[name].dims for name in static)
    lasting = [values(static, row, slice(0, 1))[0] for row in range(N if own else 1) if static]
    numbers = np.arange(N * T).reshape(N, T)
    mask, fill = _where_known(lambda row, step: values(fields, row, slice(step, step + 1))[0], N, T)

    def read(row: int, steps: slice | np.ndarray) -> Float[np.ndarray, "k m d"]:
        found = values(fields, row, steps)
        if mask is not None and fill is not None:
            found = np.where(mask[:, None], found, fill)
        if wrong := np.count_nonzero(~np.isfinite(found)):
            raise ValueError(
                f"{source}: {wrong} of {found.size} values of trajectory {row} are NaN or infinite, at locations where "
                "other frames have values; fill these gaps"
            )
        return found

    acting = None
    if forcing and not any(set(dataset[name].dims) & set(first.dims) for name in forcing):
        each = [dataset[name].transpose(..., time).to_numpy() for name in forcing]  # numbers
        acting = np.stack([np.broadcast_to(array, (N, T)) for array in each], axis=-1)
    elif forcing:
        acting = Frames(lambda row, steps: values(forcing, row, steps), numbers, T, (m, len(forcing)))
    return {
        "s": Frames(read, numbers, T, (m, len(fields))),
        "y": first.all_points(slice(None)),
        "times": _times(dataset, time, sample, T),
        "static": np.stack(lasting) if static else None,
        "forcing": acting,
        "domain": domain or (domain_of(first.columns, time, periods or {}) if first.columns else Box.unit(1)),
        "coordinates": first.coordinates,
        "time": Variable(time, "" if time not in dataset.coords else unit_of(dataset[time])),
        "mask": mask,
        **{
            kind: [Variable(name, unit_of(dataset[name])) for name in names]
            for kind, names in (("fields", fields), ("static_names", static), ("forcing_names", forcing))
        },
    }


def _where_known(
    read: Callable[[int, int], Float[np.ndarray, "m d"]], N: int, T: int
) -> tuple[Bool[np.ndarray, " m"] | None, Float[np.ndarray, " d"] | None]:
    """The locations with values in the first, the middle or the last trajectory, and the mean of each field there."""
    some = np.stack([read(row, step) for row in sorted({0, N // 2, N - 1}) for step in sorted({0, T // 2, T - 1})])
    known = ~np.isnan(some).any(axis=-1).all(axis=0)
    if known.all():
        return None, None
    if not known.any():
        raise ValueError("the fields have no values (NaN) in the first, the middle and the last frame")
    return np.asarray(known), np.asarray(np.nanmean(some[:, known], axis=(0, 1), dtype=np.float64), np.float32)


def _times(dataset: xarray.Dataset, time: str, sample: str, T: int) -> np.ndarray:
    """The times of all trajectories, or of each; 0, 1, 2, … if the data set has none."""
    for coordinate in (dataset.coords.get(time), *dataset.coords.values()):
        if coordinate is not None and set(coordinate.dims) - {sample} == {time}:
            if coordinate.dtype.kind not in "iufmM":
                raise ValueError(
                    f"the times {coordinate.name!r} are {coordinate.dtype}; pass numbers or dates of the standard "
                    "calendar, such as `dataset.convert_calendar('standard')`"
                )
            return coordinate.transpose(..., time).to_numpy()
    return np.arange(T)
