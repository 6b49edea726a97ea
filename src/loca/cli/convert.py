"""`loca convert`: files of any format that is understood, as a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loca.cli.progress import shown


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file or folder, or a pattern such as 'air.*.nc'.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.zarr", help="There only when it is whole.")],
    inputs: Annotated[str | None, typer.Option(help="Names of the variables that make up u, with commas.")] = None,
    outputs: Annotated[str | None, typer.Option(help="Names of the variables that make up s, with commas.")] = None,
    sample: Annotated[str | None, typer.Option(help="The dimension that counts the pairs.")] = None,
    kind: Annotated[str | None, typer.Option("--format", help="The format, if it is not to be guessed.")] = None,
    split: Annotated[str | None, typer.Option(help="Part of the data by its official name, such as `train`.")] = None,
) -> None:
    """Write files of another format as a store, which can be streamed and detects every changed bit.

    Stopped or killed at any moment, the same command goes on where it was.
    """
    from loca.data import convert as convert_records
    from loca.data import open as open_records

    there = out.exists()
    try:
        records = open_records(
            source, inputs=names(inputs), outputs=names(outputs), sample=sample, format=kind, split=split
        )
        with shown(source) as progress:
            store = convert_records(records, out, progress=progress)
    except (OSError, ValueError, RuntimeError) as error:
        typer.echo(f"loca convert: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{out} {'is there already' if there else 'is complete'}: {len(store)} samples, sha256 {store.digest}")


def names(listed: str | None) -> list[str] | None:
    """Names separated by commas."""
    return None if listed is None else [name.strip() for name in listed.split(",")]
