"""A model as one file: written atomically, checked bit by bit, and loaded without executing anything in it."""

from loca.saving.container import Arrays as Arrays
from loca.saving.container import Entry as Entry
from loca.saving.file import MODEL_FILE as MODEL_FILE
from loca.saving.file import inspect as inspect
from loca.saving.file import load as load
from loca.saving.file import save as save
from loca.saving.header import Header as Header
from loca.saving.registry import Classes as Classes
from loca.saving.strict_json import ModelFileError as ModelFileError
from loca.saving.structure import describe as describe

__all__ = [
    "MODEL_FILE",
    "Arrays",
    "Classes",
    "Entry",
    "Header",
    "ModelFileError",
    "describe",
    "inspect",
    "load",
    "save",
]
