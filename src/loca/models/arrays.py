"""The arrays of input functions, by the names under which programs and servers take them."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array

from loca.models.operator import Operator
from loca.models.signature import Signature
from loca.typing import Input, Measurements, MultiInput

FIELD_ARRAYS = ("u", "x", "mask")
"""The arrays of a field whose functions have their own sensors."""

MOST_SENSORS = 2**14
"""The most sensors that are tried for an operator which does not know its own."""


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


def count_sensors(operator: Operator) -> int:
    """The number of sensors of an operator that does not know their locations: the only one that its encoder accepts.

    It has a single field. Raise `ValueError` if no number, or every one, is accepted.
    """

    def accepts(sensors: int) -> bool:
        try:
            jax.eval_shape(operator.encode, jax.ShapeDtypeStruct((sensors, len(operator.inputs)), jnp.float32))
        except (ValueError, TypeError):
            return False
        return True

    found = next(filter(accepts, range(1, MOST_SENSORS + 1)), None)
    if found is None or accepts(found + 1):
        raise ValueError("the model does not know its sensors; train it on data that has them, `Samples(..., x=...)`")
    return found
