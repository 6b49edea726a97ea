"""Pairs of functions in the labeled arrays of xarray: values, locations, and the domain of the locations."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.data.queries import single
from loca.data.records import Records, Rows, as_slice, numbered_rows
from loca.data.samples import Samples, Variable
from loca.domains import Box, Domain, Sphere, Torus
from loca.typing import Measurements, MultiInput, values_of

if TYPE_CHECKING:
    import xarray

SPATIAL = {"x", "y", "z"}
"""Variable names under which files store the locations of scattered points."""

WIDEST_GAP, POLAR = 60.0, 60.0
"""Longitudes go around the globe if no gap between them is wider, and cover it if latitudes reach beyond ±`POLAR`."""

DAMAGE = (OSError, RuntimeError, KeyError)
"""Errors of libraries that read damaged files."""


@contextmanager
def naming(file: Path | str, kinds: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Name the file in errors of these kinds, by default any, that libraries raise when it is damaged."""
    try:
        yield
    except kinds as error:
        if isinstance(error, ImportError) or str(file) in str(error):
            raise
        raise ValueError(
            f"{file} cannot be read; it may be damaged or incomplete ({type(error).__name__}: {error}). Copy it again"
        ) from error


class Labeled(Records):
    """Pairs (u, s) that are variables of an `xarray.Dataset`, in memory or in a file.

    The dimensions of a variable other than `sample` are the coordinates of sensors and queries, in the order of the
    variable; but latitude always comes before longitude. Times become days since the first time. Dimensions of
    length one are no coordinates. If locations depend on the sample, u is `Measurements` and the queries are `Free`. If
    inputs lie on different grids, or numbers are beside fields, u is a `MultiInput`. Points that are missing in the
    first, the middle and the last sample, such as land in a map of the sea, are left out; `label` restores them as NaN.

    Without outputs the records are cases that have not been solved: `load` returns samples without queries, `domain` is
    that of the sensors, and `label` returns the coordinates of the samples alone.

    **Arguments:**

    - `dataset`: the variables.
    - `inputs`, `outputs`: names of the variables that make up u and s; no outputs for cases that have not been solved.
      Inputs whose dimensions are among those of another are channels of the same field, constant along the missing
      dimensions; inputs with other dimensions are fields of their own. One number per sample is a scalar, and scalars
      come after the fields.
    - `sample`: the dimension that counts the pairs.
    - `input_times`: the time steps of trajectories that make up u. Every step is a separate channel, called `name`
      or, if there are several, `name@t0`, `name@t1`, ….
    - `output_times`: the time steps that make up s; time remains a coordinate of the queries.
    - `time`: the dimension of these steps; by default the one that is called "time" or "t" or holds dates.
    - `periods`: the periods of coordinates of s; that of longitudes around the globe is known.
    - `domain`: Y, such as a `Mesh`; by default the sphere, a torus or a box, whichever the coordinates of s describe.
    - `source`: the origin of the data, for messages.
    """

    def __init__(
        self,
        dataset: xarray.Dataset,
        inputs: str | Sequence[str],
        outputs: str | Sequence[str],
        sample: str,
        *,
        input_times: Rows | None = None,
        output_times: Rows | None = None,
        time: str | None = None,
        periods: Mapping[str, float] | None = None,
        domain: Domain | None = None,
        source: str = "xarray.Dataset",
    ):
        input_names, output_names = as_names(inputs), as_names(outputs)
        check_names(dataset, [*input_names, *output_names], sample, source)
        _check_sample(dataset, [*input_names, *output_names], sample, source)
        self.dataset, self.sample, self.source = dataset, sample, source
        if time is None and (input_times is not None or output_times is not None):
            time = time_dimension(dataset, output_names or input_names, sample, source)
        for times in (input_times, output_times):
            if times is not None and not len(np.arange(dataset.sizes[time])[times]):
                raise ValueError(f"{times} selects none of the {dataset.sizes[time]} steps of {source} along {time!r}")
        placed = with_locations(dataset, [*input_names, *output_names], sample)
        measured = _with_numbers(placed, sample, time)
        before, channels, after = measured, input_names, measured[list(output_names)]
        self._labels = placed[list(output_names)]
        if not output_names:  # the coordinates of the samples alone, which are numbered if they have none
            own = {str(name): c.variable for name, c in placed.coords.items() if c.dims == (sample,)}
            own |= {} if sample in own else {sample: np.arange(placed.sizes[sample])}
            self._labels = placed.drop_vars(list(placed.variables)).assign_coords(own)
        if input_times is not None and time is not None:
            before, channels = _steps_as_channels(measured, input_names, time, input_times)
        if output_times is not None and time is not None:
            after = after.isel({time: output_times}, missing_dims="ignore")
            self._labels = self._labels.isel({time: output_times}, missing_dims="ignore")
        fields, scalars = _by_grid(before, channels, sample)
        self._u = tuple(Functions(before, names, sample) for names in fields)
        self._scalars = Functions(before, scalars, sample) if scalars else None
        self._s = Functions(after, output_names, sample) if output_names else None
        self.inputs = tuple(Variable(name, unit_of(before[name])) for names in (*fields, scalars) for name in names)
        self.outputs = tuple(Variable(name, unit_of(after[name])) for name in output_names)
        found = (self._s or self._u[0]).columns
        for name in output_names:
            expected = (sample, *(self._s.dims if self._s else ()))
            if set(expected) - set(dataset[name].dims):
                raise ValueError(
                    f"output {name!r} of {source} has dimensions {dataset[name].dims}; every output must have the "
                    f"dimensions {expected}"
                )
            if not found:
                raise ValueError(f"output {name!r} of {source} is a single number; pass functions as outputs")
        self.domain = domain or (domain_of(found, sample, periods or {}) if found else Box.unit(1))
        if self._s is not None and self.domain.dimension != len(found):
            raise ValueError(
                f"{self.domain} is {self.domain.dimension}-dimensional but outputs {output_names} of {source} have the "
                f"coordinates {[str(column.name) for column in found]}; pass the domain of these coordinates"
            )

    def __len__(self) -> int:
        return self.dataset.sizes[self.sample]

    def load(self, rows: Rows = slice(None)) -> Samples:
        rows = as_rows(rows, len(self))
        with naming(self.source, DAMAGE):
            fields = [_load_field(field, rows) for field in self._u]
            scalars = None if self._scalars is None else jnp.asarray(self._scalars.values(rows)[:, 0])
            s, y = (None, None) if self._s is None else (self._s.values(rows), self._s.points(rows))
        u, x = fields[0]
        if scalars is not None or len(fields) > 1:
            u, x = MultiInput(tuple(u for u, _ in fields), scalars), tuple(x for _, x in fields)
        return Samples(
            u,
            np.zeros((0, self.domain.dimension)) if y is None else y,
            np.zeros((len(values_of(u)[0]), 0, 0)) if s is None else s,
            x=x,
            domain=self.domain,
            inputs=self.inputs,
            outputs=self.outputs,
            sensor_coordinates=[each for field in self._u for each in field.coordinates],
            query_coordinates=() if self._s is None else self._s.coordinates,
        )

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        import xarray

        labels = self._labels.isel({self.sample: as_rows(rows, len(self))})
        size = 0 if self._s is None else math.prod(self._s.shape)
        kept = slice(None) if self._s is None else self._s.kept
        expected = (labels.sizes[self.sample], len(np.arange(size)[kept]), len(self.outputs))
        if s.shape != expected:
            raise ValueError(f"expected values of shape (rows, queries, outputs) = {expected}, got {s.shape}")
        if self._s is None:
            return labels
        everywhere = np.full((expected[0], size, expected[2]), np.nan, np.asarray(s).dtype)
        everywhere[:, kept] = s
        values = everywhere.reshape(expected[0], *self._s.shape, expected[2])
        variables = {}
        for i, (name, label) in enumerate(labels.data_vars.items()):
            variable = xarray.Variable((self.sample, *self._s.dims), values[..., i], label.attrs)
            variables[name] = variable.set_dims(dict(label.sizes)).transpose(*label.dims)
        return xarray.Dataset(variables, labels.coords, labels.attrs)


class Functions:
    """Several variables of a data set, read as the channels of one function per sample.

    The dimensions of the variable with the most dimensions, except for the sample and those of length one, span the
    locations; variables that lack some of them are constant along these.
    """

    def __init__(self, dataset: xarray.Dataset, names: Sequence[str], sample: str):
        self.dataset, self.names, self.sample = dataset, tuple(names), sample
        widest = dataset[max(names, key=lambda name: len(spanned(dataset[name], sample)))]
        self.columns = _location_columns(widest, spanned(widest, sample), sample)
        # points are in the order of the columns, the last one varying fastest
        along = (str(dim) for column in self.columns for dim in column.dims)
        self.dims = tuple(dict.fromkeys(dim for dim in along if dim in spanned(widest, sample)))
        for name in names:
            if set(spanned(dataset[name], sample)) - set(self.dims):
                raise ValueError(
                    f"{name!r} has dimensions {dataset[name].dims} but {widest.name!r} has {widest.dims}: the channels "
                    "of a function must share their locations; interpolate one variable onto the grid of the other"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of locations along every dimension."""
        return tuple(self.dataset.sizes[dim] for dim in self.dims)

    @property
    def coordinates(self) -> tuple[Variable, ...]:
        """Names and units of the coordinates of the locations."""
        return tuple(Variable(str(column.name), unit_of(column)) for column in self.columns)

    @property
    def moving(self) -> bool:
        """Whether every function has its own locations."""
        return any(self.sample in column.dims for column in self.columns)

    @functools.cached_property
    def kept(self) -> slice | Bool[np.ndarray, " M"]:
        """The locations that have values in the first, the middle or the last sample."""
        if self.moving:
            return slice(None)
        count = self.dataset.sizes[self.sample]
        present = np.asarray(~np.isnan(self.all_values(np.unique([0, count // 2, count - 1]))).any(-1).all(0))
        if not present.any():
            raise ValueError(f"{', '.join(self.names)}: the first, middle and last sample are missing (NaN) everywhere")
        return slice(None) if present.all() else present

    def values(self, rows: Rows) -> Float[np.ndarray, "B m d"]:
        """The values of these functions at the locations that are kept, in single precision."""
        values = self.all_values(rows)
        lost = 0 if isinstance(self.kept, slice) else int(np.isfinite(values[:, ~self.kept]).any(axis=(1, 2)).sum())
        if lost:
            warnings.warn(
                f"{lost} of {len(values)} functions have values of {', '.join(self.names)} at locations that are "
                "missing (NaN) in the first, the middle and the last sample; these locations are left out. Fill the "
                "gaps to keep them",
                stacklevel=4,
            )
        return values[:, self.kept]

    def points(self, rows: Rows) -> Float[np.ndarray, "m d"] | Float[np.ndarray, "B m d"]:
        """The locations of these functions, in single precision: one set for all, or one per function if `moving`."""
        return self.all_points(rows) if self.moving else self.fixed_points

    @functools.cached_property
    def fixed_points(self) -> Float[np.ndarray, "m d"]:
        """The locations that all functions share."""
        return self.all_points(slice(None))[self.kept]

    def all_points(self, rows: Rows) -> Float[np.ndarray, "*B M d"]:
        """All locations, also those without values."""
        if not self.columns:  # numbers, not functions: one sensor at the origin
            return np.zeros((1, 1), np.float32)
        return np.stack([self._flat(column, rows, self.moving) for column in self.columns], axis=-1)

    def all_values(self, rows: Rows) -> Float[np.ndarray, "B M d"]:
        """The values at all locations."""
        return np.stack([self._flat(self.dataset[name], rows, True) for name in self.names], axis=-1)

    def _flat(self, array: xarray.DataArray, rows: Rows, by_sample: bool) -> Float[np.ndarray, "*B M"]:
        if self.sample in array.dims:
            array = array.isel({self.sample: rows})
        sizes = dict(zip(self.dims, self.shape, strict=True))
        if by_sample:
            sizes = {self.sample: len(np.arange(self.dataset.sizes[self.sample])[rows]), **sizes}
        array = array.isel({dim: 0 for dim in array.dims if dim not in sizes}, drop=True)
        stored = array.variable.copy(deep=False, data=single(array.to_numpy(), repr(array.name)))
        full = stored.set_dims(sizes).transpose(*sizes)
        return np.ascontiguousarray(full.to_numpy()).reshape(*full.shape[:by_sample], math.prod(self.shape))


def _load_field(field: Functions, rows: Rows) -> tuple[Array | Measurements, Array | None]:
    """The values of one input field, and its sensors unless every function has its own."""
    values, x = field.values(rows), field.points(rows)
    if not field.moving:
        return jnp.asarray(values), jnp.asarray(x)
    present = np.asarray(np.isfinite(values).all(-1))
    if not np.isfinite(x[present]).all():
        raise ValueError(f"{', '.join(field.names)} has values where coordinates are missing (NaN); repair these")
    u, x = np.where(present[..., None], values, 0.0), np.where(np.isfinite(x), x, 0.0)
    return Measurements(jnp.asarray(u), jnp.asarray(x), jnp.asarray(present)), None


def _by_grid(
    dataset: xarray.Dataset, names: Sequence[str], sample: str
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The names of the variables of each field, and those of the scalars beside them.

    The variable with the most dimensions, and all whose dimensions are among its own, make up the first field; so on
    with the others. Numbers alone are a field with one sensor.
    """
    spans = {name: set(spanned(dataset[name], sample)) for name in names}
    scalars, fields = tuple(name for name in names if not spans[name]), []
    while left := [name for name in names if spans[name] and not any(name in field for field in fields)]:
        widest = max((spans[name] for name in left), key=len)
        fields.append(tuple(name for name in left if spans[name] <= widest))
    return (fields, scalars) if fields else ([scalars], ())


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several names as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def as_rows(rows: Rows, count: int) -> slice | np.ndarray:
    """The same rows as a slice or as non-negative numbers; files read consecutive rows in one go."""
    return rows if isinstance(rows, slice) else as_slice(numbered_rows(rows, count))


def check_names(dataset: xarray.Dataset, names: Sequence[str], sample: str, source: str) -> None:
    """Raise unless a data set has these variables, of numbers, and this dimension."""
    if missing := [name for name in names if name not in dataset.variables]:
        raise ValueError(f"{source} has no variable {', '.join(missing)}; it holds\n{contents(dataset)}")
    if sample not in dataset.dims:
        raise ValueError(f"{source} has no dimension {sample!r}; it holds\n{contents(dataset)}")
    if not dataset.sizes[sample]:
        raise ValueError(f"{source} holds no functions: its dimension {sample!r} has length 0")
    if wrong := [name for name in names if dataset[name].dtype.kind not in "fiub"]:
        raise ValueError(f"{', '.join(wrong)} of {source} hold no numbers; choose from\n{contents(dataset)}")


def _check_sample(dataset: xarray.Dataset, names: Sequence[str], sample: str, source: str) -> None:
    """Warn if the samples have values like those of a coordinate, and one other dimension only counts."""
    shared = set.intersection(*(set(dataset[name].dims) for name in names)) - {sample}
    sizes = {dim: size for dim, size in dataset.sizes.items() if dim in shared and size > 1}
    numbered = [dim for dim, size in sizes.items() if np.array_equal(dataset[dim], np.arange(size))]
    values = np.asarray(dataset[sample])
    is_place = values.dtype.kind == "f" and (values % 1.0 != 0.0).any() and not _is_time(dataset[sample])
    if is_place and len(numbered) == 1:
        warnings.warn(
            f"{source}: sample={sample!r} has values from {values.min():g} to {values.max():g}, as a coordinate has; "
            f"if {numbered[0]!r} counts the functions, pass sample={str(numbered[0])!r}",
            stacklevel=3,
        )


def contents(dataset: xarray.Dataset) -> str:
    """A summary of a data set, one line per variable: name, dimensions with sizes, unit."""
    lines = []
    for name in dataset.variables:
        sizes, unit = ", ".join(f"{dim}: {size}" for dim, size in dataset[name].sizes.items()), unit_of(dataset[name])
        lines.append(f"  {name}({sizes})" + (f" [{unit}]" if unit else ""))
    return "\n".join(lines)


def unit_of(array: xarray.DataArray) -> str:
    """The unit of a variable; empty if it has none."""
    return str(array.attrs.get("units", array.attrs.get("unit", "")))


def time_dimension(dataset: xarray.Dataset, names: Sequence[str], sample: str, source: str) -> str:
    """The dimension of time of some variables."""
    for dim in dict.fromkeys(str(dim) for name in names for dim in dataset[name].dims if dim != sample):
        if _is_time(dataset[dim]):
            return dim
    raise ValueError(f"no dimension of {', '.join(names)} in {source} is time; it holds\n{contents(dataset)}")


def _is_time(coordinate: xarray.DataArray) -> bool:
    named = coordinate.attrs.get("standard_name") == "time" or coordinate.attrs.get("axis") == "T"
    return named or coordinate.dtype.kind in "mM" or str(coordinate.name).lower() in {"time", "t"}


def _with_numbers(dataset: xarray.Dataset, sample: str, time: str | None) -> xarray.Dataset:
    """The data set with times as days since the first time, or as steps from 0 to 1 if it has no times.

    Called before time steps are selected, so that times do not depend on the selection.
    """
    days = {
        name: (c.dims, (c.to_numpy() - c.to_numpy().ravel()[0]) / np.timedelta64(1, "D"), {**c.attrs, "units": "days"})
        for name, c in dataset.coords.items()
        if c.dtype.kind in "mM" and c.ndim and c.dims != (sample,)
    }
    dataset = dataset.assign_coords(days)
    timed = any(set(c.dims) - {sample} == {time} for c in dataset.coords.values())
    return dataset if time is None or timed else dataset.assign_coords({time: _unit_steps(dataset, time)})


def _steps_as_channels(
    dataset: xarray.Dataset, names: Sequence[str], time: str, times: Rows
) -> tuple[xarray.Dataset, tuple[str, ...]]:
    """The data set with one variable for each time step, and the names of these variables."""
    steps = np.arange(dataset.sizes[time])[times]
    arrays = {}
    for name in names:
        for step in steps if time in dataset[name].dims else steps[:1]:
            channel = name if len(steps) == 1 or time not in dataset[name].dims else f"{name}@t{step}"
            arrays[channel] = dataset[name].variable.isel({time: int(step)}, missing_dims="ignore")
    # sensors that move in time stay where they are at the first of these steps
    channels = dataset.drop_vars(list(dataset.data_vars)).isel({time: int(steps[0])}, drop=True, missing_dims="ignore")
    return channels.assign(arrays), tuple(arrays)


def with_locations(dataset: xarray.Dataset, names: Sequence[str], sample: str) -> xarray.Dataset:
    """The data set with all variables that are locations, except those in `names`, as coordinates."""

    def is_location(array: xarray.DataArray) -> bool:
        is_spatial = array.name in SPATIAL and array.ndim == 1 and sample not in array.dims
        return is_spatial or _is_geographic(array, "latitude") or _is_geographic(array, "longitude")

    others = dataset.drop_vars(names, errors="ignore").data_vars
    return dataset.set_coords([name for name, array in others.items() if is_location(array)])


def spanned(array: xarray.DataArray, sample: str) -> list[str]:
    """The dimensions along which the locations of an array vary."""
    return [str(dim) for dim in array.dims if dim != sample and array.sizes[dim] > 1]


def _location_columns(array: xarray.DataArray, dims: Sequence[str], sample: str) -> list[xarray.DataArray]:
    """The coordinates of the locations of an array, in the order of its dimensions.

    Latitude and longitude are found both as two dimensions of a grid and along one dimension of points, and come in
    this order. The coordinates of any other dimension are, in order of preference: the one with the name of the
    dimension; those that vary along it, such as x(node) and y(node), in alphabetical order; equal steps from 0 to 1.
    """
    coordinates = (c for c in array.coords.values() if c.dtype.kind in "fiu")
    within = [c for c in coordinates if set() < set(spanned(c, sample)) <= set(dims)]
    found: list[xarray.DataArray] = []
    covered: set[str] = set()
    named = [[c for c in within if _is_geographic(c, name)] for name in ("latitude", "longitude")]
    geographic = [candidates[0] for candidates in named] if all(named) else []
    for dim in dims:
        if dim in covered:
            continue
        if any(dim in c.dims for c in geographic):
            chosen = geographic
        elif any(c.name == dim and c.dims == (dim,) for c in within):
            chosen = [array.coords[dim]]
        else:
            taken = {c.name for c in found} | set(dims)
            along = [c for c in within if dim in c.dims and c.name not in taken]
            chosen = sorted(along, key=lambda c: str(c.name)) or [_unit_steps(array, dim)]
        found += chosen
        covered |= {str(d) for c in chosen for d in c.dims}
    return found


def _unit_steps(array: xarray.DataArray | xarray.Dataset, dim: str) -> xarray.DataArray:
    """Equal steps from 0 to 1, for a dimension without coordinates."""
    import xarray

    return xarray.DataArray(np.linspace(0.0, 1.0, array.sizes[dim]), dims=dim, name=dim)


def _is_geographic(coordinate: xarray.DataArray, name: str) -> bool:
    """Whether a coordinate is a latitude, or a longitude, by the CF conventions or by its name."""
    direction = {"latitude": "north", "longitude": "east"}[name]
    units = str(coordinate.attrs.get("units", "")).lower().replace("_", "").replace("degrees", "degree")
    return (
        units in {f"degree{direction}", f"degree{direction[0]}"}
        or coordinate.attrs.get("standard_name") == name
        or str(coordinate.name).lower() in {name, name[:3]}
    )


def _is_longitude_around(coordinate: xarray.DataArray) -> bool:
    if not _is_geographic(coordinate, "longitude"):
        return False
    around = np.unique(np.asarray(coordinate) % 360.0)
    return bool(np.diff(around, append=around[0] + 360.0).max() <= WIDEST_GAP)


def domain_of(found: Sequence[xarray.DataArray], sample: str, periods: Mapping[str, float]) -> Domain:
    """The domain of these coordinates.

    Latitudes and longitudes around the globe are a sphere, or a zone of it if they do not reach both polar regions.
    Other coordinates are a torus if some are periodic, as longitudes around the globe are, and a box otherwise.
    """
    low, high = (list(side) for side in zip(*[_extent(column, sample) for column in found], strict=True))
    known = {**{str(c.name): 360.0 for c in found if _is_longitude_around(c)}, **periods}
    if len(found) == 2 and _is_geographic(found[0], "latitude") and _is_longitude_around(found[1]):
        reaches_both = low[0] < -POLAR and high[0] > POLAR
        return Sphere() if reaches_both else Sphere(low[0], high[0])
    lengths = [known.get(str(column.name)) for column in found]
    if not any(lengths):
        return Box(low, high)
    high = [b if length is None else a + length for a, b, length in zip(low, high, lengths, strict=True)]
    return Torus(low, high, [length is not None for length in lengths])


def _extent(column: xarray.DataArray, sample: str, block: int = 256) -> tuple[float, float]:
    """The smallest and the largest value of a coordinate, in single precision, read in blocks of samples."""
    parts: Iterable[xarray.DataArray] = [column]
    if sample in column.dims:
        parts = (column.isel({sample: slice(i, i + block)}) for i in range(0, column.sizes[sample], block))
    limits = [(np.nanmin(v), np.nanmax(v)) for v in (single(np.asarray(p), repr(column.name)) for p in parts)]
    return float(min(a for a, _ in limits)), float(max(b for _, b in limits))
