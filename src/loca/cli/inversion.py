"""`loca invert`: from observations in a file to the posterior of the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loca.cli.arguments import (
    ClassOption,
    ModelArgument,
    check_suffix,
    concerning,
    header_of,
    load_model,
    open_records,
    printed_warnings,
    refusing,
)

if TYPE_CHECKING:
    import numpy as np

    from loca.models import Operator


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

    The error of the model is part of the noise: pass functions that it was not trained on as --held. A model that knows
    its error, such as a Gaussian operator, needs none.
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
