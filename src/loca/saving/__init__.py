"""A model as one file: written atomically, checked bit by bit, and loaded without executing anything in it."""

from loca.saving.container import Arrays as Arrays
from loca.saving.container import Container as Container
from loca.saving.container import Entry as Entry
from loca.saving.container import open_container as open_container
from loca.saving.file import MODEL_FILE as MODEL_FILE
from loca.saving.file import inspect as inspect
from loca.saving.file import load as load
from loca.saving.file import save as save
from loca.saving.file import write_arrays as write_arrays
from loca.saving.header import Header as Header
from loca.saving.header import Strict as Strict
from loca.saving.header import first_problem as first_problem
from loca.saving.registry import Classes as Classes
from loca.saving.strict_json import ModelFileError as ModelFileError
from loca.saving.strict_json import parse as parse
from loca.saving.structure import describe as describe

__all__ = [
    "MODEL_FILE",
    "Arrays",
    "Classes",
    "Container",
    "Entry",
    "Header",
    "ModelFileError",
    "Strict",
    "describe",
    "first_problem",
    "inspect",
    "load",
    "open_container",
    "parse",
    "save",
    "write_arrays",
]
