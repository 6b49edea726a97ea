"""`loca check`: what is suspicious about data, and what training on it would cost."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loca.cli.sources import (
    ChoicesOption,
    DataArgument,
    FormatOption,
    InputsOption,
    OutputsOption,
    SampleOption,
    SeedOption,
    Source,
    load,
)

COLORS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def check(
    data: DataArgument,
    test: Annotated[str | None, typer.Option(help="Test data, to be compared with it.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Look at no more functions than this, spread over all.")] = 1000,
    with_forecast: Annotated[
        bool, typer.Option("--forecast/--no-forecast", help="Time one training step of each model.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
    seed: SeedOption = 0,
    choices: ChoicesOption = None,
) -> None:
    """Look for defects before an hour is spent: missing values, bad scales, leaks, drift, too few sensors and more.

    Exit code 0: fine, at most notes. 1: warnings or errors were found. 2: the data could not be read.
    """
    from loca.checks import CheckReport, check_memory, forecast, memory_available
    from loca.checks import check as check_samples

    source = Source(data, inputs, outputs, sample, format, seed, tuple(choices or ()))
    train, total = load(source, count, spread=True)
    other = load(source._replace(data=test, skip=len(train)), count, spread=True)[0] if test else None
    report = check_samples(train, other)
    costs = forecast(train, functions=total) if with_forecast else ()
    report = CheckReport((*report.findings, *check_memory(costs, memory_available()))) if costs else report
    looked = f"{len(train)} of {total} functions" + (f", {len(other)} test functions" if other is not None else "")
    if as_json:
        found = [dataclasses.asdict(finding) for finding in report.findings]
        cost = [dataclasses.asdict(each) for each in costs]
        typer.echo(json.dumps({"looked_at": looked, "findings": found, "forecast": cost}, indent=2, ensure_ascii=False))
    else:
        console = Console()
        show_findings(console, report, f"{data}: {looked}")
        show_costs(console, costs, len(train))
    if not report.is_fine:
        raise typer.Exit(1)


def show_findings(console: Console, report, title: str) -> None:
    """What was found, the worst first."""
    if not report.findings:
        console.print(f"{title}: nothing found")
        return
    table = Table(title=title, title_justify="left", show_lines=True)
    for column in ("level", "check", "what"):
        table.add_column(column)
    for finding in report.findings:
        color = COLORS[finding.level]
        table.add_row(f"[{color}]{finding.level}[/]", finding.name, finding.message.replace("[", r"\["))
    console.print(table)


def show_costs(console: Console, costs, functions: int) -> None:
    """What training would cost."""
    if not costs:
        return
    table = Table(title=f"Training on this machine, batches of {min(100, functions)}", title_justify="left")
    for column in ("model", "parameters", "ms per step", "20 000 steps", "memory"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for each in costs:
        if each.obstacle:
            table.add_row(each.model, "—", "—", "—", "—")
        else:
            table.add_row(
                each.model,
                f"{each.parameters:,}".replace(",", " "),
                f"{each.ms_per_step:.1f}",
                f"{each.minutes:.1f} min" if each.minutes < 120.0 else f"{each.minutes / 60.0:.1f} h",
                f"{each.megabytes:.0f} MB",
            )
    console.print(table)
    for each in costs:
        if each.obstacle:
            console.print(f"{each.model}: {each.obstacle}", markup=False)
