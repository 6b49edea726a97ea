"""What an operator knows of the data it was made for."""

from collections.abc import Iterator, Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Free, Samples, Variable, coordinates_of
from loca.domains import Domain
from loca.parameters import Fixed
from loca.typing import Input, Measurements, MultiInput


class FieldSignature(Fixed):
    """What an operator knows of a field: the number of its channels, and its sensors."""

    channels: int = eqx.field(static=True)
    x: Float[Array, "m d_x"] | None  # locations of the sensors; None if unknown, or if every function has its own
    coordinate_names: tuple[str, ...] = eqx.field(static=True)  # of the columns of x; empty if unknown
    coordinate_units: tuple[str, ...] = eqx.field(static=True)
    has_own_sensors: bool = eqx.field(static=True)  # whether every function has its own sensors

    @classmethod
    def of(cls, data: Samples) -> "FieldSignature":
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
    """

    domain: Domain  # Y
    fields: tuple[FieldSignature, ...]  # those of u; channels of u after theirs are scalars
    is_several: bool = eqx.field(static=True)  # whether u is a `MultiInput`
    input_names: tuple[str, ...] = eqx.field(static=True)
    input_units: tuple[str, ...] = eqx.field(static=True)
    output_names: tuple[str, ...] = eqx.field(static=True)
    output_units: tuple[str, ...] = eqx.field(static=True)
    y: Float[Array, "M d_y"] | None  # the queries that the functions share; None if every function has its own
    query_coordinate_names: tuple[str, ...] = eqx.field(static=True)  # of the columns of y; empty if unknown
    query_coordinate_units: tuple[str, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, data: Samples) -> "Signature":
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
        return coordinates_of(self.domain)


def names_and_units(variables: Sequence[Variable]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the units of variables, apart."""
    return tuple(variable.name for variable in variables), tuple(variable.unit for variable in variables)


# ---- the arrays of input functions, by the names under which programs and servers take them --------------------------

FIELD_ARRAYS = ("u", "x", "mask")
"""The arrays of a field whose functions have their own sensors."""


def named_arrays(u: Input, number: str = "") -> Iterator[tuple[str, Array, tuple[int | str, ...]]]:
    """The arrays of an input function with their names and shapes: u, x and mask of each field, and scalars.

    Names of several fields are numbered. The number of sensors is free, m, if every function has its own.
    """
    if isinstance(u, MultiInput):
        for i, field in enumerate(u.fields, 1):
            yield from named_arrays(field, str(i))
        if u.scalars is not None:
            yield "scalars", u.scalars, u.scalars.shape
    elif isinstance(u, Measurements):
        for name in FIELD_ARRAYS:
            array = getattr(u, name)
            yield f"{name}{number}", array, (f"m{number}", *array.shape[1:])
    else:
        yield f"u{number}", u, u.shape


def example_of(signature: Signature, sensors: int = 0) -> Input:
    """An input function of zeros in the form that an operator with this signature takes.

    `sensors` is the number of sensors of a field whose sensors are the same for all functions, but unknown.
    """
    fields = []
    for part in signature.fields:
        if part.x is None and part.has_own_sensors:
            x = jnp.zeros((1, len(part.coordinate_names) or signature.domain.dimension))
            fields.append(Measurements(jnp.zeros((1, part.channels)), x, jnp.ones(1, bool)))
        else:
            fields.append(jnp.zeros((sensors if part.x is None else len(part.x), part.channels)))
    if not signature.is_several:
        return fields[0]
    scalars = len(signature.input_names) - sum(part.channels for part in signature.fields)
    return MultiInput(tuple(fields), jnp.zeros(scalars) if scalars else None)


def knows_sensors(signature: Signature) -> bool:
    """Whether the number of sensors of every field is known, or the dimension of its locations if it is free."""
    return all(part.x is not None or (part.has_own_sensors and part.coordinate_names) for part in signature.fields)
