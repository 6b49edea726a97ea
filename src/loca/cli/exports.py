"""`loca export` and `verify`: models as programs for other software."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loca.cli.arguments import (
    ClassOption,
    LevelOption,
    ModelArgument,
    check_suffix,
    import_class,
    load_model,
    model_file,
    printed_warnings,
)


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(help="PROGRAM.stablehlo, for JAX, or PROGRAM.onnx, for ONNX Runtime.")],
    at: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fix the queries: the points or the grid of a .csv, .parquet or .nc file."),
    ] = None,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="Make a .stablehlo program that can be differentiated.")
    ] = False,
    level: LevelOption = 0.9,
    classes: ClassOption = None,
) -> None:
    """Write a model as a program that runs without this package, for any number of functions and queries.

    Inputs and outputs have the units of the data. A model that knows its error returns mean, std, lower and upper, and
    a calibrated one in_distribution, the p-value of each input. The program is compared with the model before it is
    written.

    ONNX files are made by jax2onnx in another environment, whose Python LOCA_JAX2ONNX names; without it, this command
    prints how to make one.
    """
    from loca.exporting import SUFFIXES
    from loca.exporting import export as export_operator
    from loca.prediction import read_points
    from loca.saving import inspect as inspect_file

    check_suffix(out, *SUFFIXES)
    operator, header = load_model(model, classes), inspect_file(model_file(model))
    y = None
    if at is not None:
        coordinates = () if operator.signature is None else operator.signature.query_coordinates
        queries = read_points(at, coordinates)
        y = queries.points(tuple(slice(0, size) for size in queries.shape))
    own = [import_class(name) for name in classes or ()]
    with printed_warnings():
        artifact = export_operator(operator, out, y=y, level=level, gradients=gradients, header=header, classes=own)
    takes, returns = (", ".join(map(str, ports)) for ports in (artifact.inputs, artifact.outputs))
    typer.echo(f"{out}: {takes} → {returns}; {out.stat().st_size:,} bytes")


def verify(
    artifact: Annotated[Path, typer.Argument(metavar="PROGRAM", help="A .stablehlo or .onnx file of `loca export`.")],
    model: ModelArgument,
    classes: ClassOption = None,
) -> None:
    """Compare an exported program with a model, on inputs that the program's file holds.

    Every bit of the file is checked, the program runs, and so does the model. The exit code is 1 if they differ.
    """
    from loca.exporting import TOLERANCE, compare, read_artifact
    from loca.saving import inspect as inspect_file

    program = read_artifact(artifact)
    found = compare(program, load_model(model, classes))
    for each in found:
        typer.echo(f"{each.output}: largest difference {each.absolute:.3g}, relative {each.relative:.1e}")
    if program.about.model.sha256 not in (None, inspect_file(model_file(model)).digest):
        typer.echo("the program was made from another model file, such as before a calibration")
    worst = max(each.relative for each in found)
    if not worst <= TOLERANCE:
        typer.echo(f"{artifact} differs from {model}: {worst:.1e} is more than {TOLERANCE:g}", err=True)
        raise typer.Exit(1)
