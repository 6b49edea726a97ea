"""Failures of commands: one message and an exit code instead of a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

DEBUG = "LOCA_DEBUG"
"""The environment variable with which errors print a traceback."""

FAILURE = 1
"""The exit code of a command that failed; a wrong command line has 2."""

INTERRUPTED = 128 + signal.SIGINT
"""The exit code after Ctrl-C."""

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
        except (typer.Exit, typer.Abort, WrongCommandError, BrokenPipeError):
            raise  # Typer prints these
        except KeyboardInterrupt:
            report(ctx, "interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if os.environ.get(DEBUG):
                raise
            report(ctx, message_of(error))
            raise typer.Exit(FAILURE) from None


@contextlib.contextmanager
def concerning(file: str) -> Iterator[None]:
    """Begin messages about the values in a file, such as those for a model of other sensors, with its name."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error


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
