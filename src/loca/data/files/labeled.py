"""Pairs of functions in the labeled arrays of xarray."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data.files.functions import (
    SPATIAL,
    Functions,
    domain_of,
    is_latitude,
    is_longitude,
    spanned,
    unit,
    unit_steps,
)
from loca.data.records import Records, Rows
from loca.data.samples import Samples, Variable
from loca.domains import Box, Domain
from loca.typing import Measurements, MultiInput, values_of

if TYPE_CHECKING:
    import xarray


class Labeled(Records):
    """Pairs (u, s) that are variables of an `xarray.Dataset`, in memory or in a file.

    The dimensions of a variable other than `sample` are the coordinates of sensors and queries, in the order of the
    variable; but latitude always comes before longitude. Times become days since the first time. Dimensions of
    length one are no coordinates. If locations depend on the sample, u is `Measurements` and the queries are `Free`. If
    inputs lie on different grids, or numbers are beside fields, u is a `MultiInput`.
    Points that are missing in the first sample are left out; `label` restores them as NaN.

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
    - `periods`: the periods of coordinates; if all coordinates of s are periodic, its domain is a torus.
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
        self.dataset, self.sample, self.source = dataset, sample, source
        if time is None and (input_times is not None or output_times is not None):
            time = time_dimension(dataset, output_names or input_names, sample, source)
        for times in (input_times, output_times):
            if times is not None and not len(np.arange(dataset.sizes[time])[times]):
                raise ValueError(
                    f"{times} selects none of the {dataset.sizes[time]} steps of {source} along {time!r}; "
                    f"pass numbers from 0 to {dataset.sizes[time] - 1}"
                )
        placed = with_locations(dataset, [*input_names, *output_names], sample)
        measured = with_numbers(placed, sample, time)
        before, channels = measured, input_names
        if input_times is not None and time is not None:
            before, channels = steps_as_channels(measured, input_names, time, input_times)
        after = measured[list(output_names)]
        self._labels = placed[list(output_names)] if output_names else sample_coordinates(placed, sample)
        if output_times is not None and time is not None:
            after = after.isel({time: output_times}, missing_dims="ignore")
            self._labels = self._labels.isel({time: output_times}, missing_dims="ignore")
        fields, scalars = by_grid(before, channels, sample)
        self._u = tuple(Functions(before, names, sample) for names in fields)
        self._scalars = Functions(before, scalars, sample) if scalars else None
        self._s = Functions(after, output_names, sample) if output_names else None
        ordered = [name for names in (*fields, scalars) for name in names]
        self.inputs = tuple(Variable(name, unit(before[name])) for name in ordered)
        self.outputs = tuple(Variable(name, unit(after[name])) for name in output_names)
        if self._s is None:
            columns = self._u[0].columns
            self.domain = domain or (domain_of(columns, sample, periods or {}) if columns else Box.unit(1))
            return
        for name in output_names:
            if set(self._s.dims) - set(dataset[name].dims) or sample not in dataset[name].dims:
                raise ValueError(
                    f"output {name!r} of {source} has dimensions {dataset[name].dims}; every output must have the "
                    f"dimensions {(sample, *self._s.dims)}"
                )
        if not self._s.columns:
            raise ValueError(
                f"outputs {output_names} of {source} are single numbers; pass outputs with a further dimension"
            )
        self.domain = domain if domain is not None else domain_of(self._s.columns, sample, periods or {})
        if self.domain.dimension != len(self._s.columns):
            raise ValueError(
                f"{self.domain} is {self.domain.dimension}-dimensional but outputs {output_names} of {source} have the "
                f"coordinates {[str(column.name) for column in self._s.columns]}; pass the domain of these coordinates"
            )

    def __len__(self) -> int:
        return self.dataset.sizes[self.sample]

    def __repr__(self) -> str:
        names = ", ".join(v.name for v in self.inputs), ", ".join(v.name for v in self.outputs) or "?"
        return f"Labeled({self.source!r}: {len(self)} pairs, {names[0]} → {names[1]}, {self.domain})"

    def select(self, rows: Rows) -> Labeled:
        """A subset of the pairs, still in their file."""
        rows = as_rows(rows, len(self))
        chosen = copy.copy(self)  # the domain and the kept points stay those of the complete set
        chosen.dataset, chosen._labels = (whole.isel({self.sample: rows}) for whole in (self.dataset, self._labels))
        chosen._u = tuple(field.select(rows) for field in self._u)
        chosen._scalars, chosen._s = (part and part.select(rows) for part in (self._scalars, self._s))
        return chosen

    def load(self, rows: Rows = slice(None)) -> Samples:
        rows = as_rows(rows, len(self))
        fields, places = zip(*(load_field(field, rows) for field in self._u), strict=True)
        u, sensors = fields[0], places[0]
        if self._scalars is not None or len(fields) > 1:
            scalars = None if self._scalars is None else jnp.asarray(self._scalars.values(rows)[:, 0])
            u, sensors = MultiInput(fields, scalars), places
        s, count = self._s, len(values_of(u)[0])
        return Samples(
            u,
            jnp.zeros((0, self.domain.dimension)) if s is None else jnp.asarray(s.points(rows)),
            jnp.zeros((count, 0, 0)) if s is None else jnp.asarray(s.values(rows)),
            x=sensors,
            domain=self.domain,
            inputs=self.inputs,
            outputs=self.outputs,
            sensor_coordinates=[each for field in self._u for each in field.coordinates],
            query_coordinates=() if s is None else s.coordinates,
        )

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        import xarray

        labels = self._labels.isel({self.sample: as_rows(rows, len(self))})
        if self._s is None:
            if s.shape[1:] != (0, 0):
                raise ValueError(f"{self.source} has no outputs, so values of shape {s.shape} have no locations")
            return labels
        count = int(np.prod(self._s.shape)) if self._s.kept is None else len(self._s.kept)
        expected = (labels.sizes[self.sample], count, len(self.outputs))
        if s.shape != expected:
            raise ValueError(f"expected values of shape (rows, queries, outputs) = {expected}, got {s.shape}")
        values = self._s.scatter(np.asarray(s)).reshape(expected[0], *self._s.shape, expected[2])
        dims = (self.sample, *self._s.dims)
        variables = {}
        for i, (name, label) in enumerate(labels.data_vars.items()):
            variable = xarray.Variable(dims, values[..., i], label.attrs)
            variables[name] = variable.set_dims(dict(label.sizes)).transpose(*label.dims)
        return xarray.Dataset(variables, labels.coords, labels.attrs)


def load_field(field: Functions, rows: Rows) -> tuple[Array | Measurements, Array | None]:
    """The values of one input field, and its sensors unless every function has its own."""
    values, x = jnp.asarray(field.values(rows)), jnp.asarray(field.points(rows))
    if not field.moving:
        return values, x
    present = jnp.isfinite(values).all(-1)
    return Measurements(jnp.where(present[..., None], values, 0.0), x, present), None


def by_grid(
    dataset: xarray.Dataset, names: Sequence[str], sample: str
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The names of the variables of each field, and those of the scalars beside them.

    The variable with the most dimensions, and all whose dimensions are among its own, make up the first field; so on
    with the others. Numbers alone are a field with one sensor.
    """
    spans = {name: set(spanned(dataset[name], sample)) for name in names}
    scalars = tuple(name for name in names if not spans[name])
    left = [name for name in names if spans[name]]
    if not left:
        return [scalars], ()
    fields = []
    while left:
        widest = max(left, key=lambda name: len(spans[name]))
        fields.append(tuple(name for name in left if spans[name] <= spans[widest]))
        left = [name for name in left if not spans[name] <= spans[widest]]
    return fields, scalars


def as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several names as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def as_rows(rows: Rows, count: int) -> slice | np.ndarray:
    """The same rows as a slice or as non-negative numbers."""
    return rows if isinstance(rows, slice) else np.arange(count)[np.asarray(rows, dtype=np.intp)]


def sample_coordinates(dataset: xarray.Dataset, sample: str) -> xarray.Dataset:
    """The coordinates of the samples alone; they are numbered if they have none."""
    own = {str(name): c.variable for name, c in dataset.coords.items() if c.dims == (sample,)}
    numbers = {} if sample in own else {sample: np.arange(dataset.sizes[sample])}
    return dataset.drop_vars(list(dataset.variables)).assign_coords({**own, **numbers})


def check_names(dataset: xarray.Dataset, names: Sequence[str], sample: str, source: str) -> None:
    """Raise unless these variables exist and hold numbers, and the sample dimension exists."""
    missing = [name for name in names if name not in dataset.variables]
    if missing:
        raise ValueError(f"{source} has no variable {', '.join(missing)}; it holds\n{contents(dataset)}")
    if sample not in dataset.dims:
        raise ValueError(
            f"{source} has no dimension {sample!r} that could count the samples; it holds\n{contents(dataset)}"
        )
    wrong = [name for name in names if dataset[name].dtype.kind not in "fiub"]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} of {source} hold no numbers; choose from\n{contents(dataset)}")


def contents(dataset: xarray.Dataset) -> str:
    """A summary of a data set, one line per variable: name, dimensions with sizes, unit."""
    lines = []
    for name, array in dataset.variables.items():
        sizes = ", ".join(f"{dim}: {size}" for dim, size in array.sizes.items())
        measured = unit(dataset[name])
        lines.append(f"  {name}({sizes})" + (f" [{measured}]" if measured else ""))
    return "\n".join(lines)


def time_dimension(dataset: xarray.Dataset, names: Sequence[str], sample: str, source: str) -> str:
    """The time dimension of these variables."""
    for dim in dict.fromkeys(str(dim) for name in names for dim in dataset[name].dims if dim != sample):
        dates = dim in dataset.coords and (
            dataset[dim].dtype.kind in "mM"
            or dataset[dim].attrs.get("standard_name") == "time"
            or dataset[dim].attrs.get("axis") == "T"
        )
        if dates or dim.lower() in {"time", "t"}:
            return dim
    raise ValueError(
        f"times were given, but no dimension of {', '.join(names)} in {source} is time; it holds\n" + contents(dataset)
    )


def with_locations(dataset: xarray.Dataset, names: Sequence[str], sample: str) -> xarray.Dataset:
    """The data set with all variables that are locations, except those in `names`, as coordinates."""
    stored = [
        name
        for name, array in dataset.data_vars.items()
        if name not in names
        and (
            is_latitude(array)
            or is_longitude(array)
            or (name in SPATIAL and array.ndim == 1 and sample not in array.dims)
        )
    ]
    return dataset.set_coords(stored)


def with_numbers(dataset: xarray.Dataset, sample: str, time: str | None) -> xarray.Dataset:
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
    return dataset if time is None or timed else dataset.assign_coords({time: unit_steps(dataset, time)})


def steps_as_channels(
    dataset: xarray.Dataset, names: Sequence[str], time: str, times: Rows
) -> tuple[xarray.Dataset, tuple[str, ...]]:
    """The data set with one variable for each time step, and the names of these variables."""
    steps = np.arange(dataset.sizes[time])[times]
    arrays = {}
    for name in names:
        if time not in dataset[name].dims:
            arrays[name] = dataset[name].variable
            continue
        for step in steps:
            channel = name if len(steps) == 1 else f"{name}@t{step}"
            arrays[channel] = dataset[name].variable.isel({time: int(step)})
    # sensors that move in time stay where they are at the first of these steps
    channels = dataset.drop_vars(list(dataset.data_vars)).isel({time: int(steps[0])}, drop=True, missing_dims="ignore")
    return channels.assign(arrays), tuple(arrays)
