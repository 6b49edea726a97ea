"""`loca train` and `choose`: from data to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from loca.cli.arguments import check_directory
from loca.cli.options import Data, Model, Training
from loca.cli.output import show_training
from loca.configuration import RunConfiguration, option_of, read_configuration

SourceArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN.toml | DATA]", help="Tables [data], [model], [training]; or only the data."),
]


def train(
    data: Data,
    model: Model,
    training: Training,
    source: SourceArgument = None,
    out: Annotated[Path | None, typer.Option(help="The run directory, for model, checkpoints and history.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Resume the run in this directory. The only other option is --steps, to extend the run."),
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TRANSFORM",
            help="The transform of a variable: log, asinh, per-location, log+per-location, asinh+per-location, "
            "standardize or auto; repeatable. Without NAME=, auto is for all variables.",
        ),
    ] = None,
) -> None:
    """Train or solve for a model of data, and write model, history and checkpoints to a run directory.

    A TOML file, options, or both describe the run; options override the file. The run remembers the variables of its
    data, so that `loca evaluate`, `predict` and `figures` find them in other files. Killed at any moment,
    `loca train --resume DIR` continues and ends in the same model. Ctrl-C and SIGTERM save a checkpoint first, and end
    the command with exit code 130 or 143.
    """
    from loca.runs import read_run

    tables = {"data": data, "model": model, "training": training, "transforms": parse_transforms(transform or [])}
    if (out is None) == (resume is None):
        raise typer.BadParameter("give a run directory: --out DIR for a new run, or --resume DIR to resume one")
    if out is not None:
        check_directory(out)
        execute_run(configure(source, tables), out)
    elif resume is not None:
        check_nothing_else(source, tables)
        execute_run(read_run(resume, training["steps"]), resume)


def choose(
    data: Data,
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="The run directory, for the model and the report.")],
    minutes: Annotated[float, typer.Option(help="The time budget.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all random choices.")] = 0,
) -> None:
    """Let several models compete on validation functions, and keep the best: `loca train --model best`.

    The mean field, ridge regression, a Gaussian operator, FNO, LOCA and DeepONet compete. The table has their errors,
    times and sizes. Killed at any moment, `loca train --resume DIR` continues.
    """
    check_directory(out)
    model = {"kind": "best", "minutes": minutes}
    execute_run(configure(source, {"data": data, "model": model, "training": {"seed": seed}}), out)


def configure(source: str | None, tables: dict[str, Any]) -> RunConfiguration:
    """The run that a TOML file, the name of the data, and options describe."""
    if source is None or source.endswith(".toml"):
        config = None if source is None else Path(source)
    elif tables["data"]["path"] is None:
        config, tables = None, {**tables, "data": {**tables["data"], "path": source}}
    else:
        raise typer.BadParameter(f"give the data once, got {source} and --data {tables['data']['path']}")
    if config is None and tables["data"]["path"] is None:
        raise typer.BadParameter("give the data, or a .toml file that names it", param_hint="DATA")
    return read_configuration(config, tables)


def execute_run(configuration: RunConfiguration, directory: Path) -> None:
    """Carry out a run, and print what came of it."""
    from rich.console import Console

    from loca.choosing import REPORT_FILE, ChoiceReport
    from loca.runs import MODEL_FILE, execute
    from loca.training import StoppedError

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


def check_nothing_else(source: str | None, tables: dict[str, Any]) -> None:
    """Refuse everything that cannot change when a run is resumed."""
    fields = {
        **tables["data"],
        **tables["model"],
        **tables["training"],
        "transform": tables["transforms"],
        "steps": None,
    }
    given = [source] if source else [option_of(name) for name, value in fields.items() if value is not None]
    if given:
        raise typer.BadParameter(
            f"--resume takes all settings from the run and accepts --steps only; leave out {', '.join(given)}"
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
