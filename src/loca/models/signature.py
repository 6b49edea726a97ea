"""What an operator knows of the data it was made for."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Float

from loca.data import Free, Samples, Variable
from loca.domains import Domain
from loca.parameters import Fixed
from loca.typing import Measurements, MultiInput


class FieldSignature(Fixed):
    """What an operator knows of a field: the number of its channels, and its sensors.

    **Arguments:**

    - `channels`: how many.
    - `x`: locations of the sensors; None if unknown, or if every function has its own.
    - `coordinate_names`, `coordinate_units`: of the columns of x; empty if unknown.
    - `has_own_sensors`: whether every function has its own sensors.
    """

    channels: int = eqx.field(static=True)
    x: Float[Array, "m d_x"] | None
    coordinate_names: tuple[str, ...] = eqx.field(static=True)
    coordinate_units: tuple[str, ...] = eqx.field(static=True)
    has_own_sensors: bool = eqx.field(static=True)

    @classmethod
    def of(cls, data: Samples) -> FieldSignature:
        """The signature of the only field of some data."""
        ((field, x),) = data.fields
        return cls(data.input_size, x, *names_and_units(data.sensor_coordinates), isinstance(field, Measurements))

    @property
    def coordinates(self) -> tuple[Variable, ...]:
        """Names and units of the columns of x; empty if unknown."""
        return tuple(map(Variable, self.coordinate_names, self.coordinate_units))


class Signature(Fixed):
    """What an operator was made for: its domain, its sensors, and the names and units of its channels.

    Predictions do not depend on it, and optimizers do not change it.

    **Arguments:**

    - `domain`: Y.
    - `x`: locations of the sensors; None if unknown, if every function has its own, or if there are several inputs.
    - `input_names`, `input_units`: of the channels of u.
    - `output_names`, `output_units`: of the channels of s.
    - `y`: the queries that the functions share; None if every function has its own.
    - `sensor_coordinate_names`, `sensor_coordinate_units`: of the columns of x; empty if unknown.
    - `query_coordinate_names`, `query_coordinate_units`: of the columns of y; empty if unknown.
    - `has_own_sensors`: whether every function has its own sensors.
    - `fields`: the fields of several inputs; the channels of u after theirs are scalars. Empty for a single field.
    """

    domain: Domain
    x: Float[Array, "m d_x"] | None
    input_names: tuple[str, ...] = eqx.field(static=True)
    input_units: tuple[str, ...] = eqx.field(static=True)
    output_names: tuple[str, ...] = eqx.field(static=True)
    output_units: tuple[str, ...] = eqx.field(static=True)
    y: Float[Array, "M d_y"] | None = None
    sensor_coordinate_names: tuple[str, ...] = eqx.field(static=True, default=())
    sensor_coordinate_units: tuple[str, ...] = eqx.field(static=True, default=())
    query_coordinate_names: tuple[str, ...] = eqx.field(static=True, default=())
    query_coordinate_units: tuple[str, ...] = eqx.field(static=True, default=())
    has_own_sensors: bool = eqx.field(static=True, default=False)
    fields: tuple[FieldSignature, ...] = ()

    @classmethod
    def of(cls, data: Samples) -> Signature:
        """The signature of an operator that is made for some data."""
        is_single = not isinstance(data.u, MultiInput)
        fields = tuple(map(FieldSignature.of, data.parts[: len(data.fields)]))
        return cls(
            data.domain,
            fields[0].x if is_single else None,
            *names_and_units(data.inputs),
            *names_and_units(data.outputs),
            None if isinstance(data.y, Free) else data.y.points,
            *names_and_units(data.sensor_coordinates if is_single else ()),
            *names_and_units(data.query_coordinates),
            is_single and fields[0].has_own_sensors,
            () if is_single else fields,
        )

    @property
    def parts(self) -> tuple[FieldSignature, ...]:
        """Every field of several inputs, or the only one."""
        coordinates = self.sensor_coordinate_names, self.sensor_coordinate_units
        return self.fields or (FieldSignature(len(self.input_names), self.x, *coordinates, self.has_own_sensors),)

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of u."""
        return tuple(map(Variable, self.input_names, self.input_units))

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """Names and units of the channels of s."""
        return tuple(map(Variable, self.output_names, self.output_units))

    @property
    def query_coordinates(self) -> tuple[Variable, ...]:
        """Names and units of the columns of y: those of the data or, if it has none, of the domain."""
        if self.query_coordinate_names:
            return tuple(map(Variable, self.query_coordinate_names, self.query_coordinate_units))
        return tuple(map(Variable, self.domain.coordinate_names, self.domain.coordinate_units))


def names_and_units(variables: Sequence[Variable]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the units of variables, apart."""
    return tuple(variable.name for variable in variables), tuple(variable.unit for variable in variables)
