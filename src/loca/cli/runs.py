"""`loca train`, `choose` and `compare`: from data to a model."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from loca.cli.arguments import (
    Data,
    Files,
    Model,
    SeedOption,
    SetOption,
    Training,
    check_directory,
    load,
    printed_warnings,
    problem_of,
)
from loca.configuration import RunConfiguration, option_of, read_configuration, split_names

SourceArgument = Annotated[
    str | None,
    typer.Argument(metavar="[RUN.toml | DATA]", help="Tables [data], [model], [training]; or only the data."),
]


SymmetriesOption = Annotated[
    str | None,
    typer.Option(metavar="auto|NAME,...", help="Symmetries, such as 'reflect x,scale', or auto to find them."),
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
    symmetries: SymmetriesOption = None,
) -> None:
    """Train or solve for a model of data, and write model, history and checkpoints to a run directory.

    A TOML file, options, or both describe the run; options override the file. The run remembers the variables of its
    data, so that `loca evaluate`, `predict` and `figures` find them in other files. If training is killed,
    `loca train --resume DIR` continues to the same model. Ctrl-C and SIGTERM save a checkpoint first, and end
    the command with exit code 130 or 143.
    """
    tables = {"data": data, "model": model, "training": training, "transforms": parse_transforms(transform or [])}
    tables |= {"symmetries": symmetries}
    if (out is None) == (resume is None):
        raise typer.BadParameter("give a run directory: --out DIR for a new run, or --resume DIR to resume one")
    if out is not None:
        check_directory(out)
        execute_run(configure(source, tables), out)
    elif resume is not None:
        from loca.runs import read_run, with_steps

        check_nothing_else(source, tables)
        begun = read_run(resume)
        execute_run(begun if training["steps"] is None else with_steps(begun, training["steps"]), resume)


def choose(
    data: Data,
    source: SourceArgument,
    out: Annotated[Path, typer.Option(help="The run directory, for the model and the report.")],
    minutes: Annotated[float, typer.Option(help="The time budget; compilation does not count.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all random choices.")] = 0,
    symmetries: SymmetriesOption = None,
) -> None:
    """Compare several models on validation functions, and keep the best or a combination: `loca train --model best`.

    The models are the mean field, ridge regression, a Gaussian operator, FNO, LOCA, DeepONet and their weighted mean.
    The table has their errors, times and sizes. If the command is killed, `loca train --resume DIR` continues.
    """
    check_directory(out)
    model = {"kind": "best", "minutes": minutes}
    execute_run(
        configure(source, {"data": data, "model": model, "training": {"seed": seed}, "symmetries": symmetries}), out
    )


ALL, GENERATED = 10**9, 1000
"""The number of functions without --count: more than a file has, and those of a problem."""


def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A file, a folder or a pattern, or a problem to solve.")],
    files: Files,
    out: Annotated[Path, typer.Option(help="The directory for the comparison and its picture.")],
    test: Annotated[
        str | None, typer.Option(metavar="FILE", help="Test functions; without it, a fifth of DATA is set aside.")
    ] = None,
    validation: Annotated[
        str | None, typer.Option(metavar="FILE", help="Functions to choose settings on; without it, a part of DATA.")
    ] = None,
    labels: Annotated[int | None, typer.Option(min=1, help="The number of output values to use per function.")] = None,
    minutes: Annotated[
        str, typer.Option(metavar="NUMBER,...", help="The time of each trained model; several give a curve.")
    ] = "1",
    seeds: Annotated[int, typer.Option(min=1, help="How often every model is fitted.")] = 1,
    symmetries: SymmetriesOption = None,
    count: Annotated[int | None, typer.Option(min=4, help="The number of functions of DATA; all without it.")] = None,
    seed: SeedOption = 0,
    arguments: SetOption = None,
    other: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PROGRAM", help="A program that fits a model of another package; repeatable."),
    ] = None,
) -> None:
    """Compare all models on data: error against core minutes, coverage of error bars, size, time per prediction.

    The table and `comparison.json` have every result, `comparison.png` is the picture. Settings are chosen on
    validation functions; test functions choose nothing. If the command is killed, the same command resumes. To get
    the best model, use `loca choose`.
    """
    check_directory(out)
    typer.echo(f"{out}: loading", err=True)  # which takes seconds

    from loca.comparing import compare as compare_models
    from loca.figures import comparison

    try:
        budgets = [float(each) for each in minutes.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as 1,4, got {minutes!r}", param_hint="--minutes") from None
    programs = {}
    for each in other or ():
        name, equals, program = each.partition("=")
        if not name or not equals or not program:
            raise typer.BadParameter(f"expected NAME=PROGRAM, got {each!r}", param_hint="--other")
        programs[name] = shlex.split(program)
    most = count or (GENERATED if problem_of(data) else ALL)
    train, _ = load(data, files, most, seed=seed, arguments=arguments)
    tested, validated = (None if name is None else load(name, files, ALL)[0] for name in (test, validation))
    found = compare_models(
        train,
        tested,
        minutes=budgets,
        seeds=seeds,
        validation=validated,
        labels=labels,
        symmetries=split_names(symmetries),
        others=programs,
        directory=out,
        about={"data": data},
        progress=True,
    )
    typer.echo(str(found))
    if found.best is None:
        raise typer.Exit(1)
    comparison(found, title=Path(data).stem).savefig(out / "comparison.png", dpi=200)
    typer.echo(f"{out / 'comparison.png'}")


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
    typer.echo(f"{directory}: loading", err=True)  # which takes seconds

    from rich.console import Console

    from loca.choosing import REPORT_FILE, ChoiceReport
    from loca.runs import execute
    from loca.saving import MODEL_FILE
    from loca.training import StoppedError

    try:
        with printed_warnings():
            result = execute(configuration, directory, progress=True)
    except StoppedError as stopped:
        saved = str(stopped).partition(";")[0]  # what follows is advice for callers of `fit`
        typer.echo(f"{saved}; continue with `loca train --resume {directory}`", err=True)
        raise typer.Exit(128 + stopped.signal) from None
    if configuration.model.kind == "best":
        typer.echo(str(ChoiceReport.load(directory / REPORT_FILE)))
    if result.report is not None:
        Console().print(result.report)
    typer.echo(f"{directory / MODEL_FILE}: mean relative L2 error on validation data {result.validation:.3g}")


def check_nothing_else(source: str | None, tables: dict[str, Any]) -> None:
    """Refuse everything that cannot change when a run is resumed."""
    fields = tables["data"] | tables["model"] | tables["training"]
    fields |= {"transform": tables["transforms"], "symmetries": tables["symmetries"], "steps": None}
    given = [source] if source else [option_of(name) for name, value in fields.items() if value is not None]
    if given:
        accepted = "--resume takes all settings from the run and accepts --steps only"
        raise typer.BadParameter(f"{accepted}; leave out {', '.join(given)}")


def parse_transforms(options: list[str]) -> str | dict[str, str] | None:
    """The transforms of `--transform`, as in a TOML file."""
    if options == ["auto"]:
        return "auto"
    found = {}
    for option in options:
        name, _, transform = option.partition("=")
        if not name or not transform:
            message = f"expected NAME=TRANSFORM, such as permeability=log, or auto alone, got {option!r}"
            raise typer.BadParameter(message, param_hint="--transform")
        found[name] = transform
    return found or None
