"""The command line: `loca --help`."""

from loca.cli.app import main as main

__all__ = ["main"]
