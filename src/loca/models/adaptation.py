"""Data in the form that an operator was made for: the same sensors in the same order, and channels matched by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Queries, Records, Rows, Samples, Shared, Variable
from loca.domains import warn_outside
from loca.models.interpolation import Interpolation
from loca.models.matching import (
    LONGITUDE_PERIOD,
    Order,
    canonical_name,
    changed,
    channel_order,
    column_order,
    described,
    listed,
    matching_order,
    transposed_grid,
)
from loca.models.operator import Operator, Signature
from loca.models.regridding import interpolation_between
from loca.typing import Input, Measurements

if TYPE_CHECKING:
    import xarray

Item = TypeVar("Item")


@overload
def adapt(model: Operator, data: Samples, *, regrid: bool = False) -> Samples: ...
@overload
def adapt(model: Operator, data: Records, *, regrid: bool = False) -> Records: ...
@overload
def adapt(model: Operator, data: Samples | Records, *, regrid: bool = False) -> Samples | Records: ...
def adapt(model: Operator, data: Samples | Records, *, regrid: bool = False) -> Samples | Records:
    """Data as an operator expects it: with its sensors, channels and coordinates, in its order.

    `fit`, `evaluate`, `predict_to` and the figures call this function. Data that has this form already is returned
    unchanged. Otherwise

    - sensors at the same locations in another order (an axis reversed, a grid transposed, points permuted), and
      channels and coordinates of the same names in another order, are reordered;
    - inputs at other sensors are interpolated linearly, but only if `regrid`;
    - anything else raises `ValueError` with a description of the data and of the operator.

    Equal locations may differ by round-off, and longitudes and other periodic coordinates by their period. What is not
    known is not compared: operators from files of version 0.1 know no locations, and data from arrays has no names.
    Queries outside the domain of the operator cause an `OutsideDomainWarning`.

    **Arguments:**

    - `model`: the operator.
    - `data`: pairs in memory or in files; those in files stay there.
    - `regrid`: whether to interpolate inputs at other sensors.
    """
    return Adaptation.of(model, data, regrid=regrid).apply(data)


@dataclasses.dataclass(frozen=True, eq=False)
class Adaptation:
    """The changes that `adapt` makes; those that are None or False are not needed.

    **Arguments:**

    - `model`: the operator.
    - `inputs`, `outputs`: orders of the channels of u and s.
    - `sensor_columns`, `query_columns`: orders of the coordinates of x and y.
    - `sensors`: the order of the sensors, or the interpolation to those of the operator.
    - `queries`: the order of queries on a grid whose coordinates are reordered, with which they stay a grid.
    - `turns_longitude`: whether longitudes of queries are turned by 360 degrees, into the region of the operator.
    - `as_measurements`: whether sensors that all functions share are given to every function as its own.
    - `is_unsolved`: whether the data has no outputs.
    - `notes`: what is done to the data, in words.
    """

    model: Operator
    inputs: Order | None = None
    outputs: Order | None = None
    sensor_columns: Order | None = None
    query_columns: Order | None = None
    sensors: Order | Interpolation | None = None
    queries: Order | None = None
    turns_longitude: bool = False
    as_measurements: bool = False
    is_unsolved: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: Operator, data: Samples | Records, *, regrid: bool = False) -> Adaptation:
        """The changes that some data needs; see `adapt`."""
        first = data if isinstance(data, Samples) else data.load([0])
        is_unsolved, known = not first.y.count, model.signature
        inputs = channel_order(first.inputs, model.inputs, "inputs", "u")
        outputs = None if is_unsolved else channel_order(first.outputs, model.outputs, "outputs", "s")
        named = {"inputs": inputs, "outputs": outputs}
        notes = [f"the {name} are reordered by name" for name, order in named.items() if order is not None]
        self = cls(model, inputs, outputs, is_unsolved=is_unsolved)
        if known is not None:
            columns = column_order(first.sensor_coordinates, known.sensor_coordinates, "sensors")
            sensors, note = sensor_change(first, known, columns, regrid)
            notes += [note] if note else []
            self = dataclasses.replace(
                self,
                sensor_columns=columns,
                sensors=sensors,
                as_measurements=known.has_own_sensors and first.x is not None,
            )
        if known is not None and not is_unsolved:
            check_dimension(first, known)
            expected = known.query_coordinates if known.query_coordinate_names else ()
            columns = column_order(first.query_coordinates, expected, "queries")
            self = dataclasses.replace(
                self,
                query_columns=columns,
                queries=transposed_grid(first.y, columns),
                turns_longitude=needs_turn(known, reordered(data.domain.bounds, columns)),
            )
            warn_outside(known.domain, self.relocate(first.y).points, known.query_coordinate_names)
        return dataclasses.replace(self, notes=tuple(notes))

    @property
    def is_identity(self) -> bool:
        """Whether the data needs no change."""
        orders = self.inputs, self.outputs, self.sensor_columns, self.query_columns, self.sensors, self.queries
        flags = self.turns_longitude, self.as_measurements, self.is_unsolved
        return all(order is None for order in orders) and not any(flags)

    @overload
    def apply(self, data: Samples) -> Samples: ...
    @overload
    def apply(self, data: Records) -> Records: ...
    @overload
    def apply(self, data: Samples | Records) -> Samples | Records: ...
    def apply(self, data: Samples | Records) -> Samples | Records:
        """The data as the operator expects it."""
        if self.is_identity:
            return data
        return self.change(data) if isinstance(data, Samples) else AdaptedRecords(data, self)

    def change(self, samples: Samples) -> Samples:
        """Samples as the operator expects them."""
        known = self.model.signature
        u, x = self.input(samples)
        y, s, domain = samples.y, samples.s, samples.domain
        if self.is_unsolved:
            domain = domain if known is None else known.domain
            y, s = Shared(jnp.zeros((0, domain.dimension))), jnp.zeros((len(samples), 0, len(self.model.outputs)))
        else:
            y, s = self.relocate(y), s if self.outputs is None else s[..., self.outputs]
        if self.queries is not None:
            y, s = Shared(y.points[self.queries]), s[:, self.queries]
        if known is not None and (self.query_columns is not None or self.turns_longitude):
            domain = known.domain
        return Samples(
            u,
            y,
            s,
            x=x,
            domain=domain,
            inputs=reordered(samples.inputs, self.inputs),
            outputs=self.model.outputs if self.is_unsolved else reordered(samples.outputs, self.outputs),
            sensor_coordinates=reordered(samples.sensor_coordinates, self.sensor_columns),
            query_coordinates=reordered(samples.query_coordinates, self.query_columns),
        )

    def input(self, samples: Samples) -> tuple[Input, Float[Array, "m d_x"] | None]:
        """u and x as the operator expects them."""
        known, u, x = self.model.signature, samples.u, samples.x
        if isinstance(u, Measurements):
            return Measurements(taken(u.u, self.inputs), taken(u.x, self.sensor_columns), u.mask), x
        u, x = taken(u, self.inputs), None if x is None else taken(x, self.sensor_columns)
        if self.sensors is not None and known is not None:
            u = jax.vmap(self.sensors)(u) if isinstance(self.sensors, Interpolation) else u[:, self.sensors]
            x = known.x
        if self.as_measurements and x is not None:
            own = jnp.broadcast_to(x, (len(u), *x.shape))
            return Measurements(u, own, jnp.ones(own.shape[:2], bool)), None
        return u, x

    def relocate(self, queries: Queries) -> Queries:
        """Queries with the coordinates of the operator, in the order of the data."""
        if self.query_columns is None and not self.turns_longitude:
            return queries
        y = taken(queries.y, self.query_columns)  # pyright: ignore[reportAttributeAccessIssue]
        known = self.model.signature
        if self.turns_longitude and known is not None:
            column = longitude_column(known)
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
        s = s if self.queries is None else s[..., self.queries, :]
        return s if self.outputs is None else s[..., self.outputs]


class AdaptedRecords(Records):
    """Records that are changed when they are loaded, as an operator expects them; labels are those of the records.

    **Arguments:**

    - `whole`: the records.
    - `adaptation`: the changes.
    """

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


def sensor_change(
    first: Samples, known: Signature, columns: Order | None, regrid: bool
) -> tuple[Order | Interpolation | None, str]:
    """How values at the sensors of the data become values at those of the operator, and what that is in words."""
    if first.x is None or known.x is None:
        return None, ""
    given, expected = np.asarray(first.x, np.float64), np.asarray(known.x, np.float64)
    coordinates = known.sensor_coordinates or reordered(first.sensor_coordinates, columns)
    here, there = described(given, first.sensor_coordinates), described(expected, known.sensor_coordinates)
    both = f"the inputs are on {here}, but the model was made for {there}"
    if given.shape[1] != expected.shape[1]:
        raise ValueError(f"{both}; pass inputs with the coordinates of the model")
    periods = sensor_periods(known, coordinates)
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


def sensor_periods(known: Signature, coordinates: Sequence[Variable]) -> list[float | None]:
    """The period of each coordinate of the sensors: that of the query coordinate of its name; 360 for a longitude."""
    periods, dimension = known.domain.periods, 0 if known.x is None else known.x.shape[1]
    if not coordinates or not known.query_coordinate_names:
        return [*[None] * (dimension - len(periods)), *periods[-dimension:]]
    of_queries = dict(zip(map(canonical_name, known.query_coordinate_names), periods, strict=True))
    names = [canonical_name(variable.name) for variable in coordinates]
    return [LONGITUDE_PERIOD if name == "longitude" else of_queries.get(name) for name in names]


def longitude_column(known: Signature) -> int:
    """The number of the query coordinate that is a longitude; −1 if there is none."""
    names = [canonical_name(name) for name in known.query_coordinate_names]
    return names.index("longitude") if "longitude" in names else -1


def needs_turn(known: Signature, bounds: Sequence[tuple[float, float]]) -> bool:
    """Whether the operator is for a region of the globe and queries within these bounds are outside of it."""
    column = longitude_column(known)
    if column < 0 or known.domain.periods[column] is not None:
        return False
    low, high = known.domain.bounds[column]
    return bounds[column][0] < low or bounds[column][1] > high


def check_dimension(first: Samples, known: Signature) -> None:
    """Raise unless the queries have as many coordinates as the domain of the operator."""
    if first.domain.dimension != known.domain.dimension:
        raise ValueError(
            f"the queries have {first.domain.dimension} coordinates, {listed(first.query_coordinates)}, but the model "
            f"was made for {known.domain.dimension}, {listed(known.query_coordinates)}; pass data of this dimension"
        )


def taken(array: Array, order: Order | None) -> Array:
    """The entries of the last axis in another order."""
    return array if order is None else array[..., order]


def reordered(items: tuple[Item, ...], order: Order | None) -> tuple[Item, ...]:
    """Items in another order."""
    return items if order is None or not items else tuple(items[i] for i in order)
