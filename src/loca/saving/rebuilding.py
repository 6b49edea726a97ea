"""From a description back to a model, by putting fields in place: no constructor runs and no name is imported."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jaxtyping

from loca.saving.describing import join
from loca.saving.entries import Entry, checked_entry
from loca.saving.errors import ModelFileError, shown
from loca.saving.known import CLASSES, FUNCTIONS, Extra, own_names


def entries_in(description: Any, place: str = "") -> Iterator[tuple[str, Entry]]:
    """The places and kinds of all arrays of a description; raises if it describes nothing."""
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
            raise ModelFileError(f"{shown(place)} is described as {shown(description)}, which nothing is")
    for name, item in inside:
        yield from entries_in(item, join(place, name))


class Rebuilder:
    """Makes what a description, checked by `entries_in`, describes.

    **Arguments:**

    - `array`: gives the array of a place.
    - `extra`: a user's own classes and functions.
    - `writer`: the version of loca that wrote the file, for messages.
    """

    def __init__(self, array: Callable[[str], Any], extra: Extra, writer: str):
        classes, functions = own_names(extra)
        self.array = array
        self.classes = CLASSES | classes
        self.functions = FUNCTIONS | functions
        self.writer = writer

    def build(self, description: Any, place: str = "") -> Any:
        """The part of a model at some place."""
        match description:
            case {"class": name, "fields": fields}:
                return self.module(name, fields, place)
            case {"array": _}:
                return self.array(place)
            case {"function": name}:
                return self.functions.get(name) or self.refuse("function", name, place)
            case {"list": items}:
                return [self.build(item, join(place, str(i))) for i, item in enumerate(items)]
            case {"dict": items}:
                return {key: self.build(item, join(place, key)) for key, item in items.items()}
            case [*items]:
                return tuple(self.build(item, join(place, str(i))) for i, item in enumerate(items))
        return description

    def module(self, name: str, described: dict[str, Any], place: str) -> eqx.Module:
        """A module with these fields; one that has come to the class since the file was written gets its default."""
        cls = self.classes.get(name) or self.refuse("class", name, place)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        missing = [field.name for field in fields.values() if field.name not in described and no_default(field)]
        unknown = [field for field in described if field not in fields]
        if missing or unknown:
            raise ModelFileError(
                f"{shown(place)} is a {name} without {shown(missing)} and with {shown(unknown)}, but a {name} has the "
                f"fields {', '.join(fields)}; {self.way_out(name)}"
            )
        if isabstract(cls):
            raise ModelFileError(f"{shown(place)} is a {name}, of which there are kinds only and no instances")
        hints = hints_of(cls)
        module = object.__new__(cls)
        for field in fields.values():
            here = join(place, field.name)
            value = self.build(described[field.name], here) if field.name in described else default(field)
            if not fits(value, hints.get(field.name, Any)):
                raise ModelFileError(
                    f"{shown(here)} is {shown(type(value).__name__)}, but the field `{field.name}` of {name} is "
                    f"{hints[field.name]}"
                )
            object.__setattr__(module, field.name, value)
        return module

    def refuse(self, kind: str, name: str, place: str) -> typing.NoReturn:
        """Say that a name is not known, and what to do."""
        raise ModelFileError(f"{shown(place)} is of the {kind} {shown(name)}, not known here; {self.way_out(name)}")

    def way_out(self, name: str) -> str:
        """What to do when a class or function is not what the file says."""
        if "." in name:
            return f"install the version of loca-jax that wrote the file, {shown(self.writer)}"
        return f"if it is your own, pass it: load(path, extra=[{shown(name)[1:-1]}])"


def isabstract(cls: type) -> bool:
    """Whether a class says what a thing is without being one."""
    return bool(getattr(cls, "__abstractmethods__", ()))


def no_default(field: dataclasses.Field[Any]) -> bool:
    """Whether a field must be given."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def default(field: dataclasses.Field[Any]) -> Any:
    """What a field is when it is not given."""
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def hints_of(cls: type) -> dict[str, Any]:
    """What the fields of a class are to be; nothing if that cannot be found out, as for a class made in a function."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        return {}


def fits(value: Any, hint: Any) -> bool:
    """Whether a field may hold a value: by kind, not by shape, for an ensemble has one axis more than its members."""
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
    if hint in (int, float):  # where a number is due, a boolean is a mistake, but an integer may stand for a real one
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)
