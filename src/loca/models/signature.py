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
    - `fields`: those of u; channels of u after theirs are scalars.
    - `is_several`: whether u is a `MultiInput`.
    - `input_names`, `input_units`: of the channels of u.
    - `output_names`, `output_units`: of the channels of s.
    - `y`: the queries that the functions share; None if every function has its own.
    - `query_coordinate_names`, `query_coordinate_units`: of the columns of y; empty if unknown.
    """

    domain: Domain
    fields: tuple[FieldSignature, ...]
    is_several: bool = eqx.field(static=True)
    input_names: tuple[str, ...] = eqx.field(static=True)
    input_units: tuple[str, ...] = eqx.field(static=True)
    output_names: tuple[str, ...] = eqx.field(static=True)
    output_units: tuple[str, ...] = eqx.field(static=True)
    y: Float[Array, "M d_y"] | None
    query_coordinate_names: tuple[str, ...] = eqx.field(static=True)
    query_coordinate_units: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, data: Samples) -> Signature:
        """The signature of an operator that is made for some data."""
        return cls(
            data.domain,
            tuple(map(FieldSignature.of, data.parts[: len(data.fields)])),
            isinstance(data.u, MultiInput),
            *names_and_units(data.inputs),
            *names_and_units(data.outputs),
            None if isinstance(data.y, Free) else data.y.points,
            *names_and_units(data.query_coordinates),
        )

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
