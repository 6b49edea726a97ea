"""Functions as data: samples in memory and in files, query forms, normalization, order, streams."""

from loca.data.files import Labeled as Labeled
from loca.data.files import open as open  # noqa: A004
from loca.data.grids import grid_shape as grid_shape
from loca.data.normalization import Normalization as Normalization
from loca.data.order import batch_rows as batch_rows
from loca.data.part import Part as Part
from loca.data.queries import Free as Free
from loca.data.queries import Indexed as Indexed
from loca.data.queries import Queries as Queries
from loca.data.queries import Shared as Shared
from loca.data.records import Records as Records
from loca.data.samples import Samples as Samples
from loca.data.samples import Variable as Variable
from loca.data.store import CorruptDataError as CorruptDataError
from loca.data.store import Statistics as Statistics
from loca.data.store import Store as Store
from loca.data.store import convert as convert
from loca.data.streaming import Stream as Stream
from loca.data.streaming import stream as stream

__all__ = [
    "CorruptDataError",
    "Free",
    "Indexed",
    "Labeled",
    "Normalization",
    "Part",
    "Queries",
    "Records",
    "Samples",
    "Shared",
    "Statistics",
    "Store",
    "Stream",
    "Variable",
    "batch_rows",
    "convert",
    "grid_shape",
    "open",
    "stream",
]
