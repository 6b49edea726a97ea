"""`loca reproduce`: the claims of the paper, put to the test."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer


def reproduce(
    claim: Annotated[str | None, typer.Argument(help="R1 to R13; see --list.")] = None,
    preset: Annotated[
        str, typer.Option(help="quick takes seconds and shows that it works; paper has the sizes of the paper.")
    ] = "quick",
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds, if not as many as the preset has.")] = None,
    out: Annotated[
        Path, typer.Option(help="Directory of all studies: models in runs, results in CLAIM-PRESET.")
    ] = Path("reproduced"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a study that was begun.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train side by side.")] = 1,
    show_list: Annotated[bool, typer.Option("--list", help="List the claims and their verdicts.")] = False,
) -> None:
    """Put a claim of the paper to the test: paper, ours over several seeds, verdict.

    All that decides the verdict is fixed beforehand in one file per claim. Leaves JSON, Markdown, the figure, and every
    trained model with its report. Killed at any moment, --resume goes on. Fails if the verdict is no longer the one
    that this release was published with.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from loca.claims import CLAIMS, PRESETS, Workshop, expected_verdict
    from loca.claims import reproduce as put_to_the_test

    console = Console()
    if show_list:
        table = Table("", "claim", *PRESETS, box=None)
        for each in CLAIMS.values():
            table.add_row(each.name, each.title, *(expected_verdict(each.name, p) or "—" for p in PRESETS))
        console.print(table)
        return
    if claim not in CLAIMS:
        raise typer.BadParameter(f"unknown claim {claim!r}; choose one of {', '.join(CLAIMS)}", param_hint="CLAIM")
    if preset not in PRESETS:
        raise typer.BadParameter(
            f"unknown preset {preset!r}; choose one of {', '.join(PRESETS)}", param_hint="--preset"
        )
    directory = out / f"{claim}-{preset}"
    if directory.exists() and not resume:
        typer.echo(
            f"loca reproduce: {directory} is there already; go on with it by --resume, or choose --out", err=True
        )
        raise typer.Exit(1)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        found = put_to_the_test(CLAIMS[claim], preset, Workshop(out, workers, typer.echo), directory, seeds)
    except (OSError, ValueError, RuntimeError) as error:
        with contextlib.suppress(OSError):  # what holds no result does not stand in the way of another try
            directory.rmdir()
        typer.echo(f"loca reproduce: {error}", err=True)
        raise typer.Exit(1) from None
    heading, *rows = found.table()
    table = Table(title=f"{claim}. {found.claim.title}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, *cells in zip(heading, *rows, strict=True):
        table.add_column(name, min_width=max(map(len, [*name.split(), *cells])))  # headings may be folded, figures not
    for row in rows:
        table.add_row(*row)
    console.print(table, crop=False)
    typer.echo(f"Paper: {found.claim.paper}\nVerdict: {found.verdict.answer}. {found.verdict.because}")
    released = expected_verdict(claim, preset)
    if released is not None and released != found.verdict.answer:
        typer.echo(f"loca reproduce: this release was published with the verdict {released!r}", err=True)
        raise typer.Exit(1)
