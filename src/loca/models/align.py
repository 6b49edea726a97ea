"""Data in the form that an operator was made for: the same sensors in the same order, and channels matched by name."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.data import Interpolation, Queries, Records, Rows, Samples, Shared, Variable, grid_shape
from loca.domains import warn_outside
from loca.models.grid import interpolation_between, wrapped
from loca.models.operator import Operator
from loca.models.signature import FieldSignature, Signature
from loca.typing import Field, Input, Measurements, MultiInput, SensorLocations

if TYPE_CHECKING:
    import xarray

ROUND_OFF = 4.0 * float(np.finfo(np.float32).eps)
"""The largest difference of equal coordinates, relative to the largest coordinate: files store single precision."""

OF_EXTENT = 1e-6
"""The largest difference of equal coordinates, relative to their range: files print them with few digits."""

LONGITUDE_PERIOD = 360.0

Order = Int[np.ndarray, " _"]
"""Numbers of the data's channels, columns or locations, in the order of the operator; None if it changes nothing."""

Item = TypeVar("Item")
Numbers = TypeVar("Numbers", bound=Array | np.ndarray)


@overload
def adapt(model: Operator, data: Samples, *, regrid: bool = False) -> Samples: ...
@overload
def adapt(model: Operator, data: Records, *, regrid: bool = False) -> Records: ...
def adapt(model: Operator, data: Samples | Records, *, regrid: bool = False) -> Samples | Records:
    """Data as an operator expects it: with its sensors, channels and coordinates, in its order.

    `fit`, `evaluate`, `predict_to` and the figures call this function. Data that has this form already is returned
    unchanged. Otherwise

    - sensors at the same locations in another order (an axis reversed, a grid transposed, points permuted), and
      channels and coordinates of the same names in another order, are reordered;
    - inputs at other sensors are interpolated linearly, but only if `regrid`;
    - anything else raises `ValueError` with a description of the data and of the operator.

    Equal locations may differ by round-off, and longitudes and other periodic coordinates by their period. What is not
    known is not compared: data from arrays has no names. Queries outside the domain of the operator cause an
    `OutsideDomainWarning`.

    **Arguments:**

    - `model`: the operator.
    - `data`: pairs in memory or in files; those in files stay there.
    - `regrid`: whether to interpolate inputs at other sensors.
    """
    return Adaptation.of(model, data, regrid=regrid).apply(data)


class FieldChange(NamedTuple):
    """How a field of the operator comes from the data; what is None or False is not needed."""

    known: FieldSignature
    source: int  # the number of the field in the data
    channels: Order | None  # numbers beyond those of the field are scalars, constant in space
    columns: Order | None  # of the coordinates of x
    sensors: Order | Interpolation | None  # to those of the operator
    as_measurements: bool  # whether sensors that all functions share are given to every function as its own
    note: str  # what is done to the sensors, in words

    def __call__(
        self, field: Field, x: Float[Array, "_ d_x"] | None, scalars: Float[Array, "_ k"] | None
    ) -> tuple[Field, Float[Array, "_ d_x"] | None]:
        """The field and its sensors as the operator expects them."""
        values = field.u if isinstance(field, Measurements) else field
        if self.channels is not None and self.channels.max() >= values.shape[-1] and scalars is not None:
            constant = jnp.broadcast_to(scalars[:, None], (*values.shape[:2], scalars.shape[-1]))
            values = jnp.concatenate([values, constant], axis=-1)
        values = taken(values, self.channels)
        if isinstance(field, Measurements):
            return Measurements(values, taken(field.x, self.columns), field.mask), None
        x = None if x is None else taken(x, self.columns)
        if self.sensors is not None:
            change = self.sensors
            values = jax.vmap(change)(values) if isinstance(change, Interpolation) else values[:, change]
            x = self.known.x
        if self.as_measurements and x is not None:
            own = jnp.broadcast_to(x, (len(values), *x.shape))
            return Measurements(values, own, jnp.ones(own.shape[:2], bool)), None
        return values, x


@dataclasses.dataclass(frozen=True, eq=False)
class Adaptation:
    """The changes that `adapt` makes; those that are empty, None or False are not needed."""

    model: Operator
    inputs: Order | None  # of the channels of u
    outputs: Order | None  # of the channels of s
    is_unsolved: bool  # whether the data has no outputs
    fields: tuple[FieldChange, ...] = ()  # how each field of u comes from the data
    scalars: Order | None = None  # of the numbers beside fields
    query_columns: Order | None = None  # of the coordinates of y
    queries: Order | None = None  # of queries on a grid whose coordinates are reordered, with which they stay a grid
    turns_longitude: bool = False  # whether longitudes of queries are turned by 360°, into the region of the operator
    notes: tuple[str, ...] = ()  # what is done to the data, in words

    @classmethod
    def of(cls, model: Operator, data: Samples | Records, *, regrid: bool = False) -> Adaptation:
        """The changes that some data needs; see `adapt`."""
        first = data if isinstance(data, Samples) else data.load([0])
        is_unsolved, known = not first.y.count, model.signature
        inputs = channel_order(first.inputs, model.inputs, "inputs", "u")
        outputs = None if is_unsolved else channel_order(first.outputs, model.outputs, "outputs", "s")
        if known is None:
            return cls(model, inputs, outputs, is_unsolved)
        named = {"inputs": inputs, "outputs": outputs}
        notes = [f"the {name} are reordered by name" for name, order in named.items() if order is not None]
        fields, scalars = input_changes(first, known, inputs, regrid)
        notes += [field.note for field in fields if field.note]
        self = cls(model, inputs, outputs, is_unsolved, fields, scalars, notes=tuple(notes))
        if is_unsolved:
            return self
        if first.domain.dimension != known.domain.dimension:
            raise ValueError(
                f"the queries have {first.domain.dimension} coordinates, {listed(first.query_coordinates)}, but the "
                f"model was made for {known.domain.dimension}, {listed(known.query_coordinates)}; pass data of this "
                "dimension"
            )
        expected = known.query_coordinates if known.query_coordinate_names else ()
        columns, queries = column_order(first.query_coordinates, expected, "queries"), None
        if columns is not None and isinstance(first.y, Shared) and (shape := grid_shape(first.y.y)) is not None:
            queries = np.arange(first.y.count).reshape(shape).transpose(*columns).ravel()
        longitude, turns = longitude_column(known), False
        if longitude is not None and known.domain.periods[longitude] is None:
            low, high = known.domain.bounds[longitude]
            start, stop = reordered(data.domain.bounds, columns)[longitude]
            turns = start < low or stop > high
        self = dataclasses.replace(self, query_columns=columns, queries=queries, turns_longitude=turns)
        warn_outside(known.domain, self.relocate(first.y).points, known.query_coordinate_names)
        return self

    @overload
    def apply(self, data: Samples) -> Samples: ...
    @overload
    def apply(self, data: Records) -> Records: ...
    def apply(self, data: Samples | Records) -> Samples | Records:
        """The data as the operator expects it."""
        orders = self.inputs, self.outputs, self.query_columns, self.queries
        if self.fields or self.turns_longitude or self.is_unsolved or any(order is not None for order in orders):
            return self.change(data) if isinstance(data, Samples) else AdaptedRecords(data, self)
        return data

    def change(self, samples: Samples) -> Samples:
        """Samples as the operator expects them."""
        known = self.model.signature
        u, x, sensor_coordinates = self._changed_inputs(samples)
        y, s, domain = self.relocate(samples.y), self.outcome(samples.s), samples.domain
        if known is not None and (self.is_unsolved or self.query_columns is not None or self.turns_longitude):
            domain = known.domain
        if self.is_unsolved:
            y, s = Shared(jnp.zeros((0, domain.dimension))), jnp.zeros((len(samples), 0, len(self.model.outputs)))
        if self.queries is not None:
            y = Shared(y.points[self.queries])
        return Samples(
            u,
            y,
            s,
            x=x,
            domain=domain,
            inputs=reordered(samples.inputs, self.inputs),
            outputs=self.model.outputs if self.is_unsolved else reordered(samples.outputs, self.outputs),
            sensor_coordinates=sensor_coordinates,
            query_coordinates=reordered(samples.query_coordinates, self.query_columns),
        )

    def _changed_inputs(self, data: Samples) -> tuple[Input, SensorLocations, tuple[Variable, ...]]:
        """u, x and the coordinates of x as the operator expects them."""
        known = self.model.signature
        if not self.fields or known is None:
            return data.u, data.x, data.sensor_coordinates
        numbers = data.u.scalars if isinstance(data.u, MultiInput) else None
        made = [change(*data.fields[change.source], numbers) for change in self.fields]
        coordinates = tuple(
            each
            for change in self.fields
            for each in reordered(data.parts[change.source].sensor_coordinates, change.columns)
        )
        if not known.is_several:
            return *made[0], coordinates
        fields, places = zip(*made, strict=True)
        numbers = None if numbers is None else taken(numbers, self.scalars)
        return MultiInput(fields, numbers if numbers is not None and numbers.shape[-1] else None), places, coordinates

    def relocate(self, queries: Queries) -> Queries:
        """Queries with the coordinates of the operator, in the order of the data."""
        if self.query_columns is None and not self.turns_longitude:
            return queries
        y = taken(queries.points, self.query_columns)
        known = self.model.signature
        if self.turns_longitude and known is not None and (column := longitude_column(known)) is not None:
            low, high = known.domain.bounds[column]
            start = 0.5 * (low + high - LONGITUDE_PERIOD)
            degrees = y[..., column]
            turned = start + jnp.mod(degrees - start, LONGITUDE_PERIOD)
            y = y.at[..., column].set(jnp.where((degrees < low) | (degrees > high), turned, degrees))
        return dataclasses.replace(queries, y=y)  # pyright: ignore[reportCallIssue]

    def weights(self, weights: Float[Array | np.ndarray, " M"] | None) -> Float[Array | np.ndarray, " M"] | None:
        """One weight per query of the data, in the order of the operator."""
        return weights if weights is None or self.queries is None else weights[self.queries]

    def outcome(self, s: Float[Array | np.ndarray, "*N P d_s"]) -> Float[Array | np.ndarray, "*N P d_s"]:
        """Values at the queries of the data, in the operator's order of queries and channels."""
        return taken(s if self.queries is None else s[..., self.queries, :], self.outputs)


class AdaptedRecords(Records):
    """Records that are changed when they are loaded, as an operator expects them; labels are those of the records."""

    def __init__(self, whole: Records, adaptation: Adaptation):
        self.whole, self.adaptation, self.source = whole, adaptation, whole.source
        first = adaptation.change(whole.load([0]))
        self.inputs, self.outputs, self.domain = first.inputs, first.outputs, first.domain

    def __len__(self) -> int:
        return len(self.whole)

    def load(self, rows: Rows = slice(None)) -> Samples:
        return self.adaptation.change(self.whole.load(rows))

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        s = np.asarray(s)
        if self.adaptation.is_unsolved:
            return self.whole.label(s[..., :0], rows)
        if self.adaptation.queries is not None:
            s = s[:, np.argsort(self.adaptation.queries)]
        if self.adaptation.outputs is not None:
            s = s[..., np.argsort(self.adaptation.outputs)]
        return self.whole.label(s, rows)


# ---- names -----------------------------------------------------------------------------------------------------------


def channel_order(given: Sequence[Variable], expected: Sequence[Variable], what: str, letter: str) -> Order | None:
    """Which channel of the data is each channel of the operator; None if they have the same order, or no names."""
    both = f"the data has the {what} {listed(given)}, but the model was made for {listed(expected)}"
    names, wanted = [variable.name for variable in given], [variable.name for variable in expected]
    is_permuted = sorted(names) == sorted(wanted) and names != wanted
    if len(given) != len(expected) or (is_permuted and is_numbered(given, letter)):  # or is it an array's order?
        raise ValueError(f"{both}; open the data with the model's {what}, in its order")
    order = order_by_name(names, wanted, is_numbered(given, letter) or is_numbered(expected, letter), both)
    matched = zip(reordered(tuple(given), order), expected, strict=True)
    differing = [theirs.name for mine, theirs in matched if theirs.unit and mine.unit not in ("", theirs.unit)]
    if differing and sorted(names) == sorted(wanted):
        raise ValueError(f"{both}: the units of {', '.join(differing)} differ; convert the values")
    return order


def column_order(given: Sequence[Variable], expected: Sequence[Variable], what: str) -> Order | None:
    """Which coordinate of the data is each coordinate of the operator; None if in the same order, or without names."""
    if not given or not expected or len(given) == len(expected) == 1:
        return None
    names, wanted = ([canonical_name(variable.name) for variable in each] for each in (given, expected))
    without_names = any(is_numbered(each, letter) for each in (given, expected) for letter in "xy")
    both = f"the data has the coordinates of the {what} {listed(given)}, but the model was made for {listed(expected)}"
    return order_by_name(names, wanted, without_names, both)


def order_by_name(names: list[str], wanted: list[str], without_names: bool, both: str) -> Order | None:
    """The place of each wanted name; None if they are in order, or if names that differ are those of arrays."""
    if sorted(names) == sorted(wanted) and len(set(names)) == len(names):
        return changed(np.array([names.index(name) for name in wanted]))
    if without_names:
        return None
    raise ValueError(f"{both}; rename them in the file, or open the data with those of the model")


def changed(order: Order) -> Order | None:
    """An order; None if it changes nothing."""
    return None if np.array_equal(order, np.arange(len(order))) else order


def taken(array: Numbers, order: Order | None) -> Numbers:
    """The entries of the last axis in another order."""
    return array if order is None else array[..., order]  # pyright: ignore[reportReturnType]


def reordered(items: tuple[Item, ...], order: Order | None) -> tuple[Item, ...]:
    """Items in another order."""
    return items if order is None or not items else tuple(items[i] for i in order)


def is_numbered(variables: Sequence[Variable], letter: str) -> bool:
    """Whether these are the names u1, u2, … of data without names."""
    return all(variable == Variable(f"{letter}{i + 1}") for i, variable in enumerate(variables))


def canonical_name(name: str) -> str:
    """The name of a coordinate in lower case, without abbreviations of latitude and longitude."""
    name = name.lower()
    return {"lat": "latitude", "lon": "longitude", "long": "longitude"}.get(name, name)


def listed(variables: Sequence[Variable]) -> str:
    """Names with units, for messages."""
    return ", ".join(map(str, variables)) or "(none)"


def longitude_column(known: Signature) -> int | None:
    """The number of the query coordinate that is a longitude; None if there is none."""
    names = [canonical_name(name) for name in known.query_coordinate_names]
    return names.index("longitude") if "longitude" in names else None


# ---- fields and sensors ----------------------------------------------------------------------------------------------


def input_changes(
    data: Samples, known: Signature, order: Order | None, regrid: bool
) -> tuple[tuple[FieldChange, ...], Order | None]:
    """How the fields of the operator, and the numbers beside them, come from data with this order of channels."""
    sizes = [part.input_size for part in data.parts[: len(data.fields)]]
    starts, total, count = np.cumsum([0, *sizes]), sum(sizes), len(data.inputs)
    left = np.arange(count) if order is None else order
    changes = []
    for field in known.fields:
        mine, left = left[: field.channels], left[field.channels :]
        sources = set((np.searchsorted(starts, mine[mine < total], side="right") - 1).tolist())
        if len(sources) != 1:
            raise ValueError(other_form(data, known))
        (source,) = sources
        part = data.parts[source]
        channels = np.where(mine < total, mine - starts[source], sizes[source] + mine - total)
        columns = column_order(part.sensor_coordinates, field.coordinates, "sensors")
        sensors, note = sensor_change(part, field, known, columns, regrid)
        is_shared = not isinstance(part.u, Measurements) and part.x is not None
        kept = None if len(channels) == sizes[source] and changed(channels) is None else channels
        own = field.has_own_sensors and is_shared
        changes.append(FieldChange(field, source, kept, columns, sensors, own, note))
    if (left < total).any():
        raise ValueError(other_form(data, known))
    scalars = None if len(left) == count - total and changed(left - total) is None else left - total
    has_form = isinstance(data.u, MultiInput) == known.is_several
    in_place = all(
        each.source == i and each.channels is each.columns is each.sensors is None and not each.as_measurements
        for i, each in enumerate(changes)
    )
    return () if has_form and in_place and scalars is None else tuple(changes), scalars


def other_form(data: Samples, known: Signature) -> str:
    """That the fields and numbers of the data cannot be those of the operator."""

    def form(variables: Sequence[Variable], sizes: Sequence[int]) -> str:
        names = iter(variables)
        fields = [f"the field {listed(list(itertools.islice(names, size)))}" for size in sizes]
        numbers = list(names)
        return " and ".join([*fields, *([f"the numbers {listed(numbers)}"] if numbers else [])])

    here = [part.input_size for part in data.parts[: len(data.fields)]]
    there = [field.channels for field in known.fields]
    return (
        f"the data has {form(data.inputs, here)}, but the model was made for {form(known.inputs, there)}; pass inputs "
        "of this form: `loca.typing.MultiInput` for several fields, or for numbers beside them"
    )


def sensor_change(
    data: Samples, known: FieldSignature, whole: Signature, columns: Order | None, regrid: bool
) -> tuple[Order | Interpolation | None, str]:
    """How values at the sensors of the data become values at those of the operator, and what that is in words."""
    if data.x is None or known.x is None:
        return None, ""
    given, expected = np.asarray(data.x, np.float64), np.asarray(known.x, np.float64)
    coordinates = known.coordinates or reordered(data.sensor_coordinates, columns)
    here, there = described(given, data.sensor_coordinates), described(expected, known.coordinates)
    both = f"the inputs are on {here}, but the model was made for {there}"
    if given.shape[1] != expected.shape[1]:
        raise ValueError(f"{both}; pass inputs with the coordinates of the model")
    periods = sensor_periods(whole, expected.shape[1], coordinates)
    order = matching_order(given if columns is None else given[:, columns], expected, periods)
    if order is not None:
        order = changed(order)
        return order, "" if order is None else f"the sensors are reordered from {here} to {there}"
    if not regrid:
        raise ValueError(
            f"{both}. Pass data with these sensors, or interpolate the inputs to them: --regrid on the command line, "
            "regrid=True in Python"
        )
    back = np.arange(len(periods)) if columns is None else np.argsort(columns)
    try:
        interpolation = interpolation_between(given, expected[:, back], [periods[i] for i in back])
    except ValueError as problem:
        raise ValueError(f"{both}, and cannot be interpolated: {problem}") from None
    return interpolation, f"the inputs are interpolated from {here} to {there}"


def sensor_periods(known: Signature, dimension: int, coordinates: Sequence[Variable]) -> list[float | None]:
    """The period of each coordinate of the sensors: that of the query coordinate of its name; 360 for a longitude."""
    periods = known.domain.periods
    if not coordinates or not known.query_coordinate_names:
        return [*[None] * (dimension - len(periods)), *periods[-dimension:]]
    of_queries = dict(zip(map(canonical_name, known.query_coordinate_names), periods, strict=True))
    names = [canonical_name(variable.name) for variable in coordinates]
    return [LONGITUDE_PERIOD if name == "longitude" else of_queries.get(name) for name in names]


def described(x: Float[np.ndarray, "m d"], coordinates: Sequence[Variable]) -> str:
    """Locations in words: the shape of their grid or their number, and the range of every coordinate."""
    shape = grid_shape(x)
    coordinates = coordinates or [Variable(f"x{i + 1}") for i in range(x.shape[1])]
    ends = (x[0], x[-1]) if shape is not None else (x.min(axis=0), x.max(axis=0))
    ranges = [
        " ".join(filter(None, (v.name, "from", f"{a:.5g}", "to", f"{b:.5g}", v.unit)))
        for v, a, b in zip(coordinates, *ends, strict=True)
    ]
    what = f"{len(x)} points" if shape is None else f"a grid of {' × '.join(map(str, shape))}"
    return f"{what} ({', '.join(ranges)})"


def matching_order(
    given: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m_ d"], periods: Sequence[float | None]
) -> Order | None:
    """The order in which the given locations are the expected ones; None if they are other locations.

    Round-off is ignored, and coordinates with a period are compared modulo the period.
    """
    from scipy.spatial import KDTree

    if given.shape != expected.shape:
        return None
    tolerance = ROUND_OFF * np.abs(expected).max(axis=0) + OF_EXTENT * np.ptp(expected, axis=0)
    tolerance = np.where(tolerance == 0.0, 1e-30, tolerance)  # a coordinate that is 0 everywhere
    candidates = [(given, expected)]
    if any(period is not None for period in periods):
        candidates.append((wrapped(given, expected, periods), wrapped(expected, expected, periods)))
    for here, there in candidates:
        if (np.abs(here - there) <= tolerance).all():  # also if several sensors share a location
            return np.arange(len(here))
    for here, there in candidates:
        near = KDTree(here / tolerance).query(there / tolerance, p=np.inf, distance_upper_bound=1.0 + 1e-9)
        times = np.bincount(order := np.asarray(near[1]), minlength=len(here) + 1)  # without a neighbor: the number m
        if (times[:-1] == 1).all():
            return order
    return None
