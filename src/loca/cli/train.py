"""`loca train`: from data to a model file, in a directory that survives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loca.cli.progress import training_shown

if TYPE_CHECKING:
    import optax

    from loca.cli.configuration import RunConfiguration
    from loca.data import Samples
    from loca.models import Operator

CONFIGURATION, MODEL = "run.json", "model.safetensors"
"""Files of a run: what was asked for, and what came of it."""


def train(
    config: Annotated[Path | None, typer.Argument(help="RUN.toml with tables [data], [model], [training].")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the run: model, checkpoints, history.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this directory; needs nothing else.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="The file to learn from, as in [data] path.")] = None,
    labels: Annotated[int | None, typer.Option(help="Labels kept of every function.")] = None,
    model: Annotated[str | None, typer.Option(help="loca, deeponet or fno.")] = None,
    steps: Annotated[int | None, typer.Option(help="How many steps.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Functions per step.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="default or paper.")] = None,
    loss: Annotated[str | None, typer.Option(help="mean_squared or relative_l2.")] = None,
    seed: Annotated[int | None, typer.Option(help="What all random choices depend on.")] = None,
) -> None:
    """Train a model on data and leave it as one file, with its history and checkpoints, in a directory.

    A run is described by a TOML file, by options, or by both, of which options have the last word. Killed at any
    moment, `loca train --resume DIR` goes on and ends in the same model; Ctrl-C and SIGTERM save first.
    """
    from loca.cli.configuration import ConfigurationError, check_configuration, read_configuration
    from loca.training import BrokenLossError, StoppedError

    changes: dict[str, dict[str, Any]] = {
        "data": {"path": data, "labels": labels},
        "model": {"kind": model},
        "training": {"steps": steps, "batch_size": batch_size, "optimizer": optimizer, "loss": loss, "seed": seed},
    }
    directory = resume or out
    try:
        if directory is None:
            raise ConfigurationError("say where the run is to be kept: --out DIR, or --resume DIR to go on with one")
        if resume is not None:
            described = json.loads((resume / CONFIGURATION).read_text())
            configuration = check_configuration(described, str(resume / CONFIGURATION))
        else:
            configuration = read_configuration(config, changes)
        parts = load_parts(configuration)
        begin(directory, configuration)  # not before: a mistyped path is to leave nothing behind
        error = carry_out(configuration, directory, *parts)
    except StoppedError as stopped:
        typer.echo(str(stopped).replace("run the same", f"`loca train --resume {directory}`"))
        return
    except (ConfigurationError, BrokenLossError, OSError, ValueError, RuntimeError) as problem:
        typer.echo(f"loca train: {problem}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{directory / MODEL}: mean relative L2 error on validation data {error:.4f}")


def begin(directory: Path, configuration: RunConfiguration) -> None:
    """Write down what the run is; a directory with another run is refused."""
    from loca.data.store.work import write_whole

    path, text = directory / CONFIGURATION, configuration.model_dump_json(indent=1)
    if path.exists() and json.loads(path.read_text()) != json.loads(text):
        raise ValueError(f"{directory} holds another run; choose another directory, or go on with that: --resume")
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(text.encode()))


def carry_out(configuration: RunConfiguration, directory: Path, training: Samples, validation: Samples) -> float:
    """Train, save the model, and give its validation error."""
    from loca import losses
    from loca.saving import save
    from loca.training import fit

    chosen = configuration.training
    model = create(configuration, training)
    with training_shown() as shown:
        model, history = fit(
            model,
            training,
            steps=chosen.steps,
            optimizer=optimizer_of(configuration),
            loss=getattr(losses, chosen.loss),
            batch_size=min(chosen.batch_size, len(training)),
            seed=chosen.seed,
            validate=validation,
            every=chosen.every,
            callbacks=[shown],
            directory=directory,
            checkpoint_seconds=chosen.checkpoint_seconds,
        )
    error = history.moments[-1].validation
    assert error is not None, "the last moment of a run with validation data has an error"
    save(
        model,
        directory / MODEL,
        data=training,
        metrics={"validation_relative_l2": error},
        provenance=json.loads(configuration.model_dump_json()),
    )
    return error


def load_parts(configuration: RunConfiguration) -> tuple[Samples, Samples]:
    """Functions to learn from, and functions to validate on."""
    import jax

    from loca.data import open as open_data

    asked, key = configuration.data, jax.random.key(configuration.training.seed)
    roles = {"inputs": asked.inputs, "outputs": asked.outputs, "sample": asked.sample, "format": asked.format}
    training = open_data(asked.path, **roles).load()
    if asked.validation is not None:
        validation = open_data(asked.validation, **roles).load()
    else:
        count = max(1, round(asked.validation_fraction * len(training)))
        if count >= len(training):
            raise ValueError(f"{asked.path} has {len(training)} functions, too few to set some aside for validation")
        training, validation = training.split(jax.random.fold_in(key, 0), len(training) - count, count)
    if asked.labels is not None:
        training = training.observe(jax.random.fold_in(key, 1), asked.labels)
    return training, validation


def create(configuration: RunConfiguration, training: Samples) -> Operator:
    """The model before its first step."""
    import jax

    from loca.models import FNO, LOCA, DeepONet

    kinds = {"loca": LOCA, "deeponet": DeepONet, "fno": FNO}
    sizes = configuration.model.model_dump(exclude={"kind"}, exclude_none=True)
    key = jax.random.fold_in(jax.random.key(configuration.training.seed), 2)
    return kinds[configuration.model.kind].create(training, key=key, **sizes)


def optimizer_of(configuration: RunConfiguration) -> optax.GradientTransformation:
    """The optimizer by its name, with another rate if one is given."""
    from loca.training import default_optimizer, paper_optimizer

    chosen = configuration.training
    rate = {} if chosen.rate is None else {"rate": chosen.rate}
    return paper_optimizer(**rate) if chosen.optimizer == "paper" else default_optimizer(chosen.steps, **rate)
