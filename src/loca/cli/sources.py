"""Data named on the command line: the name of a problem, or files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import typer

from loca.cli.generate import build
from loca.data import Samples

DataArgument = Annotated[
    str, typer.Argument(metavar="DATA", help="A file, a folder or a pattern, or the name of a problem to solve.")
]
InputsOption = Annotated[str | None, typer.Option(help="Names of the input variables in the file, with commas.")]
OutputsOption = Annotated[str | None, typer.Option(help="Names of the output variables in the file, with commas.")]
SampleOption = Annotated[str | None, typer.Option(help="The dimension of the file that counts the functions.")]
FormatOption = Annotated[str | None, typer.Option(help="Format of the file; by default it is recognized.")]
SeedOption = Annotated[int, typer.Option(min=0, help="What the random choices of a problem depend on.")]
ChoicesOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An argument of a problem; may be given several times."),
]


class Source(NamedTuple):
    """Where functions come from, and how they are to be read."""

    data: str
    inputs: str | None = None
    outputs: str | None = None
    sample: str | None = None
    format: str | None = None
    seed: int = 0
    choices: tuple[str, ...] = ()
    skip: int = 0
    """Functions of a problem to leave out at the beginning: those that were taken for training."""


def load(source: Source, count: int, *, spread: bool = False) -> tuple[Samples, int]:
    """At most `count` functions, the first or spread evenly over all there are; and how many there are.

    A problem has as many as are asked for.
    """
    from loca.problems import PROBLEMS

    try:
        if source.data in PROBLEMS and not Path(source.data).exists():
            problem = build(PROBLEMS[source.data], list(source.choices))
            samples = problem.sample(jax.random.key(source.seed), source.skip + count)
            return samples.take(jnp.arange(source.skip, source.skip + count)), count
        from loca.data import open as open_data

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
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        problems = f"the problems are {', '.join(PROBLEMS)}"
        raise typer.BadParameter(f"{source.data}: {error} ({problems})", param_hint="DATA") from error


def names(given: str | None) -> list[str] | None:
    """`a,b` as a list."""
    return [name.strip() for name in given.split(",")] if given else None
