"""The command `loca`.

Modules of commands import what they need when a command runs: `loca --help` loads neither JAX nor the rest of the
package.
"""

import contextlib
import os
import re
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loca.cli.arguments import with_options
from loca.cli.data import check, convert, generate, show
from loca.cli.deployment import export, serve, verify
from loca.cli.models import calibrate, evaluate, figures, forecast, inspect, invert, predict
from loca.cli.runs import choose, compare, train

DEBUG = "LOCA_DEBUG"
"""The environment variable with which errors print a traceback."""

WrongCommandError: type[Exception] = typer.BadParameter.mro()[2]  # Typer, which may contain its own Click, hides it
"""Errors of the command line, such as an unknown option."""

EXPECTED = (ValueError, OSError, RuntimeError, ImportError, ArithmeticError, MemoryError)
"""Errors whose messages are for the user: wrong data, files and settings, and all errors of the package."""


class Commands(TyperGroup):
    """The commands of the package. An error ends any of them with a message and an exit code.

    The exit code is 0 for success, 1 for a failure, 2 for a wrong command line, 130 after Ctrl-C and 143 after SIGTERM.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except WrongCommandError as error:
            vars(error)["message"] = self.with_options(ctx, str(vars(error).get("message", error)))
            raise  # Typer prints these
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            report(ctx, "interrupted")
            raise typer.Exit(128 + signal.SIGINT) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            report(ctx, self.with_options(ctx, message_of(error)))
            raise typer.Exit(1) from None

    def with_options(self, ctx: Any, message: str) -> str:
        """A message of the package, with arguments such as `format="well"` spelled as options of the command."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        options = {each.name: each.opts[0] for each in getattr(command, "params", ()) if each.opts[0].startswith("--")}

        def spell(argument: re.Match[str]) -> str:
            value = re.sub(r"[][\"']", "", argument[2]).replace(", ", ",")
            return f"{options[argument[1]]} {'' if value == 'True' else value}".rstrip()

        arguments = rf"\b({'|'.join(options)})=(\[[^]]*\]|\"[^\"]*\"|'[^']*'|[\w.]*)"
        return re.sub(arguments, spell, message) if options else message


def message_of(error: Exception) -> str:
    """The message of an error; one that is not expected is a defect of the package."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, EXPECTED) and type(error) is not NotImplementedError:
        return text
    return f"{type(error).__name__}: {text}\nThis error was not expected. With {DEBUG}=1 it prints where it happened"


def report(ctx: Any, message: str) -> None:
    """Print why a command ended, after its name."""
    name = " ".join(filter(None, ["loca", ctx.invoked_subcommand]))
    typer.echo(f"{name}: {message}", err=True)


app = typer.Typer(
    name="loca",
    cls=Commands,
    help="Learn maps between functions from few, noisy measurements, and evaluate them anywhere.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)
COMMANDS = {
    "Data": (generate, convert, show, check),
    "Models": (train, choose, compare, calibrate),
    "Results": (evaluate, predict, forecast, invert, figures, inspect),
    "Deployment": (export, verify, serve),
}
"""The commands, in the groups of `loca --help`."""

for group, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=group)(with_options(command))


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


CACHE = {
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(2**30),  # in bytes; with it, processes take turns
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
}
"""Settings of JAX's cache of compiled programs."""


def keep_programs() -> None:
    """Have JAX keep the programs that commands compile for the next command, unless the user has set a cache.

    Where there is no place for them, commands compile every time.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        with contextlib.suppress(OSError, RuntimeError):
            directory = cache_directory() / "loca/programs"
            directory.mkdir(parents=True, exist_ok=True)
            if os.access(directory, os.W_OK):
                os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
                for name, value in CACHE.items():
                    os.environ.setdefault(name, value)


def cache_directory() -> Path:
    """Where the platform keeps what programs can compute again."""
    match sys.platform:
        case "darwin":
            return Path.home() / "Library/Caches"
        case "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
        case _:
            return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def main() -> None:
    """Run the command line."""
    keep_programs()
    app()
