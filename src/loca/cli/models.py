"""`loca calibrate`, `evaluate`, `predict` and `inspect`: using a trained model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loca.cli.arguments import (
    ClassOption,
    FileArgument,
    LevelOption,
    ModelArgument,
    RegridOption,
    check_suffix,
    concerning,
    header_of,
    load_model,
    model_file,
    open_records,
    printed_warnings,
    refusing,
)
from loca.cli.options import Files
from loca.cli.output import artifact_table, header_table, show_progress

if TYPE_CHECKING:
    from loca.data import Records
    from loca.models import Operator
    from loca.prediction import QueryGrid, QueryPoints


def calibrate(
    model: ModelArgument,
    data: FileArgument,
    files: Files,
    out: Annotated[
        Path | None, typer.Option(help="CALIBRATED.safetensors; without it, the model file is replaced.")
    ] = None,
    regrid: RegridOption = False,
    classes: ClassOption = None,
) -> None:
    """Measure on held-out functions how wide bands around predictions must be, and keep that in the model file.

    The functions of DATA must not have been used for training. `loca predict` then writes error bars and bands, and
    warns of inputs unlike these functions; `loca evaluate` and `loca figures` show coverage on other data.
    """
    from loca.saving import save
    from loca.uncertainty import calibrate as calibrate_model

    if out is not None:
        check_suffix(out, ".safetensors")
    operator, header = load_model(model, classes), header_of(model)
    records = open_records(data, files, model, operator, regrid=regrid)
    with concerning(data):
        calibrated = calibrate_model(operator, records)
    provenance = {**header.provenance, "calibration": {"data": data, "functions": len(records)}}
    save(calibrated, out or model_file(model), data=header, metrics=header.metrics, provenance=provenance)
    typer.echo(f"{out or model_file(model)}: bands from {len(records)} functions")


def evaluate(
    model: ModelArgument,
    data: FileArgument,
    files: Files,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file as JSON.")] = None,
    regrid: RegridOption = False,
    classes: ClassOption = None,
    level: LevelOption = 0.9,
) -> None:
    """Measure the errors of a model on data at full resolution: their distribution, outliers and worst cases.

    Sensors and variables in another order than the model's are reordered. For a model that knows its error, such as one
    from `loca calibrate`, the report has the coverage and width of its bands.
    """
    from rich.console import Console

    from loca.evaluation import evaluate as evaluate_model

    if out is not None:
        check_suffix(out, ".json")
    operator = load_model(model, classes)
    records = open_records(data, files, model, operator, regrid=regrid)
    with concerning(data):
        report = evaluate_model(operator, records, level=level)
    Console().print(report)
    if out is not None:
        report.save(out)


def predict(
    model: ModelArgument,
    data: FileArgument,
    files: Files,
    out: Annotated[
        Path,
        typer.Option(help="PREDICTION.nc, .zarr, .csv or .parquet, with the names and coordinates of the data."),
    ],
    grid: Annotated[
        str | None,
        typer.Option(metavar="N1xN2...", help="Predict on an even grid over the domain; 721x1440 is a globe."),
    ] = None,
    at: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Predict at the points or on the grid of a .csv, .parquet or .nc file."),
    ] = None,
    regrid: RegridOption = False,
    classes: ClassOption = None,
    level: LevelOption = 0.9,
) -> None:
    """Predict the outputs of all input functions of a file, and write them as NetCDF, Zarr, CSV or Parquet.

    The file may hold inputs only: cases that have not been solved. Predictions are made on --grid, --at points, where
    the data has outputs, or, if it has none, where the training data of the model had them.

    NetCDF and tables are written at once. Zarr is written piece by piece, so that predictions may be larger than
    memory; if the command is stopped or killed, the same command resumes it.

    A model that knows its error also writes NAME_std, NAME_lower and NAME_upper for every output. A calibrated one
    writes in_distribution, the p-value of each input, and warns if inputs are unlike the calibration functions.
    """
    from loca.prediction import check_suffix as check_format
    from loca.prediction import predict_dataset, predict_to, write_dataset

    with refusing("--out"):
        check_format(out)
    if grid is not None and at is not None:
        raise typer.BadParameter("give either --grid or --at", param_hint="--at")
    if grid is not None and not re.fullmatch("[0-9]+(x[0-9]+)*", grid):
        message = f"expected the number of points along each coordinate, such as 721x1440, got {grid!r}"
        raise typer.BadParameter(message, param_hint="--grid")
    counts = None if grid is None else [int(count) for count in grid.split("x")]
    operator = load_model(model, classes)
    records = open_records(data, files, model, operator, regrid=regrid, unsolved=True)
    with concerning(data):
        queries = choose_queries(operator, records, model, counts, at)
    if out.suffix == ".zarr":
        existed = out.exists()
        with concerning(records.source), printed_warnings(), show_progress(out.name, "tiles") as progress:
            predict_to(operator, records, out, queries=queries, progress=progress, level=level)
        typer.echo(f"{out} {'already exists' if existed else 'is complete'}: {len(records)} functions")
        return
    with concerning(records.source), printed_warnings():
        found = predict_dataset(operator, records, queries=queries, level=level)
    write_dataset(found, out, operator.domain or records.domain)
    typer.echo(f"{len(records)} functions in {out}")


def choose_queries(
    operator: Operator, records: Records, model: Path, counts: list[int] | None, at: Path | None
) -> QueryGrid | QueryPoints | None:
    """The queries of the options --grid and --at; None without these."""
    import dataclasses

    from loca.prediction import QueryGrid, coordinates_of, read_points

    domain = operator.domain or header_of(model).domain or records.domain
    known = operator.signature
    coordinates = coordinates_of(domain) if known is None else known.query_coordinates
    if at is not None:
        found = read_points(at, coordinates)
        return dataclasses.replace(found, domain=domain) if isinstance(found, QueryGrid) else found
    return None if counts is None else QueryGrid.even(domain, counts, coordinates)


def inspect(model: ModelArgument, classes: ClassOption = None) -> None:
    """Print what a model file holds: structure, sizes, channels, origin and errors. Every bit of the file is checked.

    For a program that `loca export` wrote, print what it takes and returns, and the model that it was made from.

    With --class, the model is also loaded, to check that it can be built from these classes.
    """
    from rich.console import Console

    from loca.exporting import SUFFIXES, read_artifact

    with refusing("MODEL"):
        is_program = model.suffix in SUFFIXES and model.exists()
        table = artifact_table(read_artifact(model)) if is_program else header_table(header_of(model))
    if classes and not is_program:
        load_model(model, classes)
    Console().print(table)
