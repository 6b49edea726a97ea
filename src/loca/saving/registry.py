"""The classes and functions that a model file may name.

A class of the package is stored as `part.ClassName`, such as `kernels.RBF`: the part is the second component of its
module path. A class of the caller is stored by its bare name, such as `MyKernel`; neither can pass for the other. When
a file is read, a name with a dot is looked up among the classes of the part. The parts are fixed, so no name in a file
ever decides what is imported.

Renaming or moving a class makes existing files unreadable. To rename one, map its new name to the old one in
`HISTORICAL`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from loca.saving.strict_json import ModelFileError

PARTS = (
    "attention",
    "data",
    "domains",
    "encoders",
    "gaussian",
    "kernels",
    "models",
    "nets",
    "parameters",
    "positions",
    "rules",
    "sensitivity",
    "uncertainty",
)
"""The parts of the package that models are made of."""

HISTORICAL = {
    "encoders.Axis": "encoders.Scattering2D.Axis",
    "encoders.Band": "encoders.Scattering1D.Band",
    "models.Grid": "models.FNO.Grid",
    "models.SpectralLayer": "models.FNO.SpectralLayer",
}
"""Names in files that differ from `part.ClassName`; they stay as long as files with them may exist."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "jax.nn.celu": jax.nn.celu,
    "jax.nn.elu": jax.nn.elu,
    "jax.nn.gelu": jax.nn.gelu,
    "jax.nn.identity": jax.nn.identity,
    "jax.nn.leaky_relu": jax.nn.leaky_relu,
    "jax.nn.mish": jax.nn.mish,
    "jax.nn.relu": jax.nn.relu,
    "jax.nn.selu": jax.nn.selu,
    "jax.nn.sigmoid": jax.nn.sigmoid,
    "jax.nn.silu": jax.nn.silu,
    "jax.nn.soft_sign": jax.nn.soft_sign,
    "jax.nn.softplus": jax.nn.softplus,
    "jax.numpy.cos": jnp.cos,
    "jax.numpy.sin": jnp.sin,
    "jax.numpy.tanh": jnp.tanh,
}
"""The activations that need not be passed to `load`, by their names in files."""

FUNCTION_NAMES = {function: name for name, function in FUNCTIONS.items()}

Classes = Iterable[type[eqx.Module] | Callable[..., Any]]
"""Classes and functions of the caller that models are made of."""


def name_of(cls: type[eqx.Module]) -> str:
    """The name of a class in files: with a dot for a class of the package, without for any other."""
    package, _, path = cls.__module__.partition(".")
    if package == "loca":
        rule = f"{path.partition('.')[0]}.{cls.__name__}"
        name = HISTORICAL.get(rule, rule)
        if builtin_class(name) is cls:
            return name
    return cls.__name__


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
    files = [
        package,
        *(
            importlib.import_module(f"{package.__name__}.{file.name}")
            for file in pkgutil.iter_modules(getattr(package, "__path__", ()))
        ),
    ]
    rules = {
        f"{part}.{cls.__name__}": cls
        for file in files
        for cls in vars(file).values()
        if isinstance(cls, type) and issubclass(cls, eqx.Module) and cls.__module__ == file.__name__
    }
    return {HISTORICAL.get(rule, rule): cls for rule, cls in rules.items()}


def name_of_function(function: Any, place: str) -> str:
    """The name of a function in files: with dots for a built-in activation, without for any other."""
    if function in FUNCTION_NAMES:
        return FUNCTION_NAMES[function]
    name = getattr(function, "__name__", "")
    if isinstance(function, types.MethodType) or not name.isidentifier():
        raise ModelFileError(
            f"`{place}` is {function!r}, but a model file stores functions by name; define it with `def` at the top "
            "level of a module, and pass it when loading: load(path, classes=[...])"
        )
    return name


def own_names(classes: Classes) -> tuple[dict[str, type[eqx.Module]], dict[str, Callable[..., Any]]]:
    """The caller's classes, and functions, by the bare names that `save` gives them."""
    modules, functions = {}, {}
    for thing in classes:
        named = modules if isinstance(thing, type) else functions
        name = getattr(thing, "__name__", None)
        if name is None or (isinstance(thing, type) and not issubclass(thing, eqx.Module)):
            raise TypeError(f"`classes` takes Equinox modules and named functions, got {thing}")
        if name in named:
            raise ModelFileError(f"`classes` holds two things called {name}; rename one of them")
        named[name] = thing
    return modules, functions
