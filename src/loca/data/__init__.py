"""Functions as data: samples in memory, records in files, query forms, normalization and streams of batches."""

from loca.data.dlpack import shared_array as shared_array
from loca.data.files import Labeled as Labeled
from loca.data.files import open as open  # noqa: A004
from loca.data.normalization import Normalization as Normalization
from loca.data.queries import Free as Free
from loca.data.queries import Indexed as Indexed
from loca.data.queries import Queries as Queries
from loca.data.queries import Shared as Shared
from loca.data.records import Part as Part
from loca.data.records import Records as Records
from loca.data.samples import Samples as Samples
from loca.data.samples import Variable as Variable
from loca.data.samples import batch_rows as batch_rows
from loca.data.samples import grid_shape as grid_shape
from loca.data.store import Arrays as Arrays
from loca.data.store import CorruptDataError as CorruptDataError
from loca.data.store import Progress as Progress
from loca.data.store import Statistics as Statistics
from loca.data.store import Store as Store
from loca.data.store import StoreSchema as StoreSchema
from loca.data.store import array_digest as array_digest
from loca.data.store import convert as convert
from loca.data.store import cut as cut
from loca.data.store import group_attributes as group_attributes
from loca.data.store import is_store as is_store
from loca.data.store import samples_from_arrays as samples_from_arrays
from loca.data.store import samples_to_arrays as samples_to_arrays
from loca.data.store import versions as versions
from loca.data.store import write_store as write_store
from loca.data.streaming import Stream as Stream
from loca.data.streaming import stream as stream

__all__ = [
    "Arrays",
    "CorruptDataError",
    "Free",
    "Indexed",
    "Labeled",
    "Normalization",
    "Part",
    "Progress",
    "Queries",
    "Records",
    "Samples",
    "Shared",
    "Statistics",
    "Store",
    "StoreSchema",
    "Stream",
    "Variable",
    "array_digest",
    "batch_rows",
    "convert",
    "cut",
    "grid_shape",
    "group_attributes",
    "is_store",
    "open",
    "samples_from_arrays",
    "samples_to_arrays",
    "shared_array",
    "stream",
    "versions",
    "write_store",
]
