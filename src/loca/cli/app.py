"""The command `loca`.

Modules of commands import what they need when a command runs: `loca --help` loads neither JAX nor the rest of the
package.
"""

from typing import Annotated

import typer

from loca.cli.bench import bench
from loca.cli.data import check, convert, generate, show
from loca.cli.exports import export, verify
from loca.cli.failures import Commands
from loca.cli.figures import figures
from loca.cli.inversion import invert
from loca.cli.models import calibrate, evaluate, inspect, predict
from loca.cli.runs import choose, reproduce, train
from loca.cli.serving import serve

app = typer.Typer(
    name="loca",
    cls=Commands,
    help="Learn maps between functions from few, noisy measurements, and evaluate them anywhere.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
COMMANDS = (
    generate, convert, show, check, train, choose, calibrate, evaluate, predict, invert, figures, inspect, export,
    verify, reproduce, serve,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
app.add_typer(bench, name="bench")


def print_version(requested: bool) -> bool:
    """Print the version and exit, if requested."""
    if requested:
        from importlib.metadata import version

        typer.echo(f"loca {version('loca-jax')}")
        raise typer.Exit
    return requested


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learn maps between functions from few, noisy measurements, and evaluate them anywhere."""


def main() -> None:
    """Run the command line."""
    app()
