"""The command `loca` and its options."""

from importlib.metadata import version
from typing import Annotated

import typer

from loca.cli.bench import bench
from loca.cli.check import check
from loca.cli.convert import convert
from loca.cli.figures import figures
from loca.cli.generate import generate
from loca.cli.models import evaluate, inspect, predict
from loca.cli.reproduce import reproduce
from loca.cli.show import show
from loca.cli.train import train

app = typer.Typer(
    name="loca",
    help="Learn maps between functions from few, noisy measurements, and ask them anywhere.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
app.command()(generate)
app.command()(convert)
app.command()(show)
app.command()(check)
app.command()(train)
app.command()(evaluate)
app.command()(predict)
app.command()(figures)
app.command()(inspect)
app.command()(reproduce)
app.add_typer(bench, name="bench")


def show_version(wanted: bool) -> bool:
    """Print the version and stop, if wanted."""
    if wanted:
        typer.echo(f"loca {version('loca-jax')}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Learn maps between functions from few, noisy measurements, and ask them anywhere."""


def main() -> None:
    """Run the command line."""
    app()
