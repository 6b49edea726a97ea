"""A model as one file: written whole, checked bit by bit, and read without running anything it says."""

from loca.saving.entries import Entry as Entry
from loca.saving.errors import ModelFileError as ModelFileError
from loca.saving.header import Header as Header
from loca.saving.reading import inspect as inspect
from loca.saving.reading import load as load
from loca.saving.writing import save as save

__all__ = ["Entry", "Header", "ModelFileError", "inspect", "load", "save"]
