"""Data named on the command line: the name of a problem, or files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import numpy as np
import typer

from loca.data import Samples

DataArgument = Annotated[str, typer.Argument(help="A file, a folder or a pattern, or the name of a problem to solve.")]
InputsOption = Annotated[str | None, typer.Option(help="Names of the input variables in the file, with commas.")]
OutputsOption = Annotated[str | None, typer.Option(help="Names of the output variables in the file, with commas.")]
SampleOption = Annotated[str | None, typer.Option(help="The dimension of the file that counts the functions.")]
FormatOption = Annotated[str | None, typer.Option(help="Format of the file; by default it is recognized.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the functions of a problem.")]


class Source(NamedTuple):
    """Where functions come from, and how they are to be read."""

    data: str
    inputs: str | None = None
    outputs: str | None = None
    sample: str | None = None
    format: str | None = None
    seed: int = 0
    stream: int = 0
    """Which of the endless sequences of a problem: training and test data of one seed are different ones."""


def load(source: Source, count: int, *, spread: bool = False) -> tuple[Samples, int]:
    """At most `count` functions, the first or spread evenly over all there are; and how many there are.

    A problem has as many as are asked for.
    """
    from loca.problems import PROBLEMS

    try:
        if source.data in PROBLEMS and not Path(source.data).exists():
            key = jax.random.fold_in(jax.random.key(source.seed), source.stream)
            return PROBLEMS[source.data]().sample(key, count), count
        from loca.data.files import open as open_data

        records = open_data(
            source.data,
            inputs=names(source.inputs),
            outputs=names(source.outputs),
            sample=source.sample,
            format=source.format,
        )
        total = len(records)
        taken = min(count, total)
        rows = np.linspace(0, total - 1, taken).round().astype(int) if spread else slice(0, taken)
        return records.load(rows), total
    except (ValueError, OSError, KeyError, ModuleNotFoundError) as problem:
        hint = f"(problems that need no file: {', '.join(PROBLEMS)})"
        raise typer.BadParameter(f"{source.data}: {problem} {hint}") from problem


def names(given: str | None) -> list[str] | None:
    """`a,b` as a list."""
    return [name.strip() for name in given.split(",")] if given else None
