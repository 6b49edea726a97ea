"""`loca evaluate`, `loca predict` and `loca inspect`: what to do with a model file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.sources import FormatOption, InputsOption, OutputsOption, SampleOption, names

if TYPE_CHECKING:
    from rich.table import Table

    from loca.data import Records, Variable
    from loca.models import Operator
    from loca.saving import Header

ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the directory of a run.")]
FileArgument = Annotated[str, typer.Argument(metavar="DATA", help="A file, a folder or a pattern.")]


def evaluate(
    model: ModelArgument,
    data: FileArgument,
    out: Annotated[Path | None, typer.Option(help="Where to keep the report as JSON.")] = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
) -> None:
    """Measure the errors of a model on data at full resolution: their spread, outliers and worst cases."""
    from rich.console import Console

    from loca.evaluation import evaluate as evaluate_model

    operator, records = opened(model, data, inputs, outputs, sample, format)
    try:
        report = evaluate_model(operator, records)
    except (ValueError, TypeError) as problem:  # a model of other sensors or channels
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
        typer.Option(metavar="N1xN2...", help="Ask on an even grid over the domain instead; 721x1440 is a globe."),
    ] = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
) -> None:
    """Predict the outputs of all input functions of a file, and write them as NetCDF or Zarr.

    NetCDF is written at once. Zarr is written piece by piece and never is in memory as a whole; stopped or killed at
    any moment, the same command goes on where it was.
    """
    operator, records = opened(model, data, inputs, outputs, sample, format)
    if out.suffix == ".zarr":
        stream_prediction(operator, records, out, counts(grid), model)
    elif grid is not None:
        raise typer.BadParameter(f"--grid writes Zarr; give it a name that ends so, not {out.name}", param_hint="--out")
    else:
        write_prediction(operator, records, out)


def write_prediction(operator: Operator, records: Records, out: Path) -> None:
    """All predictions at once, as NetCDF."""
    import numpy as np

    samples = records.load()
    prediction = np.asarray(operator.predict(samples.u, samples.y))
    records.label(prediction).to_netcdf(out, engine="h5netcdf")
    typer.echo(f"{len(samples)} functions in {out}")


def stream_prediction(operator: Operator, records: Records, out: Path, sides: list[int] | None, model: Path) -> None:
    """Predictions piece by piece, as Zarr."""
    from loca.cli.progress import shown
    from loca.prediction import QueryGrid, predict_to
    from loca.saving import inspect as inspect_file

    there = out.exists()
    try:
        domain = inspect_file(file_of(model)).domain or records.domain
        queries = None if sides is None else QueryGrid.even(domain, sides)
        with shown(out.name, "tiles") as progress:
            predict_to(operator, records, out, queries=queries, progress=progress)
    except (OSError, ValueError, TypeError, RuntimeError) as problem:
        typer.echo(f"loca predict: {problem}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{out} {'is there already' if there else 'is complete'}: {len(records)} functions")


def counts(grid: str | None) -> list[int] | None:
    """`721x1440` as numbers."""
    if grid is None:
        return None
    try:
        return [int(count) for count in grid.split("x")]
    except ValueError:
        raise typer.BadParameter(
            f"expected a number for each coordinate with x between, such as 721x1440, got {grid!r}", param_hint="--grid"
        ) from None


def inspect(model: ModelArgument) -> None:
    """Tell what a model file holds: structure, sizes, channels, origin, errors; every bit of it is checked."""
    from rich.console import Console

    from loca.saving import ModelFileError
    from loca.saving import inspect as inspect_file

    try:
        header = inspect_file(file_of(model))
    except (ModelFileError, OSError) as problem:
        raise typer.BadParameter(str(problem), param_hint="MODEL") from problem
    Console().print(table_of(header))


def table_of(header: Header) -> Table:
    """What is to be known of a model at a glance."""
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
        "from": "\n".join(described(header.provenance)),
        "size": f"{header.size:,} bytes",
        "sha256": header.digest,
    }
    table = Table("name", Column("value", overflow="fold"), show_header=False, box=None)
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def described(values: Mapping[str, Any]) -> Iterator[str]:
    """Lines that say what was chosen, a table each; what was left open is left out."""
    plain = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            if inner := " ".join(described(value)):
                yield f"{name}: {inner}"
        elif value is not None:
            plain[name] = value
    if plain:
        yield ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in plain.items())


def opened(
    model: Path, data: str, inputs: str | None, outputs: str | None, sample: str | None, kind: str | None
) -> tuple[Operator, Records]:
    """A model and the data it is to be asked about."""
    from loca.data import open as open_data
    from loca.saving import ModelFileError, load

    try:
        operator = load(file_of(model))
    except (ModelFileError, OSError) as problem:
        raise typer.BadParameter(str(problem), param_hint="MODEL") from problem
    try:
        records = open_data(data, inputs=names(inputs), outputs=names(outputs), sample=sample, format=kind)
    except (ValueError, OSError, RuntimeError) as problem:
        raise typer.BadParameter(f"{data}: {problem}", param_hint="DATA") from problem
    return operator, records


def file_of(model: Path) -> Path:
    """The model file of a run, if it is the directory of one."""
    from loca.cli.runs import MODEL

    if not model.exists():
        raise typer.BadParameter(
            f"there is no {model}; pass a model file, or the directory of a run", param_hint="MODEL"
        )
    return model / MODEL if model.is_dir() else model
