"""The command `loca-reproduce`.

Functions import what they need when a command runs: `loca-reproduce --help` loads neither JAX nor the package.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loca_reproduction.bench import bench


class Commands(TyperGroup):
    """A group of commands in which the name of a claim alone tests this claim; errors end it with a message."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command `claim` before the name of a claim."""
        return super().parse_args(ctx, ["claim", *args] if args and args[0] not in {*self.commands, "--help"} else args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; with LOCA_DEBUG set, an error has a traceback."""
        try:
            return super().invoke(ctx)
        except (ValueError, OSError, ImportError, ArithmeticError, MemoryError, RuntimeError) as error:
            if os.environ.get("LOCA_DEBUG") or isinstance(error, typer.Exit | typer.Abort | BrokenPipeError):
                raise
            typer.echo(f"loca-reproduce: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="loca-reproduce",
    cls=Commands,
    help="Test the claims of the paper, and measure speed on this machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
app.add_typer(bench, name="bench")


@app.command()
def claim(
    name: Annotated[str | None, typer.Argument(metavar="CLAIM", help="R1 to R13; see --list.")] = None,
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

    `loca-reproduce R4` is short for `loca-reproduce claim R4`. Everything that decides the verdict is fixed in the
    source code of the claim. Writes JSON, Markdown, the figure, and every trained model with its report. Killed at any
    moment, --resume continues. Fails if the verdict differs from the one with which this release was published.
    """
    from rich.console import Console

    from loca_reproduction.claims import CLAIMS, PRESETS, expected_verdict, reproduce
    from loca_reproduction.runs import RunPool

    if show_list:
        Console().print(list_of_claims())
        return
    if name not in CLAIMS:
        raise typer.BadParameter(f"unknown claim {name!r}; choose one of {', '.join(CLAIMS)}", param_hint="CLAIM")
    if preset not in PRESETS:
        raise typer.BadParameter(f"unknown {preset!r}; choose one of {', '.join(PRESETS)}", param_hint="--preset")
    directory = out / f"{name}-{preset}"
    if directory.exists() and not resume:
        raise FileExistsError(f"{directory} already exists; continue it with --resume, or choose --out")
    directory.mkdir(parents=True, exist_ok=True)
    try:
        result = reproduce(CLAIMS[name], preset, RunPool(out, workers, typer.echo), directory, seeds)
    finally:
        if not any(directory.iterdir()):  # an empty directory would prevent another attempt
            directory.rmdir()
    Console().print(table_of(result), crop=False)
    typer.echo(f"Paper: {result.claim.paper}\nVerdict: {result.verdict.answer}. {result.verdict.because}")
    released = expected_verdict(name, preset)
    if released is not None and released != result.verdict.answer:
        raise ValueError(f"this release was published with the verdict {released!r}")


def list_of_claims() -> Any:
    """A table of all claims and their verdicts."""
    from rich.table import Table

    from loca_reproduction.claims import CLAIMS, PRESETS, expected_verdict

    table = Table("", "claim", *PRESETS, box=None)
    for each in CLAIMS.values():
        table.add_row(each.name, each.title, *(expected_verdict(each.name, p) or "—" for p in PRESETS))
    return table


def table_of(result: Any) -> Any:
    """The table of a reproduction, whose headers may wrap and whose numbers may not."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    header, *rows = result.table()
    title = f"{result.claim.name}. {result.claim.title}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, *cells in zip(header, *rows, strict=True):
        table.add_column(name, min_width=max(map(len, [*name.split(), *cells])))
    for row in rows:
        table.add_row(*row)
    return table


def main() -> None:
    """Run the command line."""
    app()
