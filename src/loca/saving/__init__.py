"""A model as one file: written atomically, checked bit by bit, and loaded without executing anything in it."""

from loca.saving.container import Arrays as Arrays
from loca.saving.container import Contents as Contents
from loca.saving.container import ModelFileError as ModelFileError
from loca.saving.container import Strict as Strict
from loca.saving.container import first_problem as first_problem
from loca.saving.container import parse as parse
from loca.saving.container import read_arrays as read_arrays
from loca.saving.container import write_arrays as write_arrays
from loca.saving.file import MODEL_FILE as MODEL_FILE
from loca.saving.file import Channel as Channel
from loca.saving.file import Entry as Entry
from loca.saving.file import Header as Header
from loca.saving.file import inspect as inspect
from loca.saving.file import load as load
from loca.saving.file import save as save
from loca.saving.structure import Classes as Classes
from loca.saving.structure import describe as describe

__all__ = ["Header", "ModelFileError", "inspect", "load", "save"]
