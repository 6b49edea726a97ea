"""Inputs in the form that an operator was made for: its fields and numbers, with its sensors, in its order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Interpolation, Samples, Variable
from loca.models.grid import interpolation_between
from loca.models.matching import (
    LONGITUDE_PERIOD,
    Order,
    canonical_name,
    changed,
    column_order,
    described,
    listed,
    matching_order,
)
from loca.models.operator import FieldSignature, Signature
from loca.typing import Field, Input, Measurements, MultiInput, SensorLocations

Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True, eq=False)
class FieldAdaptation:
    """How a field of the operator comes from the data; what is None or False is not needed.

    **Arguments:**

    - `known`: what the operator knows of its field.
    - `source`: the number of the field in the data.
    - `channels`: the order of the channels; numbers beyond those of the field are scalars, constant in space.
    - `columns`: the order of the coordinates of x.
    - `sensors`: the order of the sensors, or the interpolation to those of the operator.
    - `as_measurements`: whether sensors that all functions share are given to every function as its own.
    - `note`: what is done to the sensors, in words.
    """

    known: FieldSignature
    source: int
    channels: Order | None
    columns: Order | None
    sensors: Order | Interpolation | None
    as_measurements: bool
    note: str

    @classmethod
    def of(
        cls, data: Samples, known: FieldSignature, whole: Signature, source: int, channels: Order, regrid: bool
    ) -> FieldAdaptation:
        """The changes that a field of the data needs, given as the only field of some samples."""
        columns = column_order(data.sensor_coordinates, known.coordinates, "sensors")
        sensors, note = sensor_change(data, known, whole, columns, regrid)
        is_shared = not isinstance(data.u, Measurements) and data.x is not None
        order = None if len(channels) == data.input_size and changed(channels) is None else channels
        return cls(known, source, order, columns, sensors, known.has_own_sensors and is_shared, note)

    @property
    def is_identity(self) -> bool:
        """Whether the field needs no change."""
        return self.channels is self.columns is self.sensors is None and not self.as_measurements

    def __call__(
        self, field: Field, x: Float[Array, "_ d_x"] | None, scalars: Float[Array, "_ k"] | None
    ) -> tuple[Field, Float[Array, "_ d_x"] | None]:
        """The field and its sensors as the operator expects them."""
        if isinstance(field, Measurements):
            values = self._channels(field.u, scalars)
            return Measurements(values, taken(field.x, self.columns), field.mask), None
        values, x = self._channels(field, scalars), None if x is None else taken(x, self.columns)
        if self.sensors is not None:
            change = self.sensors
            values = jax.vmap(change)(values) if isinstance(change, Interpolation) else values[:, change]
            x = self.known.x
        if self.as_measurements and x is not None:
            own = jnp.broadcast_to(x, (len(values), *x.shape))
            return Measurements(values, own, jnp.ones(own.shape[:2], bool)), None
        return values, x

    def _channels(self, values: Float[Array, "N m _"], scalars: Float[Array, "N k"] | None) -> Float[Array, "N m _"]:
        if self.channels is not None and self.channels.max() >= values.shape[-1] and scalars is not None:
            constant = jnp.broadcast_to(scalars[:, None], (*values.shape[:2], scalars.shape[-1]))
            values = jnp.concatenate([values, constant], axis=-1)
        return taken(values, self.channels)


@dataclasses.dataclass(frozen=True, eq=False)
class InputAdaptation:
    """How the inputs of the operator come from the data.

    **Arguments:**

    - `fields`: how each field does; none if nothing is known.
    - `scalars`: the order of the numbers beside fields; None if it does not change.
    - `is_single`: whether the operator takes one field alone.
    """

    fields: tuple[FieldAdaptation, ...] = ()
    scalars: Order | None = None
    is_single: bool = True

    @classmethod
    def of(cls, data: Samples, known: Signature, order: Order | None, regrid: bool) -> InputAdaptation:
        """The changes that the inputs of the data need, whose channels have this order in the operator."""
        sizes = [part.input_size for part in data.parts[: len(data.fields)]]
        total, count = sum(sizes), len(data.inputs)
        numbers = iter(np.arange(count) if order is None else order)
        owner = np.repeat(np.arange(len(sizes) + 1), [*sizes, count - total])  # the last one owns the scalars
        starts = np.cumsum([0, *sizes])
        fields = []
        for field in known.parts:
            mine = np.array(list(itertools.islice(numbers, field.channels)))
            sources = set(owner[mine].tolist()) - {len(sizes)}
            if len(sources) != 1:
                raise ValueError(other_form(data, known))
            (source,) = sources
            local = np.where(mine < total, mine - starts[source], sizes[source] + mine - total)
            fields.append(FieldAdaptation.of(data.parts[source], field, known, source, local, regrid))
        left = np.array(list(numbers), int) - total
        if (left < 0).any():
            raise ValueError(other_form(data, known))
        unchanged = len(left) == count - total and changed(left) is None
        return cls(tuple(fields), None if unchanged else left, not known.fields)

    @property
    def is_identity(self) -> bool:
        """Whether the inputs need no change."""
        in_place = all(field.is_identity and field.source == i for i, field in enumerate(self.fields))
        return in_place and self.scalars is None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is done to the sensors, in words."""
        return tuple(field.note for field in self.fields if field.note)

    def __call__(self, data: Samples) -> tuple[Input, SensorLocations, tuple[Variable, ...]]:
        """u, x and the coordinates of x as the operator expects them."""
        if not self.fields:
            return data.u, data.x, data.sensor_coordinates
        scalars = data.u.scalars if isinstance(data.u, MultiInput) else None
        made = [field(*data.fields[field.source], scalars) for field in self.fields]
        coordinates = tuple(
            each
            for field in self.fields
            for each in reordered(data.parts[field.source].sensor_coordinates, field.columns)
        )
        if self.is_single:
            return *made[0], coordinates
        fields, places = zip(*made, strict=True)
        numbers = None if scalars is None or not scalars.shape[-1] else taken(scalars, self.scalars)
        numbers = None if numbers is None or not numbers.shape[-1] else numbers
        return MultiInput(fields, numbers), places, coordinates


def other_form(data: Samples, known: Signature) -> str:
    """That the fields and numbers of the data cannot be those of the operator."""
    here = [part.input_size for part in data.parts[: len(data.fields)]]
    there = [field.channels for field in known.parts]
    return (
        f"the data has {form(data.inputs, here)}, but the model was made for {form(known.inputs, there)}; pass inputs "
        "of this form: `loca.typing.MultiInput` for several fields, or for numbers beside them"
    )


def form(variables: Sequence[Variable], sizes: Sequence[int]) -> str:
    """Fields and numbers in words."""
    names = iter(variables)
    fields = [f"the field {listed(list(itertools.islice(names, size)))}" for size in sizes]
    numbers = list(names)
    return " and ".join([*fields, *([f"the numbers {listed(numbers)}"] if numbers else [])])


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


def taken(array: Array, order: Order | None) -> Array:
    """The entries of the last axis in another order."""
    return array if order is None else array[..., order]


def reordered(items: tuple[Item, ...], order: Order | None) -> tuple[Item, ...]:
    """Items in another order."""
    return items if order is None or not items else tuple(items[i] for i in order)
