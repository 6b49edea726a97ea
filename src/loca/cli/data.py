"""`loca generate`, `loca convert`, `loca show` and `loca check`: data before training."""

from pathlib import Path
from typing import Annotated

import typer

from loca.cli.arguments import (
    DataArgument,
    Files,
    SeedOption,
    SetOption,
    check_suffix,
    create_problem,
    load,
    problem_of,
    refusing,
)

COLORS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def generate(
    problem: Annotated[
        str, typer.Argument(help="The problem, such as `darcy`, or MODULE:NAME; an unknown name lists them all.")
    ],
    count: Annotated[int, typer.Option(min=1, help="The number of pairs of functions.")],
    out: Annotated[Path, typer.Option(help="FILE.zarr; named FILE.zarr.partial until it is complete.")],
    seed: Annotated[int, typer.Option(min=0, help="The seed of all random choices.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="The number of processes.")] = 1,
    arguments: SetOption = None,
) -> None:
    """Generate pairs of functions of a problem, of the paper or of your own, and write them to a store.

    The samples depend only on the problem, its arguments and the seed, not on the number of workers. If the command is
    stopped or killed, the same command resumes it.
    """
    from loca.problems import PROBLEMS
    from loca.problems import generate as generate_store
    from loca.training import show_progress

    with refusing("PROBLEM"):
        if (kind := problem_of(problem)) is None:
            raise ValueError(f"unknown problem {problem!r}; choose one of {', '.join(PROBLEMS)}, or give MODULE:NAME")
    chosen = create_problem(kind, arguments or ())
    check_suffix(out, ".zarr")
    existed = out.exists()
    with show_progress(problem) as progress:
        store = generate_store(chosen, count, out, seed=seed, workers=workers, progress=progress)
    typer.echo(f"{out} {'already exists' if existed else 'is complete'}: {len(store)} samples, sha256 {store.digest}")


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file or folder, or a pattern such as 'air.*.nc'.")],
    out: Annotated[Path, typer.Argument(metavar="OUT.zarr", help="The store; it appears when it is complete.")],
    files: Files,
    split: Annotated[str | None, typer.Option(help="A part of the data by its official name, such as `train`.")] = None,
) -> None:
    """Convert files of another format to a store, which can be streamed and detects every changed bit.

    If the command is stopped or killed, the same command resumes it.
    """
    from loca.data import convert as convert_records
    from loca.data import open as open_data
    from loca.training import show_progress

    check_suffix(out, ".zarr", hint="OUT.zarr")
    existed = out.exists()
    records = open_data(source, **files, split=split)
    with show_progress(source) as progress:
        store = convert_records(records, out, progress=progress)
    typer.echo(f"{out} {'already exists' if existed else 'is complete'}: {len(store)} samples, sha256 {store.digest}")


def show(
    data: DataArgument,
    files: Files,
    out: Annotated[Path, typer.Option(help="The file to write: .png, .pdf or .svg.")] = Path("sheet.png"),
    rows: Annotated[int, typer.Option(min=1, help="The number of functions.")] = 4,
    seed: SeedOption = 0,
    arguments: SetOption = None,
) -> None:
    """Draw the first functions: one per row, inputs on the left and outputs on the right."""
    from loca.figures import sheet

    check_suffix(out, ".png", ".pdf", ".svg")
    samples, _ = load(data, files, rows, seed=seed, arguments=arguments)
    figure = sheet(samples, rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=300)
    typer.echo(f"{len(samples)} functions of {data} in {out}")


def check(
    data: DataArgument,
    files: Files,
    test: Annotated[str | None, typer.Option(help="Test data to compare with the training data.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Check at most this many functions, spread evenly.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    seed: SeedOption = 0,
    arguments: SetOption = None,
) -> None:
    """Check data before training on it: missing values, bad scales, leaks, drift, too few sensors and more.

    Exit code 0: nothing found, or only notes. 1: warnings or errors. 2: the data could not be read.
    """
    import dataclasses
    import json

    from rich.console import Console
    from rich.table import Table

    from loca.checks import check as check_samples

    given = {"seed": seed, "arguments": arguments, "spread": True}
    train, total = load(data, files, count, **given)
    other = load(test, files, count, skip=len(train), **given)[0] if test else None
    report = check_samples(train, other)
    checked = f"{len(train)} of {total} functions" + (f", {len(other)} test functions" if other is not None else "")
    if as_json:
        found = [dataclasses.asdict(finding) for finding in report.findings]
        typer.echo(json.dumps({"checked": checked, "findings": found}, indent=2, ensure_ascii=False))
    elif not report.findings:
        typer.echo(f"{data}: {checked}: nothing found")
    else:
        table = Table("level", "check", "what", title=f"{data}: {checked}", title_justify="left", show_lines=True)
        for finding in report.findings:
            color = COLORS[finding.level]
            table.add_row(f"[{color}]{finding.level}[/]", finding.name, finding.message.replace("[", r"\["))
        Console().print(table)
    if not report.is_fine:
        raise typer.Exit(1)
