"""`loca show`: a picture of data."""

from pathlib import Path
from typing import Annotated

import typer

from loca.cli.sources import (
    ChoicesOption,
    DataArgument,
    FormatOption,
    InputsOption,
    OutputsOption,
    SampleOption,
    SeedOption,
    Source,
    load,
)


def show(
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="Where to write it: .png, .pdf or .svg.")] = Path("sheet.png"),
    rows: Annotated[int, typer.Option(min=1, help="How many functions.")] = 4,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
    seed: SeedOption = 0,
    choices: ChoicesOption = None,
) -> None:
    """Draw a sheet of the first functions: one per row, inputs on the left, outputs on the right."""
    from loca.figures import sheet

    if out.suffix not in (".png", ".pdf", ".svg"):
        raise typer.BadParameter(f"cannot write {out.name}; end it in .png, .pdf or .svg", param_hint="--out")
    samples, _ = load(Source(data, inputs, outputs, sample, format, seed, tuple(choices or ())), rows)
    try:
        figure = sheet(samples, rows)
    except ValueError as problem:
        raise typer.BadParameter(f"{data}: {problem}") from problem
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=300)
    typer.echo(f"{len(samples)} functions of {data} in {out}")
