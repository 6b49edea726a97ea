"""A model as a tree of JSON values, and its arrays by their places in that tree.

number, text, true, false, null     themselves
[...]                               a tuple
{"list": [...]}, {"dict": {...}}    a list, a dictionary
{"class": name, "fields": {...}}    a module
{"function": name}                  an activation
{"array": [dtype, *shape]}          an array, stored under its place, such as `q.weights.0`

A model is rebuilt by setting fields: no constructor runs, and no name in a file is imported. A class of the package is
called `part.ClassName`, such as `kernels.RBF`, and looked up among the classes of the part; the parts are fixed. A
class of the caller has its bare name, such as `MyKernel`; neither can pass for the other.
"""

import dataclasses
import functools
import importlib
import math
import pkgutil
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np

from loca.saving.container import TYPES, Arrays, ModelFileError, quoted

PARTS = (
    *("attention", "data", "domains", "encoders", "gaussian", "kernels", "local", "models", "nets", "parameters"),
    *("positions", "rules", "sensitivity", "symmetries", "uncertainty"),
)
"""The parts of the package that models are made of."""

NN = "celu elu gelu identity leaky_relu mish relu selu sigmoid silu soft_sign softplus"
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"jax.nn.{name}": getattr(jax.nn, name) for name in NN.split()},
    **{f"jax.numpy.{name}": getattr(jnp, name) for name in ("cos", "sin", "tanh")},
}
"""The activations that need not be passed to `load`, by their names in files."""

Classes = Iterable[type[eqx.Module] | Callable[..., Any]]
"""Classes and functions of the caller that models are made of."""


# ---- names -----------------------------------------------------------------------------------------------------------


def name_of(cls: type[eqx.Module]) -> str:
    """The name of a class in files: with a dot for a class of the package, without for any other."""
    package, _, path = cls.__module__.partition(".")
    name = f"{path.partition('.')[0]}.{cls.__name__}"
    return name if package == "loca" and builtin_class(name) is cls else cls.__name__


def builtin_class(name: str) -> type[eqx.Module] | None:
    """The class of the package with this name in files, or None."""
    part = name.partition(".")[0]
    return classes_in(part).get(name) if part in PARTS else None


@functools.cache
def classes_in(part: str) -> dict[str, type[eqx.Module]]:
    """All modules (in the sense of Equinox) that the files of a part define, by their names in files.

    Subfolders are not searched: those of `data` would import xarray, which takes longer than loading a model.
    """
    package = importlib.import_module(f"loca.{part}")
    files = [f"{package.__name__}.{file.name}" for file in pkgutil.iter_modules(getattr(package, "__path__", ()))]
    return {
        f"{part}.{cls.__name__}": cls
        for file in (package, *map(importlib.import_module, files))
        for cls in vars(file).values()
        if isinstance(cls, type) and issubclass(cls, eqx.Module) and cls.__module__ == file.__name__
    }


def _name_of_function(function: Any, place: str) -> str:
    """The name of a function in files: with dots for a built-in activation, without for any other."""
    for name, known in FUNCTIONS.items():
        if function is known:
            return name
    name = getattr(function, "__name__", "")
    if isinstance(function, types.MethodType) or not name.isidentifier():
        raise ModelFileError(
            f"`{place}` is {function!r}, but a model file stores functions by name; define it with `def` at the top "
            "level of a module, and pass it when loading: load(path, classes=[...])"
        )
    return name


def _own_names(classes: Classes) -> dict[str, Any]:
    """The caller's classes and functions, by the bare names that `save` gives them."""
    named: dict[str, Any] = {}
    for thing in classes:
        name = getattr(thing, "__name__", None)
        if name is None or (isinstance(thing, type) and not issubclass(thing, eqx.Module)):
            raise TypeError(f"`classes` takes Equinox modules and named functions, got {thing}")
        if name in named:
            raise ModelFileError(f"`classes` holds two things called {name}; rename one of them")
        named[name] = thing
    return named


# ---- writing ---------------------------------------------------------------------------------------------------------


def describe(value: Any, place: str, arrays: Arrays) -> Any:
    """Describe a part of a model as JSON values, and add its arrays to `arrays`, by their places.

    The place of the part itself is a path such as `q.weights`; empty for the model itself.
    """

    def inside(items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        return {key: describe(item, _join(place, key), arrays) for key, item in items}

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, eqx.Module):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {"class": name_of(type(value)), "fields": inside(fields)}
    if isinstance(value, jax.Array | np.ndarray):
        if place in arrays:
            raise ModelFileError(f"two arrays of this model would be called `{place}`; use keys without dots")
        if str(value.dtype) not in TYPES:
            raise ModelFileError(
                f"`{place}` is an array of {value.dtype}, which a model file cannot hold; it holds {', '.join(TYPES)}. "
                "Store complex numbers as real and imaginary parts, and keep random keys out of the model"
            )
        arrays[place] = value
        return {"array": [str(value.dtype), *value.shape]}
    match value:
        case None | bool() | str():
            return value
        case int() if type(value) is int and abs(value) < 2**63:
            return value
        case float() if math.isfinite(value):
            return float(value)
        case tuple() if type(value) is tuple:
            return list(inside((str(i), item) for i, item in enumerate(value)).values())
        case list():
            return {"list": list(inside((str(i), item) for i, item in enumerate(value)).values())}
        case dict() if all(type(key) is str for key in value):
            return {"dict": inside(value.items())}
    if callable(value):
        return {"function": _name_of_function(value, place)}
    raise ModelFileError(
        f"`{place}` is {value!r} of type {type(value).__name__}, which a model file cannot hold; it holds modules, "
        "arrays, finite numbers, text, tuples, lists, dictionaries with text keys, and named functions"
    )


def _join(place: str, name: str) -> str:
    """The place of a named part inside another."""
    return f"{place}.{name}" if place else name


# ---- reading ---------------------------------------------------------------------------------------------------------


class Rebuilder:
    """Rebuilds a model from its description and arrays, which may come from a file of any origin.

    `arrays` are those of the file by place, `classes` those of the caller; messages name the version of the `writer`.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], classes: Classes, writer: str):
        self.arrays, self.unused = arrays, set(arrays)
        self.own, self.writer = _own_names(classes), writer

    def build(self, description: Any, place: str = "") -> Any:
        """Rebuild the part of a model at a place."""
        match description:
            case {"class": str(name), "fields": dict(fields)} if len(description) == 2:
                return self.module(name, fields, place)
            case {"array": [str(dtype), *shape]} if len(description) == 1:
                return self.array([dtype, *shape], place)
            case {"function": str(name)} if len(description) == 1:
                found = FUNCTIONS.get(name) or self.own.get(name)
                if not callable(found) or isinstance(found, type):
                    self.refuse("function", name, place)
                return found
            case {"list": list(items)} if len(description) == 1:
                return [self.build(item, _join(place, str(i))) for i, item in enumerate(items)]
            case {"dict": dict(items)} if len(description) == 1:
                return {key: self.build(item, _join(place, key)) for key, item in items.items()}
            case list(items):
                return tuple(self.build(item, _join(place, str(i))) for i, item in enumerate(items))
            case None | bool() | int() | float() | str():
                return description
        raise ModelFileError(
            f"{quoted(place)} is described as {quoted(description)}; expected a module, a function, an array, or a "
            "plain value"
        )

    def array(self, described: list[Any], place: str) -> jax.Array:
        """The array of a place."""
        array = self.arrays.get(place)
        found = None if array is None else [str(array.dtype), *array.shape]
        if array is None or found != described:
            raise ModelFileError(f"the array {quoted(place)} is described as {quoted(described)}, but is {found}")
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            raise ModelFileError(
                f"the array {quoted(place)} has 64-bit numbers ({array.dtype}), which JAX would truncate to 32 bits; "
                "set JAX_ENABLE_X64=1, or load it inside `with jax.enable_x64(True):`"
            )
        self.unused.discard(place)
        return jnp.asarray(array)

    def module(self, name: str, described: dict[str, Any], place: str) -> eqx.Module:
        """Rebuild a module."""
        cls = builtin_class(name) or self.own.get(name)
        if not (isinstance(cls, type) and issubclass(cls, eqx.Module)):
            self.refuse("class", name, place)
        known = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        fields = [field.name for field in known]
        # an earlier version may have had parts that this model did not use, and lacked some that have defaults
        described = {field: value for field, value in described.items() if field in fields or value is not None}
        absent = {field.name: field.default for field in known if field.name not in described}
        if not set(described) <= set(fields) or dataclasses.MISSING in absent.values():
            raise ModelFileError(
                f"{quoted(place)} is a {name} with the fields {quoted(list(described))}, but a {name} has the fields "
                f"{', '.join(fields)}; {self.remedy(name)}"
            )
        if getattr(cls, "__abstractmethods__", ()) or getattr(cls, "__abstractvars__", ()):
            raise ModelFileError(f"{quoted(place)} is a {name}, which is an abstract class and has no instances")
        hints = _hints_of(cls)
        module = object.__new__(cls)
        for field in fields:
            value = absent[field] if field in absent else self.build(described[field], _join(place, field))
            if not _fits(value, hints.get(field, Any)):
                raise ModelFileError(
                    f"{quoted(_join(place, field))} is of type {quoted(type(value).__name__)}, but the field `{field}` "
                    f"of {name} is {hints[field]}"
                )
            object.__setattr__(module, field, value)
        return module

    def refuse(self, kind: str, name: str, place: str) -> typing.NoReturn:
        """Raise for an unknown name."""
        raise ModelFileError(f"{quoted(place)} names the unknown {kind} {quoted(name)}; {self.remedy(name)}")

    def remedy(self, name: str) -> str:
        """What to do if a class or function is not what the file says."""
        if "." in name:
            return f"install the version of loca-jax that wrote the file, {quoted(self.writer)}"
        return f"if it is your own, pass it: load(path, classes=[{quoted(name)[1:-1]}])"


def _hints_of(cls: type) -> dict[str, Any]:
    """The types of the fields of a class; empty if they cannot be resolved, as for a class defined in a function."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError, AttributeError):
        return {}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a field may hold a value: by type, not by shape, because an ensemble has one axis more than a member."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in inside)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(inside) == 2 and inside[1] is Ellipsis:
            return all(_fits(item, inside[0]) for item in value)
        return len(value) == len(inside) and all(_fits(item, kind) for item, kind in zip(value, inside, strict=True))
    if origin is not None:
        return callable(value) if origin is Callable else True
    if not isinstance(hint, type):
        return True
    if issubclass(hint, jaxtyping.AbstractArray):
        return hasattr(value, "shape") and hasattr(value, "dtype")
    if hint in (int, float):  # an integer may stand for a real number, but a boolean is a mistake
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)
