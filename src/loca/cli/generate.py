"""`loca generate`: data of the paper's experiments, from solvers of our own."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.progress import shown

if TYPE_CHECKING:
    from loca.problems import Problem


def generate(
    problem: Annotated[str, typer.Argument(help="Which experiment, such as `darcy`; an unknown name lists them all.")],
    count: Annotated[int, typer.Option(min=1, help="How many pairs of functions.")],
    out: Annotated[Path, typer.Option(help="FILE.zarr, there only when it is whole; until then FILE.zarr.partial.")],
    seed: Annotated[int, typer.Option(min=0, help="What the random choices depend on.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="How many processes compute.")] = 1,
    choices: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An argument of the experiment; may be given several times."),
    ] = None,
) -> None:
    """Compute pairs of functions of an experiment and keep them in a store.

    The samples depend on the experiment, its arguments and the seed alone, not on the number of workers. Stopped or
    killed at any moment, the same command goes on where it was.
    """
    from loca.problems import PROBLEMS
    from loca.problems import generate as generate_store

    if problem not in PROBLEMS:
        raise typer.BadParameter(
            f"unknown experiment {problem!r}; choose one of {', '.join(PROBLEMS)}", param_hint="PROBLEM"
        )
    chosen = build(PROBLEMS[problem], choices or [])
    there = out.exists()
    try:
        with shown(problem) as progress:
            store = generate_store(chosen, count, out, seed=seed, workers=workers, progress=progress)
    except (OSError, ValueError, RuntimeError) as error:
        typer.echo(f"loca generate: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{out} {'is there already' if there else 'is complete'}: {len(store)} samples, sha256 {store.digest}")


def build(kind: type[Problem], choices: list[str]) -> Problem:
    """The problem with some of its arguments given as NAME=VALUE."""
    known = {field.name: field for field in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    hints = typing.get_type_hints(kind)
    arguments = {}
    for choice in choices:
        name, equals, text = choice.partition("=")
        if not equals or name not in known:
            listed = ", ".join(map(shown_default, known.values())) or "none"
            raise typer.BadParameter(f"{choice!r} sets no argument; known, with defaults: {listed}", param_hint="--set")
        arguments[name] = parse(name, text, hints[name])
    if missing := [name for name, field in known.items() if name not in arguments and is_required(field)]:
        examples = " ".join(f"--set {name}=..." for name in missing)
        raise typer.BadParameter(f"this experiment needs {examples}", param_hint="--set")
    try:
        return kind(**arguments)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from None


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether an argument has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def shown_default(field: dataclasses.Field[Any]) -> str:
    """An argument and what it is unless it is set."""
    return f"{field.name} (required)" if is_required(field) else f"{field.name} ({field.default!r})"


def parse(name: str, text: str, expected: Any) -> Any:
    """A value as TOML writes it, for an argument of this type; what is no TOML is a string."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if isinstance(value, list):
        value = tuple(value)
    allowed = plain_types(expected)
    if float in allowed and type(value) is int:
        value = float(value)
    # True is an int to Python, not to whoever types it
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
        wanted = " or ".join(each.__name__ for each in allowed if each is not type(None))
        raise typer.BadParameter(f"{name} must be {wanted}, got {text!r}", param_hint="--set")
    return value


def plain_types(hint: Any) -> tuple[type, ...]:
    """The types of which a value may be, without what they hold."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return tuple(type(value) for value in inside)
    if origin in (typing.Union, types.UnionType):
        return tuple(plain for each in inside for plain in plain_types(each))
    return (origin or hint,)
