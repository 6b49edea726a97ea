"""The command line, as tests call it."""

from typer.testing import CliRunner

from loca.cli.app import app


def command(*line, code=0):
    """What a command says; it must end with this status."""
    result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output
