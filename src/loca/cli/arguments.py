"""Arguments and options of commands: data, problems with their arguments, and model files with their classes.

Options of data, models and training come from the tables of `loca.configuration`: each field becomes an option with the
field's help.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import re
import sys
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic.fields import FieldInfo

from loca.configuration import (
    MODEL_TABLES,
    DataConfiguration,
    FileConfiguration,
    Table,
    TrainingConfiguration,
    option_of,
    split_names,
)

if TYPE_CHECKING:
    from loca.data import Records, Samples, Trajectories
    from loca.models import Operator, Stepper
    from loca.problems import Problem
    from loca.saving import Header

DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, a folder or a pattern, or a problem to solve, such as darcy.")
]
FileArgument = Annotated[str, typer.Argument(metavar="DATA", help="A file, a folder or a pattern.")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or a run directory.")]
SeedOption = Annotated[int, typer.Option(min=0, help="The seed of a problem's random choices.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An argument of the problem; repeatable.")
]
ClassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--class",
        metavar="MODULE:NAME",
        help="A class of your own that the model uses, from an installed module or one in the current directory; "
        "repeatable.",
    ),
]
RegridOption = Annotated[
    bool, typer.Option("--regrid", help="Interpolate inputs at other sensors to those of the model.")
]
LevelOption = Annotated[
    float, typer.Option(min=0.001, max=0.999, help="The level of bands, for a model with error bars.")
]


Files = Annotated[dict[str, Any], FileConfiguration]
Data = Annotated[dict[str, Any], DataConfiguration]
Model = Annotated[dict[str, Any], *MODEL_TABLES.values()]
Training = Annotated[dict[str, Any], TrainingConfiguration]
"""Parameters of commands that stand for all fields of some tables: what was given for each, or None."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters of a command that stand for tables by an option for each field."""
    hints = typing.get_type_hints(command, include_extras=True)
    tables = {name: found for name, hint in hints.items() if (found := fields_of(hint))}
    own = [each for name, each in inspect.signature(command).parameters.items() if name not in tables]
    parameters = [each.replace(annotation=hints[each.name], kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    parameters += [parameter_of(*field, table) for table, fields in tables.items() for field in fields.items()]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, fields in tables.items():
            values[name] = {field: parse(values.pop(field), field, info) for field, info in fields.items()}
        command(**values)

    vars(run)["__signature__"] = inspect.Signature(parameters)  # which Typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def fields_of(annotation: Any) -> dict[str, FieldInfo]:
    """The fields of all tables in the metadata of an annotation; several models may have the same."""
    fields: dict[str, FieldInfo] = {}
    for table in getattr(annotation, "__metadata__", ()):
        if isinstance(table, type) and issubclass(table, Table):
            fields |= {name: info for name, info in table.model_fields.items() if name not in fields}
    return fields


def parameter_of(name: str, field: FieldInfo, group: str) -> inspect.Parameter:
    """The option of a field; text is parsed by `parse`, and checked with the whole configuration."""
    kind = plain(field.annotation)
    default = "" if field.is_required() or field.default in (None, ()) else f" Default: {field.default}."
    text = "The model; gaussian is solved for, best is the best of all." if name == "kind" else field.description
    spelled, expected = option_of(name), str | None
    if kind is bool:
        spelled, expected = f"{spelled}/--no-{name.replace('_', '-')}", bool | None
    elif is_repeatable(kind):
        expected = list[str] | None
    shown = "|".join(MODEL_TABLES) if name == "kind" else metavar(kind)
    panel = None if group == "files" else f"Options of {group}"
    option = typer.Option(spelled, help=f"{text}{default}", metavar=shown, rich_help_panel=panel, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[expected, option])


def plain(annotation: Any) -> Any:
    """A type without None and without what is checked about its values."""
    if typing.get_origin(annotation) not in (Annotated, typing.Union, types.UnionType):
        return annotation
    return plain(next(each for each in typing.get_args(annotation) if each is not type(None)))


def is_repeatable(kind: Any) -> bool:
    """Whether an option is given once for each value: a list of some words."""
    return typing.get_origin(kind) is tuple and typing.get_origin(plain(typing.get_args(kind)[0])) is typing.Literal


def metavar(kind: Any) -> str | None:
    """What an option expects, as its help shows it."""
    if kind is bool:
        return None
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        inside = metavar(plain(typing.get_args(kind)[0]))
        return inside if is_repeatable(kind) else f"{inside},..."
    return {int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")


def parse(given: Any, field: str, info: FieldInfo) -> Any:
    """The value of an option: numbers as in TOML, several separated by commas. What is no number is refused later."""
    kind = plain(info.annotation)
    if given == "":
        raise typer.BadParameter("expected a value, got nothing", param_hint=option_of(field))
    if isinstance(given, list) or given is None:
        return tuple(given) if given else None
    if typing.get_origin(kind) is tuple:
        numbers = plain(typing.get_args(kind)[0]) is int
        return tuple(value_of(each) if numbers else each for each in split_names(given.strip("[]")))
    return value_of(given) if kind in (int, float) else given


def value_of(text: str) -> Any:
    """A value as in TOML; text needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def load(
    data: str,
    files: dict[str, Any],
    count: int,
    *,
    seed: int = 0,
    arguments: Sequence[str] | None = None,
    skip: int = 0,
    spread: bool = False,
) -> tuple[Samples, int]:
    """Load at most `count` functions of a file or a problem, and return them with the number of all functions.

    From a file, they are the first ones or spread evenly over all. A problem has as many as requested, after those to
    `skip`.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from loca.data import open as open_data
    from loca.problems import PROBLEMS

    with refusing("DATA", f"{data}: ", f" (the built-in problems are {', '.join(PROBLEMS)})"), printed_warnings():
        if not Path(data).exists() and (kind := problem_of(data)) is not None:
            samples = create_problem(kind, arguments).sample(jax.random.key(seed), skip + count)
            return samples.take(jnp.arange(skip, skip + count)), count
        records = open_data(data, **files)
        total = len(records)
        taken = min(count, total)
        rows = np.linspace(0, total - 1, taken).round().astype(int) if spread else slice(0, taken)
        return records.load(rows), total


def check_suffix(path: Path, *suffixes: str, hint: str = "--out") -> None:
    """Refuse the name of an output file that promises another format than the one that is written."""
    if path.suffix not in suffixes:
        expected = " or ".join(filter(None, [", ".join(suffixes[:-1]), suffixes[-1]]))
        raise typer.BadParameter(f"expected a name that ends in {expected}, got {path.name!r}", param_hint=hint)


def check_directory(path: Path) -> None:
    """Refuse the name of a directory for several files that promises a single file."""
    if path.suffix[1:].isalpha():
        raise typer.BadParameter(f"expected the name of a directory, got {path.name!r}", param_hint="--out")


def problem_of(name: str) -> type[Problem] | None:
    """The built-in problem with this name, or the class MODULE:NAME; None if it is neither."""
    from loca.problems import PROBLEMS, Problem

    if not re.fullmatch(r"[\w.]+:\w+", name):
        return PROBLEMS.get(name)
    kind = import_name(name)
    if not (isinstance(kind, type) and issubclass(kind, Problem)):
        raise ValueError(f"{name} is {kind!r}; expected a subclass of `loca.problems.Problem`")
    return kind


def create_problem(kind: type[Problem], choices: Sequence[str] | None) -> Problem:
    """Create a problem with some arguments given as NAME=VALUE, where values are written as in TOML."""
    from pydantic import TypeAdapter, ValidationError

    fields, hints = inspect.signature(kind).parameters, typing.get_type_hints(kind)
    arguments = {}
    with refusing("--set"):
        for choice in choices or ():
            name, equals, text = choice.partition("=")
            if not equals or name not in fields:
                known = [f"{each.name} ({_default(each)})" for each in fields.values()]
                raise ValueError(
                    f"{choice!r} is not NAME=VALUE for an argument of this problem; its arguments, with defaults: "
                    f"{', '.join(known) or 'none'}"
                )
            try:  # as JSON, where a list is a tuple, an integer is a number, and true is neither
                value = TypeAdapter(hints[name]).validate_json(json.dumps(value_of(text), default=str), strict=True)
            except ValidationError as error:
                problems = " or ".join(dict.fromkeys(each["msg"].lower() for each in error.errors()))
                raise ValueError(f"{name}: {problems}, got {text!r}") from None
            arguments[name] = tuple(value) if isinstance(value, list) else value  # problems are hashed
        if missing := [name for name in fields if name not in arguments and _default(fields[name]) == "required"]:
            raise ValueError(f"this problem needs {' '.join(f'--set {name}=...' for name in missing)}")
        return kind(**arguments)


def _default(parameter: inspect.Parameter) -> str:
    return "required" if parameter.default is parameter.empty else repr(parameter.default)


def open_records(
    data: str, files: dict[str, Any], model: Path, operator: Operator, *, regrid: bool, unsolved: bool = False
) -> Records:
    """Open data as a model expects it, and print what is done to it.

    Variables that are not given are those of the run that made the model, or else those that the model knows. If
    `unsolved` and no outputs are given, the file may hold inputs only.
    """
    from loca.models import Adaptation

    with refusing("DATA", f"{data}: "):
        records = open_with_roles(data, files, model, operator, unsolved=unsolved and files.get("outputs") is None)
        with printed_warnings():
            adaptation = Adaptation.of(operator, records, regrid=regrid)
    for note in adaptation.notes:
        typer.echo(f"{data}: {note}")
    return adaptation.apply(records)


@contextlib.contextmanager
def printed_warnings() -> Iterator[None]:
    """Print warnings, such as those about queries outside the domain or unfamiliar inputs, as lines, each once."""
    import warnings

    from loca.domains import OutsideDomainWarning
    from loca.inversion import InversionWarning
    from loca.models import DivergedWarning
    from loca.uncertainty import UnfamiliarInputWarning

    with warnings.catch_warnings():
        for category in (OutsideDomainWarning, InversionWarning, UnfamiliarInputWarning, DivergedWarning):
            warnings.simplefilter("default", category)
        warnings.showwarning = lambda message, *_: typer.echo(f"warning: {message}", err=True)
        yield


def open_with_roles(data: str, files: dict[str, Any], model: Path, operator: Operator, *, unsolved: bool) -> Records:
    """Open data with the variables that are given, those of the run, or those that the model knows."""
    from loca.data import is_store
    from loca.data import open as open_data
    from loca.models import is_numbered

    given: dict[str, Any] = {name: files.get(name) for name in ("inputs", "outputs", "sample", "format")}
    if is_store(Path(data)):
        return open_data(data, **given)
    of_run = header_of(model).provenance.get("data")
    of_run = {name: of_run.get(name) for name in given} if isinstance(of_run, Mapping) else {}
    roles = {name: value or of_run.get(name) for name, value in given.items()}
    try:
        return open_data(data, **roles, unsolved=unsolved)
    except ValueError:
        known = ("inputs", operator.inputs, "u"), ("outputs", operator.outputs, "s")
        named = {
            role: [variable.name for variable in variables]
            for role, variables, letter in known
            if roles[role] is None and not is_numbered(variables, letter)
        }
        roles |= named
        found = roles["sample"] or sample_dimension(data, roles["inputs"], operator)
        if not named and found == roles["sample"]:
            raise
        return open_data(data, **{**roles, "sample": found}, unsolved=unsolved)


def open_trajectories(data: str, files: dict[str, Any], model: Path, stepper: Stepper) -> Trajectories:
    """Open trajectories with the variables of a stepper."""
    from loca.data import Trajectories

    about = stepper.about
    of_run = header_of(model).provenance.get("data")
    of_run = of_run if isinstance(of_run, Mapping) else {}
    with refusing("DATA", f"{data}: "):
        return Trajectories.open(
            data,
            [each.name for each in stepper.outputs],
            time=about.time_name,
            sample=files.get("sample") or of_run.get("sample"),
            static=stepper.static_names,
            forcing=stepper.forcing_names,
            cycles=about.cycles,
            format=files.get("format") or of_run.get("format"),
        )


def sample_dimension(data: str, inputs: Sequence[str] | None, operator: Operator) -> str | None:
    """The dimension of a labeled file that counts the functions: the only one that is no coordinate of the model."""
    import xarray

    try:
        with xarray.open_dataset(data, decode_times=False) as dataset:
            dims = {dim for name in inputs or () for dim in dataset[name].dims}
    except (ValueError, KeyError, OSError):  # another format, or several files
        return None
    signature = operator.signature
    if signature is not None:
        dims -= {*signature.query_coordinate_names, *(name for x in signature.fields for name in x.coordinate_names)}
    return str(dims.pop()) if len(dims) == 1 else None


def load_model(model: Path, classes: Sequence[str] | None) -> Operator:
    """Load a model file, or that of a run directory, with classes given as MODULE:NAME."""
    from loca.saving import load as load_file

    own = [import_class(name) for name in classes or ()]
    with refusing("MODEL"):
        return load_file(model_file(model), classes=own)


def model_file(model: Path) -> Path:
    """The path of a model file; for a run directory, of the model in it."""
    from loca.saving import MODEL_FILE

    if not model.exists():
        raise typer.BadParameter(f"{model} does not exist; pass a model file or a run directory", param_hint="MODEL")
    return model / MODEL_FILE if model.is_dir() else model


def header_of(model: Path) -> Header:
    """What a model file, or that of a run directory, says about its model."""
    from loca.saving import inspect as inspect_file

    return inspect_file(model_file(model))


def import_name(path: str) -> Any:
    """Import what is given as MODULE:NAME; modules in the current directory are found, too."""
    module, _, name = path.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:  # the command `loca` starts without it
        sys.path.insert(0, str(Path.cwd()))
    if not module or not name:
        raise ValueError(f"expected MODULE:NAME, such as kernels:MyKernel, got {path!r}")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path}: {error}; modules are those installed and those in {Path.cwd()}") from error


def import_class(path: str) -> Any:
    """Import a class of the caller that models are made of."""
    import equinox as eqx

    with refusing("--class"):
        found = import_name(path)
        if not callable(found) or (isinstance(found, type) and not issubclass(found, eqx.Module)):
            raise ValueError(f"{path} is {found!r}; expected a class that models are made of, or an activation")
    return found


@contextlib.contextmanager
def refusing(option: str, before: str = "", after: str = "") -> Iterator[None]:
    """Turn errors about what was given into errors of the command line, which end with exit code 2."""
    try:
        yield
    except (ValueError, TypeError, OSError, RuntimeError, ImportError) as error:
        raise typer.BadParameter(f"{before}{error}{after}", param_hint=option) from error


@contextlib.contextmanager
def concerning(file: str) -> Iterator[None]:
    """Begin messages about the values in a file, such as those for a model of other sensors, with its name."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error
