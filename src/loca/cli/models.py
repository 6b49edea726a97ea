"""`loca evaluate`, `loca predict` and `loca inspect`: using a trained model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.arguments import (
    ClassOption,
    FileArgument,
    FormatOption,
    InputsOption,
    ModelArgument,
    OutputsOption,
    SampleOption,
    load_model,
    model_file,
    open_records,
)

if TYPE_CHECKING:
    from rich.table import Table

    from loca.data import Records, Variable
    from loca.models import Operator
    from loca.saving import Header


def evaluate(
    model: ModelArgument,
    data: FileArgument,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file as JSON.")] = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
    classes: ClassOption = None,
) -> None:
    """Measure the errors of a model on data at full resolution: their distribution, outliers and worst cases."""
    from rich.console import Console

    from loca.evaluation import evaluate as evaluate_model

    operator, records = load_model(model, classes), open_records(data, inputs, outputs, sample, format)
    try:
        report = evaluate_model(operator, records)
    except (ValueError, TypeError) as problem:  # a model for other sensors or channels
        raise typer.BadParameter(f"{data}: {problem}", param_hint="DATA") from problem
    Console().print(report)
    if out is not None:
        report.save(out)


def predict(
    model: ModelArgument,
    data: FileArgument,
    out: Annotated[
        Path,
        typer.Option(help="PREDICTION.nc or PREDICTION.zarr, with the coordinates, names and units of the data."),
    ],
    grid: Annotated[
        str | None,
        typer.Option(metavar="N1xN2...", help="Predict on an even grid over the domain; 721x1440 is a globe."),
    ] = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
    classes: ClassOption = None,
) -> None:
    """Predict the outputs of all input functions of a file, and write them as NetCDF or Zarr.

    NetCDF is written at once. Zarr is written piece by piece, so that predictions may be larger than memory; if the
    command is stopped or killed, the same command resumes it.
    """
    operator, records = load_model(model, classes), open_records(data, inputs, outputs, sample, format)
    if out.suffix == ".zarr":
        stream_prediction(operator, records, out, parse_grid(grid), model)
    elif grid is not None:
        raise typer.BadParameter(
            f"--grid writes Zarr; expected a name that ends in .zarr, got {out.name}", param_hint="--out"
        )
    else:
        write_prediction(operator, records, out)


def write_prediction(operator: Operator, records: Records, out: Path) -> None:
    """Write all predictions at once, as NetCDF."""
    import numpy as np

    samples = records.load()
    prediction = np.asarray(operator.predict(samples.u, samples.y))
    records.label(prediction).to_netcdf(out, engine="h5netcdf")
    typer.echo(f"{len(samples)} functions in {out}")


def stream_prediction(operator: Operator, records: Records, out: Path, grid: list[int] | None, model: Path) -> None:
    """Write predictions piece by piece, as Zarr."""
    from loca.cli.progress import show_progress
    from loca.prediction import QueryGrid, predict_to
    from loca.saving import inspect as inspect_file

    existed = out.exists()
    try:
        domain = operator.domain or inspect_file(model_file(model)).domain or records.domain
        queries = None if grid is None else QueryGrid.even(domain, grid)
        with show_progress(out.name, "tiles") as progress:
            predict_to(operator, records, out, queries=queries, progress=progress)
    except (OSError, ValueError, TypeError, RuntimeError) as problem:
        typer.echo(f"loca predict: {problem}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{out} {'already exists' if existed else 'is complete'}: {len(records)} functions")


def parse_grid(grid: str | None) -> list[int] | None:
    """`721x1440` as numbers."""
    if grid is None:
        return None
    try:
        return [int(count) for count in grid.split("x")]
    except ValueError:
        raise typer.BadParameter(
            f"expected the number of points along each coordinate, such as 721x1440, got {grid!r}", param_hint="--grid"
        ) from None


def inspect(model: ModelArgument, classes: ClassOption = None) -> None:
    """Print what a model file holds: structure, sizes, channels, origin and errors. Every bit of the file is checked.

    With --class, the model is also loaded, to check that it can be built from these classes.
    """
    from rich.console import Console

    from loca.saving import ModelFileError
    from loca.saving import inspect as inspect_file

    try:
        header = inspect_file(model_file(model))
    except (ModelFileError, OSError) as problem:
        raise typer.BadParameter(str(problem), param_hint="MODEL") from problem
    if classes:
        load_model(model, classes)
    Console().print(header_table(header))


def header_table(header: Header) -> Table:
    """The header of a model file as a table."""
    from rich.table import Column, Table

    def listed(variables: tuple[Variable, ...]) -> str:
        return ", ".join(f"{v.name} ({v.unit})" if v.unit else v.name for v in variables)

    rows = {
        "model": header.model,
        "parameters": f"{header.parameters:,}",
        "inputs": listed(header.inputs),
        "outputs": listed(header.outputs),
        "domain": str(header.domain),
        **{name: f"{value:.4g}" for name, value in header.metrics.items()},
        "made with": ", ".join(f"{name} {version}" for name, version in header.versions.items()),
        "from": "\n".join(provenance_lines(header.provenance)),
        "size": f"{header.size:,} bytes",
        "sha256": header.digest,
    }
    table = Table("name", Column("value", overflow="fold"), show_header=False, box=None)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def provenance_lines(values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each table of a model's provenance, without the fields that are None."""
    import json

    plain = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            if inner := " ".join(provenance_lines(value)):
                yield f"{name}: {inner}"
        elif value is not None:
            plain[name] = value
    if plain:
        yield ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in plain.items())
