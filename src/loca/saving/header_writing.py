"""What a model file is to say of a model, as JSON."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from loca.data import Records, Samples, Variable
from loca.domains import Domain
from loca.models import LOCA, DeepONet, Operator
from loca.parameters import count
from loca.saving import document
from loca.saving.describing import describe
from loca.saving.errors import ModelFileError
from loca.saving.header import FORMAT, Header
from loca.saving.known import CLASS_NAMES

PACKAGES = ("loca-jax", "jax", "equinox", "numpy")
"""What the numbers depend on."""


def write_document(
    model: Operator,
    structure: Any,
    data: Samples | Records | Header | None,
    metrics: Mapping[str, float],
    provenance: Mapping[str, Any],
) -> str:
    """The JSON text that becomes a `Header` when it is read."""
    normalization = {
        field.name: np.asarray(getattr(model.normalization, field.name), np.float64)
        for field in dataclasses.fields(model.normalization)
    }
    inputs, outputs = channels(data, normalization["u_shift"].shape[-1], normalization["s_shift"].shape[-1])
    domain = domain_of(model, data)
    return document.write(
        {
            "format": FORMAT,
            "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
            "model": structure,
            "parameters": count(model),
            "domain": None if domain is None else describe(domain, "domain", {}),
            "normalization": {name: numbers(values, name) for name, values in normalization.items()},
            "inputs": [variable._asdict() for variable in inputs],
            "outputs": [variable._asdict() for variable in outputs],
            "metrics": {str(name): number(value, f"metrics[{name!r}]") for name, value in metrics.items()},
            "provenance": plain(provenance, "provenance"),
        }
    )


def channels(
    data: Samples | Records | Header | None, input_size: int, output_size: int
) -> tuple[tuple[Variable, ...], tuple[Variable, ...]]:
    """Names and units of the channels of u and s: those of the data, or u1, u2, … and s1, s2, …"""
    if data is None:
        return (
            tuple(Variable(f"u{i + 1}") for i in range(input_size)),
            tuple(Variable(f"s{i + 1}") for i in range(output_size)),
        )
    if (len(data.inputs), len(data.outputs)) != (input_size, output_size):
        raise ModelFileError(
            f"the data has {len(data.inputs)} input and {len(data.outputs)} output channels but the model has "
            f"{input_size} and {output_size}; pass the data that the model was made for"
        )
    return data.inputs, data.outputs


def domain_of(model: Operator, data: Samples | Records | Header | None) -> Domain | None:
    """Y, from the data or else from the model, if it is a built-in domain, which every reader knows."""
    match model:
        case _ if data is not None:
            domain = data.domain
        case LOCA(rule=part) | DeepONet(e=part):
            domain = getattr(part, "domain", None)
        case _:
            return None
    return domain if isinstance(domain, Domain) and type(domain) in CLASS_NAMES else None


def number(value: Any, name: str) -> float:
    """A finite number."""
    if not math.isfinite(value):
        raise ModelFileError(f"{name} is {value}, and a model file holds finite numbers only; leave it out")
    return float(value)


def numbers(values: np.ndarray, name: str) -> list[float]:
    """Finite numbers, one for each channel."""
    return [number(value, f"normalization.{name}") for value in values.reshape(-1).tolist()]


def plain(value: Any, name: str) -> Any:
    """A value as JSON can hold it."""
    match value:
        case None | bool() | str():
            return value
        case np.generic():
            return plain(value.item(), name)
        case int() if abs(value) < 2**63:
            return int(value)
        case float():
            return number(value, name)
        case Mapping():
            return {str(key): plain(item, f"{name}[{key!r}]") for key, item in value.items()}
        case list() | tuple():
            return [plain(item, f"{name}[{i}]") for i, item in enumerate(value)]
    raise ModelFileError(
        f"{name} is {value!r} of type {type(value).__name__}; give text, numbers, lists and dictionaries"
    )
