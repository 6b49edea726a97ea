"""The command line: `loca --help`."""

from loca.cli.app import main

__all__ = ["main"]
