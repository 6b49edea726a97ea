"""`loca calibrate`, `evaluate`, `predict`, `invert`, `figures` and `inspect`: using a trained model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.arguments import (
    ClassOption,
    FileArgument,
    Files,
    LevelOption,
    ModelArgument,
    RegridOption,
    SeedOption,
    check_directory,
    check_suffix,
    concerning,
    header_of,
    load_model,
    model_file,
    open_records,
    open_trajectories,
    printed_warnings,
    refusing,
)
from loca.cli.output import artifact_table, header_table

if TYPE_CHECKING:
    import numpy as np
    import xarray
    from matplotlib.figure import Figure

    from loca.data import Records
    from loca.evaluation import Report
    from loca.models import Operator
    from loca.prediction import QueryGrid, QueryPoints
    from loca.training import History


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
    records = open_data(data, files, model, operator, regrid=regrid)
    with concerning(data):
        calibrated = calibrate_model(operator, records)
    provenance = {**header.provenance, "calibration": {"data": data, "functions": len(records)}}
    save(calibrated, out or model_file(model), data=header, metrics=header.metrics, provenance=provenance)
    typer.echo(f"{out or model_file(model)}: bands from {len(records)} {counted(records)}")


def evaluate(
    model: ModelArgument,
    data: FileArgument,
    files: Files,
    out: Annotated[Path | None, typer.Option(help="Write the report to this file as JSON.")] = None,
    regrid: RegridOption = False,
    classes: ClassOption = None,
    level: LevelOption = 0.9,
    steps: Annotated[int | None, typer.Option(min=1, help="Of a stepper: the steps of each rollout.")] = None,
    draws: Annotated[int | None, typer.Option(min=2, help="Of a stepper: the draws of each rollout.")] = None,
) -> None:
    """Measure the errors of a model on data at full resolution: their distribution, outliers and worst cases.

    Sensors and variables in another order than the model's are reordered. For a model with error bars, such as one from
    `loca calibrate`, the report has the coverage and width of its bands. A stepper is evaluated at each lead time,
    beside persistence and climatology.
    """
    from rich.console import Console

    from loca.evaluation import evaluate as evaluate_model
    from loca.models import Stepper

    if out is not None:
        check_suffix(out, ".json")
    operator = load_model(model, classes)
    records = open_data(data, files, model, operator, regrid=regrid)
    with concerning(data):
        if isinstance(operator, Stepper):
            report = evaluate_model(operator, records, steps=steps, draws=draws)
            typer.echo(str(report))
        else:
            report = evaluate_model(operator, records, level=level)
            Console().print(report)
    if out is not None:
        report.save(out)


def open_data(data: str, files: dict[str, Any], model: Path, operator: Operator, *, regrid: bool) -> Any:
    """Open data as a model expects it: pairs of functions, or trajectories for a stepper."""
    from loca.models import Stepper

    if isinstance(operator, Stepper):
        return open_trajectories(data, files, model, operator)
    return open_records(data, files, model, operator, regrid=regrid)


def counted(data: Any) -> str:
    """What data consists of."""
    from loca.data import Trajectories

    return "trajectories" if isinstance(data, Trajectories) else "functions"


def forecast(
    model: ModelArgument,
    start: Annotated[Path, typer.Argument(metavar="START", help="NetCDF or Zarr; its last frames count.")],
    steps: Annotated[int, typer.Option(min=1, help="The number of steps.")],
    out: Annotated[Path, typer.Option(help="FORECAST.zarr, written as it is computed, or FORECAST.nc.")],
    draws: Annotated[
        int | None, typer.Option(min=2, help="Draws of a forecast with a spread; needs `loca calibrate`.")
    ] = None,
    forcing: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What acts on the fields, until the last step.")
    ] = None,
    seed: SeedOption = 0,
    classes: ClassOption = None,
) -> None:
    """Advance fields by steps of time with a model from `loca train --time`, and write them with time stamps.

    Zarr is written step by step, so that forecasts may be larger than memory; if the command is stopped or killed, the
    same command resumes it to the same file. A warning says so if the fields leave the range of the training data.
    """
    from loca.models import Stepper
    from loca.prediction import forecast as forecast_fields
    from loca.prediction import forecast_to, write_dataset
    from loca.training import show_progress

    check_suffix(out, ".zarr", ".nc")
    stepper = load_model(model, classes)
    if not isinstance(stepper, Stepper):
        raise typer.BadParameter(f"{model} does not advance fields in time; train with --time", param_hint="MODEL")
    with refusing("START", f"{start}: "):
        fields = open_dataset(start)
    acting = None if forcing is None else open_dataset(forcing)
    options: dict[str, Any] = {"forcing": acting, "draws": draws, "seed": seed}
    if out.suffix == ".zarr":
        existed = out.exists()
        with concerning(str(start)), printed_warnings(), show_progress(out.name, "steps") as progress:
            forecast_to(stepper, fields, out, steps, progress=progress, **options)
        typer.echo(f"{out} {'already exists' if existed else 'is complete'}: {steps} steps")
        return
    with concerning(str(start)), printed_warnings():
        found = forecast_fields(stepper, fields, steps, **options)
    write_dataset(found, out)
    typer.echo(f"{out}: {steps} steps")


def open_dataset(path: Path) -> xarray.Dataset:
    """Open a labeled file."""
    import xarray

    return xarray.open_dataset(path, engine="zarr" if path.is_dir() else None)


def predict(
    model: ModelArgument,
    data: FileArgument,
    files: Files,
    out: Annotated[
        Path,
        typer.Option(help="PREDICTION.nc, .zarr, .csv, .parquet or .vtu, with the names and coordinates of the data."),
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
    """Predict the outputs of all input functions of a file, and write them as NetCDF, Zarr, a table or a mesh.

    The file may hold inputs only: cases that have not been solved. Predictions are made on --grid, --at points, where
    the data has outputs, or, if it has none, where the training data of the model had them.

    NetCDF, tables and meshes are written at once. Zarr is written piece by piece, so that predictions may be larger
    than memory; if the command is stopped or killed, the same command resumes it.

    A model with error bars also writes NAME_std, NAME_lower and NAME_upper for every output. A calibrated one
    writes in_distribution, the p-value of each input, and warns if inputs are unlike the calibration functions.
    """
    from loca.prediction import check_suffix as check_format
    from loca.prediction import predict_dataset, predict_to, write_dataset
    from loca.training import show_progress

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

    from loca.data import coordinates_of
    from loca.prediction import QueryGrid, read_points

    domain = operator.domain or header_of(model).domain or records.domain
    known = operator.signature
    coordinates = coordinates_of(domain) if known is None else known.query_coordinates
    if at is not None:
        found = read_points(at, coordinates)
        return dataclasses.replace(found, domain=domain) if isinstance(found, QueryGrid) else found
    return None if counts is None else QueryGrid.even(domain, counts, coordinates)


def invert(
    model: ModelArgument,
    observations: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="A .csv, .parquet or .nc file with a column for each coordinate and for each measured output.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="POSTERIOR.nc, with mean, standard deviation, mode and draws.")],
    noise: Annotated[
        str | None,
        typer.Option(metavar="STD[,STD...]", help="The standard deviation of the noise: one, or one for each output."),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Inputs that are plausible; the data of the run unless given."),
    ] = None,
    held: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Functions that were not used for training, for the error of the model."),
    ] = None,
    surrogate_error: Annotated[
        float | None,
        typer.Option(min=0.0, help="The standard deviation of the error of the model, instead of --held."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="mcmc and nuts draw from the posterior, laplace approximates it.")
    ] = "mcmc",
    draws: Annotated[int, typer.Option(min=4, help="The number of draws of each chain.")] = 1000,
    chains: Annotated[int, typer.Option(min=1, help="The number of chains.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the draws.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Also draw mean and standard deviation: .png or .pdf.")] = None,
    classes: ClassOption = None,
) -> None:
    """Find the inputs that explain observations, with their uncertainty, and write them as NetCDF or Zarr.

    The file of observations has one row per location. A value that is empty or NaN was not observed. Columns
    NAME_noise hold the standard deviation of the noise of single values, instead of --noise.

    The error of the model is part of the noise: pass functions that it was not trained on as --held. A model with
    error bars of its own, such as a Gaussian operator, needs none.
    """
    import jax

    from loca.inversion import invert as invert_observations
    from loca.prediction import write_dataset

    check_suffix(out, ".nc", ".zarr")
    if figure is not None:
        check_suffix(figure, ".png", ".pdf", hint="--figure")
    for path in filter(None, (out, figure)):
        if path.exists():
            raise typer.BadParameter(f"{path} already exists; choose another name, or delete it first")
    operator = load_model(model, classes)
    with concerning(str(observations)):
        observed, deviations = read_observations(observations, operator, noise)
    plausible = open_records(prior or training_data(model), {}, model, operator, regrid=False, unsolved=True)
    errors = None if held is None else open_records(held, {}, model, operator, regrid=False)
    with printed_warnings():
        found = invert_observations(
            operator, observed, noise=deviations, prior=plausible, held=errors, surrogate_error=surrogate_error,
            method=method, draws=draws, chains=chains, key=jax.random.key(seed),
        )  # fmt: skip
    write_dataset(found.to_dataset(), out)
    typer.echo(f"{found}\n{out}")
    if figure is not None:
        from loca.figures import posterior

        posterior(found).savefig(figure, dpi=300)
        typer.echo(str(figure))


def training_data(model: Path) -> str:
    """The data of the run that made a model."""
    data = header_of(model).provenance.get("data")
    path = data.get("path") if isinstance(data, Mapping) else None
    if not isinstance(path, str) or not Path(path).exists():
        known = f"{path}, the data of the run, does not exist" if path else "the model does not know its training data"
        raise typer.BadParameter(f"{known}; pass plausible inputs", param_hint="--prior")
    return path


def read_observations(
    path: Path, operator: Operator, noise: str | None
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Observations in a file, and the standard deviation of their noise: `0.1,0.2`, or columns of the file."""
    import numpy as np

    from loca.prediction import QueryPoints, read_columns, read_points

    if operator.signature is None:
        raise ValueError("the model does not know its coordinates; use `loca.invert` in Python")
    names = [variable.name for variable in operator.outputs]
    columns = {name: values for name, (_, values) in read_columns(path).items()}
    if not set(names) & set(columns):
        raise ValueError(f"expected a column {' or '.join(names)}, found {', '.join(columns) or 'none'}")
    points = read_points(path, operator.signature.query_coordinates)
    if not isinstance(points, QueryPoints):
        raise ValueError(f"expected one row for each observation in {path}, found the axes of a grid")

    def stacked(ending: str = "") -> np.ndarray:
        missing = np.full(len(points.y), np.nan)
        return np.stack([columns.get(name + ending, missing) for name in names], axis=-1)

    expected = [f"{name}_noise" for name in names if name in columns]
    if noise is None:
        if absent := ", ".join(name for name in expected if name not in columns):
            message = f"give the standard deviation of the noise, or columns {absent}"
            raise typer.BadParameter(message, param_hint="--noise")
        return (points.y, stacked()), stacked("_noise")
    if given := [name for name in expected if name in columns]:
        raise ValueError(f"the noise was given twice: --noise and the column {given[0]}; leave out one of them")
    with refusing("--noise"):
        numbers = [float(text) for text in noise.split(",")]
    return (points.y, stacked()), np.asarray(numbers if len(numbers) > 1 else numbers[0])


def figures(
    model: ModelArgument,
    data: FileArgument,
    files: Files,
    out: Annotated[Path, typer.Option(help="The directory for the figures.")],
    beside: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", help="Another model for box plots and curves; repeatable."),
    ] = None,
    count: Annotated[int, typer.Option(min=2, help="The number of functions: a typical one, then the worst.")] = 3,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write .pdf instead of .png.")] = False,
    regrid: RegridOption = False,
    classes: ClassOption = None,
) -> None:
    """Draw the errors of a model on data, its predictions beside the truth, its training curves, and its attention.

    `box_plots` has the relative errors of all functions; `fields` the input, truth, prediction and error of
    the function with the median error and of the worst ones; `curves` the loss and the validation error, for a run
    directory; `attention` the attention weights of a LOCA. For a model with error bars, `reliability` has the
    coverage of its bands and `error_bars` the bands of the same functions, or σ beside their errors.
    """
    from loca.evaluation import evaluate
    from loca.models import Uncertain
    from loca.runs import HISTORY_FILE
    from loca.training import History

    check_directory(out)
    paths = [model, *(beside or [])]
    names = names_of(paths)
    operators = [load_model(path, classes) for path in paths]
    records = open_records(data, files, model, operators[0], regrid=regrid)
    reports = {}
    for name, operator in zip(names, operators, strict=True):
        metrics = ["relative_l2", "coverage"] if isinstance(operator, Uncertain) else ["relative_l2"]
        with concerning(data):
            reports[name] = evaluate(operator, records, metrics=metrics, regrid=regrid)
    out.mkdir(parents=True, exist_ok=True)
    found = {name: path / HISTORY_FILE for name, path in zip(names, paths, strict=True)}
    histories = {name: History.read(path) for name, path in found.items() if path.exists()}
    for name, figure in draw(operators[0], records, reports, histories, count):
        file = out / f"{name}.{'pdf' if pdf else 'png'}"
        figure.savefig(file, dpi=300)
        typer.echo(str(file))


def draw(
    operator: Operator, records: Records, reports: dict[str, Report], histories: dict[str, History], count: int
) -> Iterator[tuple[str, Figure]]:
    """Draw every figure that these models have, and yield it with its name."""
    from loca.figures import attention, box_plots, curves, error_bars, fields, reliability
    from loca.models import LOCA, Uncertain
    from loca.uncertainty import Calibrated

    yield "box_plots", box_plots(reports)
    if histories:
        yield "curves", curves(histories)
    captions = typical_and_worst(next(iter(reports.values())), count)
    samples = records.load(list(captions))
    yield "fields", fields(operator, samples, rows=len(samples), captions=list(captions.values()))
    if isinstance(operator, Uncertain):
        yield "reliability", reliability(reports)
        yield "error_bars", error_bars(operator, samples, rows=len(samples), captions=list(captions.values()))
    if isinstance(operator, Calibrated):
        operator = operator.operator
    if isinstance(operator, LOCA):
        yield "attention", attention(operator, samples)


def typical_and_worst(report: Report, count: int) -> dict[int, str]:
    """The numbers of the function with the median error and of the worst ones, with captions.

    The error of a function is the mean over its channels.
    """
    import numpy as np

    from loca.evaluation import short

    errors = report.errors["relative_l2"].mean(axis=1)
    order = np.argsort(np.where(np.isfinite(errors), errors, np.inf), kind="stable")  # from the best to the worst
    known = order[np.isfinite(errors[order])]
    typical = [int(known[(len(known) - 1) // 2])] if len(known) else []
    worst = [int(number) for number in order[::-1] if number not in typical][: count - len(typical)]
    return {
        number: f"{kind} (#{number})\nerror {short(float(errors[number]))}"
        for kind, numbers in (("typical", typical), ("worst", worst))
        for number in numbers
    }


def names_of(paths: list[Path]) -> list[str]:
    """The names of models in figures: that of the run or file, or all of the path where names are the same."""
    from loca.saving import MODEL_FILE

    files = [model_file(path).resolve() for path in paths]
    names = [file.parent.name if file.name == MODEL_FILE else file.stem for file in files]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


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
