"""A model as one file: written atomically, checked bit by bit, and loaded without executing anything in it."""

from loca.saving.container import (
    Arrays,
    Contents,
    ModelFileError,
    Strict,
    digest_of,
    first_problem,
    parse,
    read_arrays,
    write_arrays,
)
from loca.saving.file import MODEL_FILE, Channel, Entry, Header, inspect, load, save
from loca.saving.structure import Classes, describe

__all__ = ["Header", "ModelFileError", "inspect", "load", "save"]
