"""`loca train`, `choose` and `reproduce`: from data to a model, and from a claim of the paper to a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from loca.cli.arguments import (
    FileArgument,
    FormatOption,
    InputsOption,
    OutputsOption,
    SampleOption,
    check_directory,
    split_names,
)
from loca.cli.output import show_training

LabelsOption = Annotated[int | None, typer.Option(help="The number of labels kept for each function.")]
TestOption = Annotated[str | None, typer.Option(help="A file on which to evaluate the model.")]
AllSeedOption = Annotated[int | None, typer.Option(help="The seed of all random choices.")]


def train(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[RUN.toml | DATA]", help="Tables [data], [model], [training]; or only the data."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory, for model, checkpoints and history.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Resume the run in this directory. The only other option is --steps, to extend the run."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The file with training data, as in [data] path.")] = None,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
    labels: LabelsOption = None,
    test: TestOption = None,
    stream: Annotated[
        bool | None, typer.Option(help="Read batches from the file; default: if it would fill half the memory.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="loca, deeponet, fno, gaussian, which is not trained, or best: all compete.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="The time budget of --model best; 5 unless given.")] = None,
    setting: Annotated[
        str | None, typer.Option(help="Take all sizes from an experiment of the paper, such as darcy.")
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TRANSFORM",
            help="The transform of a variable: log, asinh, per-location, log+per-location, asinh+per-location, "
            "standardize or auto; repeatable. Without NAME=, auto is for all variables.",
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="The number of training steps.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Functions per step.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="default or paper.")] = None,
    loss: Annotated[str | None, typer.Option(help="mean_squared or relative_l2.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32, or bfloat16 for factors of matrix products.")] = None,
    rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    seed: AllSeedOption = None,
    every: Annotated[int | None, typer.Option(help="The number of steps between two validations.")] = None,
    log: Annotated[list[str] | None, typer.Option(help="tensorboard, wandb or mlflow, offline; repeatable.")] = None,
) -> None:
    """Train or solve for a model of data, and write model, history and checkpoints to a run directory.

    A TOML file, options, or both describe the run; options override the file. The run remembers the variables of its
    data, so that `loca evaluate`, `predict` and `figures` find them in other files. Killed at any moment,
    `loca train --resume DIR` continues and ends in the same model. Ctrl-C and SIGTERM save a checkpoint first, and end
    the command with exit code 130 or 143.
    """
    from rich.console import Console

    from loca.choosing import REPORT_FILE, ChoiceReport
    from loca.runs import MODEL_FILE, execute, read_configuration, read_run
    from loca.training import StoppedError

    config = Path(source) if source is not None and source.endswith(".toml") else None
    if config is None and source is not None:
        if data is not None:
            raise typer.BadParameter(f"give the data once, got {source} and --data {data}")
        data = source
    changes: dict[str, Any] = {
        "data": {
            "path": data,
            "inputs": split_names(inputs),
            "outputs": split_names(outputs),
            "sample": sample,
            "format": format,
            "labels": labels,
            "test": test,
            "stream": stream,
        },
        "model": {"kind": model, "setting": setting, "minutes": minutes},
        "training": {
            "steps": steps,
            "batch_size": batch_size,
            "optimizer": optimizer,
            "rate": rate,
            "loss": loss,
            "precision": precision,
            "seed": seed,
            "every": every,
            "loggers": log or None,
        },
        "transforms": parse_transforms(transform or []),
    }
    if (out is None) == (resume is None):
        raise typer.BadParameter("give a run directory: --out DIR for a new run, or --resume DIR to resume one")
    directory = out or resume or Path()
    if resume is None:
        check_directory(directory)  # not that of a run begun earlier
        configuration = read_configuration(config, changes)
    else:
        check_nothing_else(config, changes)
        configuration = read_run(resume, steps)
    try:
        result = execute(configuration, directory, callbacks=[show_training()], progress=True)
    except StoppedError as stopped:
        saved = str(stopped).partition(";")[0]  # what follows is advice for callers of `fit`
        typer.echo(f"{saved}; continue with `loca train --resume {directory}`", err=True)
        raise typer.Exit(128 + stopped.signal) from None
    if configuration.model.kind == "best":
        typer.echo(str(ChoiceReport.load(directory / REPORT_FILE)))
    for report in result.reports.values():
        Console().print(report)
    typer.echo(f"{directory / MODEL_FILE}: mean relative L2 error on validation data {result.validation:.4f}")


def choose(
    data: FileArgument,
    out: Annotated[Path, typer.Option(help="The run directory, for the model and the report.")],
    minutes: Annotated[float, typer.Option(help="The time budget.")] = 5.0,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
    labels: LabelsOption = None,
    test: TestOption = None,
    seed: AllSeedOption = None,
) -> None:
    """Let several models compete on validation functions, and keep the best: `loca train --model best`.

    The mean field, ridge regression, a Gaussian operator, FNO, LOCA and DeepONet compete. The table has their errors,
    times and sizes. Killed at any moment, `loca train --resume DIR` continues.
    """
    train(
        data,
        out=out,
        inputs=inputs,
        outputs=outputs,
        sample=sample,
        format=format,
        labels=labels,
        test=test,
        model="best",
        minutes=minutes,
        seed=seed,
    )


def check_nothing_else(config: Path | None, changes: dict[str, Any]) -> None:
    """Refuse everything that cannot change when a run is resumed."""
    tables = [changes["data"], changes["model"], changes["training"], {"transform": changes["transforms"]}]
    fields = {name: value for table in tables for name, value in table.items() if name != "steps"}
    options = {"path": "--data", "kind": "--model", "loggers": "--log"}
    given = [options.get(name, f"--{name.replace('_', '-')}") for name, value in fields.items() if value is not None]
    if config is not None or given:
        raise typer.BadParameter(
            f"--resume takes all settings from the run and accepts --steps only; leave out {', '.join(given) or config}"
        )


def parse_transforms(options: list[str]) -> str | dict[str, str] | None:
    """The transforms of `--transform`, as in a TOML file."""
    if options == ["auto"]:
        return "auto"
    pairs = [option.partition("=") for option in options]
    for option, (name, _, transform) in zip(options, pairs, strict=True):
        if not name or not transform:
            raise typer.BadParameter(
                f"expected NAME=TRANSFORM, such as permeability=log, or auto alone, got {option!r}",
                param_hint="--transform",
            )
    return {name: transform for name, _, transform in pairs} or None


def reproduce(
    claim: Annotated[str | None, typer.Argument(help="R1 to R13; see --list.")] = None,
    preset: Annotated[
        str, typer.Option(help="quick takes seconds and shows that it works; paper has the sizes of the paper.")
    ] = "quick",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="The number of seeds; that of the preset unless given.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory of all claims: models in runs, results in CLAIM-PRESET.")] = Path(
        "reproduced"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Continue a test that was interrupted.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="The number of processes that train at the same time.")] = 1,
    show_list: Annotated[bool, typer.Option("--list", help="List the claims and their verdicts.")] = False,
) -> None:
    """Test a claim of the paper: print what the paper says, our results over several seeds, and the verdict.

    Everything that decides the verdict is fixed in the source code of the claim. Writes JSON, Markdown, the figure, and
    every trained model with its report. Killed at any moment, --resume continues. Fails if the verdict differs from
    the one with which this release was published.
    """
    import contextlib

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from loca.claims import CLAIMS, PRESETS, expected_verdict
    from loca.claims import reproduce as reproduce_claim
    from loca.runs import RunPool

    console = Console()
    if show_list:
        table = Table("", "claim", *PRESETS, box=None)
        for each in CLAIMS.values():
            table.add_row(each.name, each.title, *(expected_verdict(each.name, p) or "—" for p in PRESETS))
        console.print(table)
        return
    check_directory(out)
    if claim not in CLAIMS:
        raise typer.BadParameter(f"unknown claim {claim!r}; choose one of {', '.join(CLAIMS)}", param_hint="CLAIM")
    if preset not in PRESETS:
        raise typer.BadParameter(
            f"unknown preset {preset!r}; choose one of {', '.join(PRESETS)}", param_hint="--preset"
        )
    directory = out / f"{claim}-{preset}"
    if directory.exists() and not resume:
        typer.echo(f"loca reproduce: {directory} already exists; continue it with --resume, or choose --out", err=True)
        raise typer.Exit(1)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        result = reproduce_claim(CLAIMS[claim], preset, RunPool(out, workers, typer.echo), directory, seeds)
    except Exception:
        with contextlib.suppress(OSError):  # an empty directory would prevent another attempt
            directory.rmdir()
        raise
    header, *rows = result.table()
    table = Table(title=f"{claim}. {result.claim.title}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, *cells in zip(header, *rows, strict=True):
        table.add_column(name, min_width=max(map(len, [*name.split(), *cells])))  # headers may wrap, numbers may not
    for row in rows:
        table.add_row(*row)
    console.print(table, crop=False)
    typer.echo(f"Paper: {result.claim.paper}\nVerdict: {result.verdict.answer}. {result.verdict.because}")
    released = expected_verdict(claim, preset)
    if released is not None and released != result.verdict.answer:
        typer.echo(f"loca reproduce: this release was published with the verdict {released!r}", err=True)
        raise typer.Exit(1)
