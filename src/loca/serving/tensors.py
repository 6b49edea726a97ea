"""The tensors in which requests hold the input functions of an operator."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from loca.data import Variable
from loca.models import Operator
from loca.serving.protocol import Tensor

MOST_SENSORS = 2**14
"""The most sensors that are tried for a model which does not know its own."""


class FieldTensors(NamedTuple):
    """The names of the tensors of one field; only values, unless every function has its own sensors."""

    values: str
    locations: str | None = None
    mask: str | None = None


def named(variables: Sequence[Variable]) -> dict[str, Any]:
    """Names and units of channels, in the parameters of a tensor."""
    units = [variable.unit for variable in variables]
    return {"channels": [variable.name for variable in variables], **({"units": units} if any(units) else {})}


def input_tensors(operator: Operator) -> tuple[tuple[FieldTensors, ...], str | None, list[Tensor]]:
    """The names of the tensors of each field and of the scalars, and all these tensors."""
    known, variables = operator.signature, iter(operator.inputs)
    parts = () if known is None else known.parts
    if not known or not known.fields:
        own = bool(parts) and parts[0].has_own_sensors
        x = None if not parts else parts[0].x
        sensors = -1 if own else count_sensors(operator) if x is None else len(x)
        sizes = [(sensors, len(operator.inputs), "", own)]
    else:
        sizes = [
            (-1 if each.x is None else len(each.x), each.channels, str(i + 1), each.has_own_sensors)
            for i, each in enumerate(known.fields)
        ]
    fields, tensors = [], []
    for i, (sensors, channels, ending, own) in enumerate(sizes):
        fields.append(FieldTensors(f"u{ending}", *((f"x{ending}", f"mask{ending}") if own else ())))
        if sensors < 0 and not own:
            raise ValueError(f"the model does not know the sensors of field {i + 1}; train it on data that has them")
        shape = (-1, sensors, channels)
        tensors.append(Tensor(f"u{ending}", "FP32", shape, named(list(itertools.islice(variables, channels)))))
        if own and known is not None:
            columns = parts[i].coordinate_names
            dimension = len(columns) or known.domain.dimension
            tensors.append(Tensor(f"x{ending}", "FP32", (-1, -1, dimension), {"columns": list(columns)}))
            tensors.append(Tensor(f"mask{ending}", "BOOL", (-1, -1), {"optional": True}))
    left = list(variables)
    if left:
        tensors.append(Tensor("scalars", "FP32", (-1, len(left)), named(left)))
    return tuple(fields), "scalars" if left else None, tensors


def count_sensors(operator: Operator) -> int:
    """The number of sensors of a model that does not know their locations: the only one that its encoder accepts."""

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
