"""`loca train`: from data to a model file, in a directory that survives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from loca.cli.configuration import RunConfiguration

CONFIGURATION = "run.json"
"""The file of a run that says what was asked for."""


def train(
    config: Annotated[Path | None, typer.Argument(help="RUN.toml with tables [data], [model], [training].")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run: model, checkpoints, history.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this directory; needs nothing else.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The file to learn from, as in [data] path.")] = None,
    labels: Annotated[int | None, typer.Option(help="Labels kept of every function.")] = None,
    test: Annotated[str | None, typer.Option(help="A file on which the trained model is evaluated.")] = None,
    stream: Annotated[
        bool | None, typer.Option(help="Read batches from the file; by default if it would fill half the memory.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="loca, deeponet or fno.")] = None,
    setting: Annotated[
        str | None, typer.Option(help="Take all sizes from an experiment of the paper, such as darcy.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="How many steps.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Functions per step.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="default or paper.")] = None,
    loss: Annotated[str | None, typer.Option(help="mean_squared or relative_l2.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, or bfloat16 for factors of matrix products.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="What all random choices depend on.")] = None,
    log: Annotated[
        list[str] | None, typer.Option(help="tensorboard, wandb or mlflow, offline; may be given several times.")
    ] = None,
) -> None:
    """Train a model on data and leave it as one file, with its history and checkpoints, in a directory.

    A run is described by a TOML file, by options, or by both, of which options have the last word. Killed at any
    moment, `loca train --resume DIR` goes on and ends in the same model; Ctrl-C and SIGTERM save first.
    """
    from rich.console import Console

    from loca.cli.configuration import ConfigurationError, check_configuration, read_configuration
    from loca.cli.runs import MODEL, RunData, carry_out, create, loggers_of
    from loca.training import BrokenLossError, StoppedError

    changes: dict[str, dict[str, Any]] = {
        "data": {"path": data, "labels": labels, "test": test, "stream": stream},
        "model": {"kind": model, "setting": setting},
        "training": {
            "steps": steps,
            "batch_size": batch_size,
            "optimizer": optimizer,
            "rate": rate,
            "loss": loss,
            "precision": precision,
            "seed": seed,
            "loggers": log or None,
        },
    }
    directory = resume or out
    try:
        if directory is None:
            raise ConfigurationError("say where the run is to be kept: --out DIR, or --resume DIR to go on with one")
        if resume is not None:
            if not (resume / CONFIGURATION).is_file():
                raise ConfigurationError(f"{resume} holds no run to go on with: there is no {CONFIGURATION} in it")
            described = json.loads((resume / CONFIGURATION).read_text())
            configuration = check_configuration(described, str(resume / CONFIGURATION))
        else:
            configuration = read_configuration(config, changes)
        functions = RunData(configuration)
        untrained, loggers = create(configuration, functions.example), loggers_of(configuration, directory)
        begin(directory, configuration)  # not before: what cannot be done is to leave nothing behind
        error, report = carry_out(configuration, directory, functions, untrained, loggers)
    except StoppedError as stopped:
        typer.echo(str(stopped).replace("repeat the same call", f"run `loca train --resume {directory}`"))
        return
    except (ConfigurationError, BrokenLossError, ImportError, OSError, ValueError, RuntimeError) as problem:
        typer.echo(f"loca train: {problem}", err=True)
        raise typer.Exit(1) from None
    if report is not None:
        Console().print(report)
    typer.echo(f"{directory / MODEL}: mean relative L2 error on validation data {error:.4f}")


def begin(directory: Path, configuration: RunConfiguration) -> None:
    """Write down what the run is; a directory with another run is refused."""
    from loca.durable import write_atomically

    path, text = directory / CONFIGURATION, configuration.model_dump_json(indent=1)
    if path.exists() and json.loads(path.read_text()) != json.loads(text):
        raise ValueError(f"{directory} holds another run; choose another directory, or go on with that: --resume")
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(text.encode()))
