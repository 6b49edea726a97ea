"""The command `loca-reproduce`, as tests call it."""

from typer.testing import CliRunner

from loca_reproduction.cli import app


def command(*line, code=0):
    """The output of a command; it must end with this exit code."""
    result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output
