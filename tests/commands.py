"""The command line, as tests call it."""

import re

from typer.testing import CliRunner

from loca.cli.app import app


def command(*line, code=0):
    """What a command says; it must end with this status."""
    result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def words(said):
    """A message without the frame and the line breaks of a terminal."""
    return re.sub(r"[\s│]+", " ", said)
