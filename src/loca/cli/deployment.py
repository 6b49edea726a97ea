"""`loca export`, `loca verify` and `loca serve`."""

from pathlib import Path
from typing import Annotated

import typer

from loca.cli.arguments import (
    ClassOption,
    LevelOption,
    ModelArgument,
    check_suffix,
    header_of,
    import_class,
    load_model,
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

    Inputs and outputs have the units of the data. A model with error bars returns mean, std, lower and upper, and
    a calibrated one in_distribution, the p-value of each input. The program is compared with the model before it is
    written.

    ONNX files are made by jax2onnx in another environment, whose Python LOCA_JAX2ONNX names; without it, this command
    prints how to make one.
    """
    from loca.exporting import SUFFIXES
    from loca.exporting import export as export_operator
    from loca.prediction import read_points

    check_suffix(out, *SUFFIXES)
    operator, header = load_model(model, classes), header_of(model)
    y = None
    if at is not None:
        coordinates = () if operator.signature is None else operator.signature.query_coordinates
        queries = read_points(at, coordinates)
        y = queries.points(tuple(slice(0, size) for size in queries.shape))
    own = [import_class(name) for name in classes or ()]
    with printed_warnings():
        artifact = export_operator(operator, out, y=y, level=level, gradients=gradients, header=header, classes=own)
    takes, returns = (", ".join(map(str, ports)) for ports in (artifact.about.inputs, artifact.about.outputs))
    typer.echo(f"{out}: {takes} → {returns}; {out.stat().st_size:,} bytes")


def verify(
    artifact: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM", exists=True, dir_okay=False, help="A .stablehlo or .onnx file of `loca export`."
        ),
    ],
    model: ModelArgument,
    classes: ClassOption = None,
) -> None:
    """Compare an exported program with a model, on inputs that the program's file holds.

    Every bit of the file is checked, the program runs, and so does the model. The exit code is 1 if they differ.
    """
    from loca.exporting import TOLERANCE, compare, read_artifact

    program = read_artifact(artifact)
    found = compare(program, load_model(model, classes))
    for each in found:
        typer.echo(f"{each.output}: largest difference {each.absolute:.3g}, relative {each.relative:.1e}")
    if program.about.model.sha256 not in (None, header_of(model).digest):
        typer.echo("the program was made from another model file, such as before a calibration")
    worst = max(each.relative for each in found)
    if not worst <= TOLERANCE:
        typer.echo(f"{artifact} differs from {model}: {worst:.1e} is more than {TOLERANCE:g}", err=True)
        raise typer.Exit(1)


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Run directories, model files, or directories of models with NAME/ or NAME/VERSION/ inside.",
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Where to listen; other places than this machine need --tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes that share the port.")] = 1,
    at: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fixed queries from a .csv, .parquet or .nc file, by coordinate."),
    ] = None,
    level: LevelOption = 0.9,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Tokens that clients must send, one per line.")
    ] = None,
    max_body: Annotated[int, typer.Option(min=1024, help="Bytes of a request.")] = 2**22,
    max_values: Annotated[int, typer.Option(min=1, help="Numbers in an input, or in all outputs together.")] = 2**22,
    max_queries: Annotated[int, typer.Option(min=1, help="Locations in a request.")] = 2**14,
    max_queue: Annotated[int, typer.Option(min=1, help="Input functions that wait for a model.")] = 1024,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for a request.")] = 10.0,
    classes: ClassOption = None,
) -> None:
    """Serve models over HTTP: the Open Inference Protocol v2 with binary tensors.

    Models are loaded again when their files change. Requests that wait at the same time are answered together. SIGTERM
    and Ctrl-C end the server after the last response. With several workers, one that dies is started again. Let a
    reverse proxy encrypt connections and stand up to slow clients; deploy/nginx.conf is one.
    """
    import ipaddress
    import socket

    from loca.serving import Settings
    from loca.serving import serve as run_server

    addresses = [
        str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ]
    if tokens is None and not all(ipaddress.ip_address(address).is_loopback for address in addresses):
        raise typer.BadParameter(
            f"{host} can be reached from other machines; give --tokens FILE, or listen on 127.0.0.1",
            param_hint="--host",
        )
    limits = {"max_body": max_body, "max_values": max_values, "max_queries": max_queries, "max_queue": max_queue}
    own = classes or []
    settings = Settings(models=models, at=at, level=level, tokens=tokens, classes=own, timeout=timeout, **limits)
    run_server(settings, host, port, workers)
