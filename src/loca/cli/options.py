"""Options of commands from the tables of `loca.configuration`: each field becomes an option with the field's help."""

from __future__ import annotations

import functools
import inspect
import tomllib
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

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
    text = "The model; gaussian is solved for, and with best all compete." if name == "kind" else field.description
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
    while True:
        inside = typing.get_args(annotation)
        if typing.get_origin(annotation) is Annotated:
            annotation = inside[0]
        elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
            annotation = next(each for each in inside if each is not type(None))
        else:
            return annotation


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
