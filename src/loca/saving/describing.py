"""A model as a tree of JSON values that say what it is made of, and its arrays by their places in that tree.

number, text, true, false, null     themselves
[...]                               a tuple
{"list": [...]}, {"dict": {...}}    a list, a dictionary
{"class": name, "fields": {...}}    a module
{"function": name}                  an activation
{"array": [dtype, *shape]}          an array, stored under its place, such as `q.weights.0`
"""

from __future__ import annotations

import dataclasses
import math
import types
from typing import Any

import equinox as eqx
import jax
import numpy as np

from loca.saving.entries import Arrays, entry_of
from loca.saving.errors import ModelFileError
from loca.saving.known import CLASS_NAMES, FUNCTION_NAMES


def describe(value: Any, place: str, arrays: Arrays) -> Any:
    """The description of a part of a model; its arrays are added to `arrays`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, eqx.Module):
        fields = {
            field.name: describe(getattr(value, field.name), join(place, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"class": class_name(type(value)), "fields": fields}
    if isinstance(value, jax.Array | np.ndarray):
        if place in arrays:
            raise ModelFileError(f"two arrays of this model would be called `{place}`; use keys without dots")
        arrays[place] = value
        entry = entry_of(value.dtype, value.shape, place)
        return {"array": [entry.dtype, *entry.shape]}
    match value:
        case None | bool() | str():
            return value
        case int() if type(value) is int and abs(value) < 2**63:
            return value
        case float() if math.isfinite(value):
            return float(value)
        case tuple() if type(value) is tuple:
            return [describe(item, join(place, str(i)), arrays) for i, item in enumerate(value)]
        case list():
            return {"list": [describe(item, join(place, str(i)), arrays) for i, item in enumerate(value)]}
        case dict() if all(type(key) is str for key in value):
            return {"dict": {key: describe(item, join(place, key), arrays) for key, item in value.items()}}
    if callable(value):
        return {"function": function_name(value, place)}
    raise ModelFileError(
        f"`{place}` is {value!r} of type {type(value).__name__}, which a model file cannot hold; it holds modules, "
        "arrays, finite numbers, text, tuples, lists, dictionaries with text as keys, and named functions"
    )


def join(place: str, name: str) -> str:
    """The place of something inside a place."""
    return f"{place}.{name}" if place else name


def class_name(cls: type[eqx.Module]) -> str:
    """Ours with a dot, a user's own without."""
    return CLASS_NAMES.get(cls, cls.__name__)


def function_name(function: Any, place: str) -> str:
    """Ours with dots, a user's own without."""
    if function in FUNCTION_NAMES:
        return FUNCTION_NAMES[function]
    name = getattr(function, "__name__", "")
    if isinstance(function, types.MethodType) or not name.isidentifier():
        raise ModelFileError(
            f"`{place}` is {function!r}, and a model file holds functions by name only; define it with `def` at the "
            "top of a module, and pass it as `extra` when loading"
        )
    return name
