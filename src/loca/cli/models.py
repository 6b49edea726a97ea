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
    out: Annotated[Path, typer.Option(help="PREDICTION.nc, with the coordinates, names and units of the data.")],
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
) -> None:
    """Predict the outputs of all input functions of a file, and write them as NetCDF."""
    import numpy as np

    operator, records = opened(model, data, inputs, outputs, sample, format)
    samples = records.load()
    prediction = np.asarray(operator.predict(samples.u, samples.y))
    records.label(prediction).to_netcdf(out, engine="h5netcdf")
    typer.echo(f"{len(samples)} functions in {out}")


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

    return model / MODEL if model.is_dir() else model
