"""A model as a tree of JSON values, and its arrays by their places in that tree.

number, text, true, false, null     themselves
[...]                               a tuple
{"list": [...]}, {"dict": {...}}    a list, a dictionary
{"class": name, "fields": {...}}    a module
{"function": name}                  an activation
{"array": [dtype, *shape]}          an array, stored under its place, such as `q.weights.0`

A model is rebuilt by setting fields: no constructor runs, and no name in a file is imported.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jaxtyping
import numpy as np

from loca.saving.container import Arrays, Entry, checked_entry, entry_of
from loca.saving.registry import FUNCTIONS, Classes, builtin_class, name_of, name_of_function, own_names
from loca.saving.strict_json import ModelFileError, quoted


def describe(value: Any, place: str, arrays: Arrays) -> Any:
    """Describe a part of a model as JSON values, and add its arrays to `arrays`.

    **Arguments:**

    - `value`: the part.
    - `place`: its place in the model, such as `q.weights`; empty for the model itself.
    - `arrays`: the arrays found so far, by place.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, eqx.Module):
        fields = {
            field.name: describe(getattr(value, field.name), join(place, field.name), arrays)
            for field in dataclasses.fields(value)
        }
        return {"class": name_of(type(value)), "fields": fields}
    if isinstance(value, jax.Array | np.ndarray):
        if place in arrays:
            raise ModelFileError(f"two arrays of this model would be called `{place}`; use keys without dots")
        arrays[place] = value
        entry = entry_of(value, place)
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
        return {"function": name_of_function(value, place)}
    raise ModelFileError(
        f"`{place}` is {value!r} of type {type(value).__name__}, which a model file cannot hold; it holds modules, "
        "arrays, finite numbers, text, tuples, lists, dictionaries with text keys, and named functions"
    )


def join(place: str, name: str) -> str:
    """The place of a named part inside another."""
    return f"{place}.{name}" if place else name


def entries_in(description: Any, place: str = "") -> Iterator[tuple[str, Entry]]:
    """The places and entries of all arrays of a description; raise if any of it is not a valid description."""
    match description:
        case None | bool() | int() | float() | str():
            return
        case list(items) | {"list": list(items)} if isinstance(description, list) or len(description) == 1:
            inside = [(str(i), item) for i, item in enumerate(items)]
        case {"dict": dict(items)} if len(description) == 1:
            inside = list(items.items())
        case {"class": str(), "fields": dict(items)} if len(description) == 2:
            inside = list(items.items())
        case {"function": str()} if len(description) == 1:
            return
        case {"array": entry} if len(description) == 1:
            yield place, checked_entry(entry, place)
            return
        case _:
            raise ModelFileError(
                f"{quoted(place)} is described as {quoted(description)}; expected a module, a function, an array, or "
                "a plain value"
            )
    for name, item in inside:
        yield from entries_in(item, join(place, name))


class Rebuilder:
    """Rebuilds what a description, checked by `entries_in`, describes.

    **Arguments:**

    - `read`: returns the array of a place.
    - `classes`: classes and functions of the caller.
    - `writer`: the version of loca that wrote the file, for messages.
    """

    def __init__(self, read: Callable[[str], Any], classes: Classes, writer: str):
        self.read = read
        self.own_classes, self.own_functions = own_names(classes)
        self.writer = writer

    def build(self, description: Any, place: str = "") -> Any:
        """Rebuild the part of a model at a place."""
        match description:
            case {"class": name, "fields": fields}:
                return self.module(name, fields, place)
            case {"array": _}:
                return self.read(place)
            case {"function": name}:
                return FUNCTIONS.get(name) or self.own_functions.get(name) or self.refuse("function", name, place)
            case {"list": items}:
                return [self.build(item, join(place, str(i))) for i, item in enumerate(items)]
            case {"dict": items}:
                return {key: self.build(item, join(place, key)) for key, item in items.items()}
            case [*items]:
                return tuple(self.build(item, join(place, str(i))) for i, item in enumerate(items))
        return description

    def module(self, name: str, described: dict[str, Any], place: str) -> eqx.Module:
        """Rebuild a module; a field added to its class after the file was written gets its default."""
        cls = builtin_class(name) or self.own_classes.get(name) or self.refuse("class", name, place)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        missing = [field.name for field in fields.values() if field.name not in described and no_default(field)]
        unknown = [field for field in described if field not in fields]
        if missing or unknown:
            raise ModelFileError(
                f"{quoted(place)} is a {name} without {quoted(missing)} and with {quoted(unknown)}, but a {name} has "
                f"the fields {', '.join(fields)}; {self.remedy(name)}"
            )
        if is_abstract(cls):
            raise ModelFileError(f"{quoted(place)} is a {name}, which is an abstract class and has no instances")
        hints = hints_of(cls)
        module = object.__new__(cls)
        for field in fields.values():
            here = join(place, field.name)
            value = self.build(described[field.name], here) if field.name in described else default(field)
            if not fits(value, hints.get(field.name, Any)):
                raise ModelFileError(
                    f"{quoted(here)} is of type {quoted(type(value).__name__)}, but the field `{field.name}` of {name} "
                    f"is {hints[field.name]}"
                )
            object.__setattr__(module, field.name, value)
        return module

    def refuse(self, kind: str, name: str, place: str) -> typing.NoReturn:
        """Raise for an unknown name."""
        raise ModelFileError(f"{quoted(place)} names the unknown {kind} {quoted(name)}; {self.remedy(name)}")

    def remedy(self, name: str) -> str:
        """What to do if a class or function is not what the file says."""
        if "." in name:
            return f"install the version of loca-jax that wrote the file, {quoted(self.writer)}"
        return f"if it is your own, pass it: load(path, classes=[{quoted(name)[1:-1]}])"


def is_abstract(cls: type) -> bool:
    """Whether a class has abstract methods or variables, and so no instances."""
    return bool(getattr(cls, "__abstractmethods__", ()) or getattr(cls, "__abstractvars__", ()))


def no_default(field: dataclasses.Field[Any]) -> bool:
    """Whether a field must be given."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def default(field: dataclasses.Field[Any]) -> Any:
    """The value of a field that is not given."""
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def hints_of(cls: type) -> dict[str, Any]:
    """The types of the fields of a class; empty if they cannot be resolved, as for a class defined in a function."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        return {}


def fits(value: Any, hint: Any) -> bool:
    """Whether a field may hold a value: by type, not by shape, because an ensemble has one axis more than a member."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, choice) for choice in inside)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(inside) == 2 and inside[1] is Ellipsis:
            return all(fits(item, inside[0]) for item in value)
        return len(value) == len(inside) and all(fits(item, kind) for item, kind in zip(value, inside, strict=True))
    if origin is not None:
        return callable(value) if origin is Callable else True
    if not isinstance(hint, type):
        return True
    if issubclass(hint, jaxtyping.AbstractArray):
        return hasattr(value, "shape") and hasattr(value, "dtype")
    if hint in (int, float):  # an integer may stand for a real number, but a boolean is a mistake
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)
