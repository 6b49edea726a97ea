"""Functions as data: samples in memory, records in files, query forms, transforms and streams of batches."""

from loca.data.channels import ChannelValues as ChannelValues
from loca.data.channels import channels as channels
from loca.data.channels import check_finite as check_finite
from loca.data.channels import not_finite as not_finite
from loca.data.files.labeled import Labeled as Labeled
from loca.data.files.meshes import write_vtu as write_vtu
from loca.data.files.opening import open as open  # noqa: A004
from loca.data.grids import Interpolation as Interpolation
from loca.data.grids import grid_axes as grid_axes
from loca.data.grids import grid_shape as grid_shape
from loca.data.grids import multilinear as multilinear
from loca.data.grids import nearest as nearest
from loca.data.normalization import Normalization as Normalization
from loca.data.normalization import OutputNormalization as OutputNormalization
from loca.data.normalization import TransformNames as TransformNames
from loca.data.normalization import recommend as recommend
from loca.data.queries import Free as Free
from loca.data.queries import Indexed as Indexed
from loca.data.queries import Queries as Queries
from loca.data.queries import Shared as Shared
from loca.data.queries import as_input as as_input
from loca.data.queries import as_numbers as as_numbers
from loca.data.queries import as_queries as as_queries
from loca.data.queries import shared_array as shared_array
from loca.data.records import Part as Part
from loca.data.records import Records as Records
from loca.data.records import Rows as Rows
from loca.data.records import Stream as Stream
from loca.data.records import pieces as pieces
from loca.data.samples import Samples as Samples
from loca.data.samples import Variable as Variable
from loca.data.samples import batch_rows as batch_rows
from loca.data.store import Arrays as Arrays
from loca.data.store import Store as Store
from loca.data.store import array_digest as array_digest
from loca.data.store import arrays_digest as arrays_digest
from loca.data.store import convert as convert
from loca.data.store import data_digest as data_digest
from loca.data.store import group_attributes as group_attributes
from loca.data.store import is_store as is_store
from loca.data.store import samples_to_arrays as samples_to_arrays
from loca.data.store import versions as versions
from loca.data.store import write_store as write_store
from loca.data.transforms import Asinh as Asinh
from loca.data.transforms import Chain as Chain
from loca.data.transforms import Identity as Identity
from loca.data.transforms import Log as Log
from loca.data.transforms import PerLocation as PerLocation
from loca.data.transforms import Transform as Transform
from loca.durable import CorruptDataError as CorruptDataError

__all__ = [
    "Asinh",
    "CorruptDataError",
    "Free",
    "Indexed",
    "Labeled",
    "Log",
    "Normalization",
    "Part",
    "PerLocation",
    "Queries",
    "Records",
    "Samples",
    "Shared",
    "Store",
    "Stream",
    "Transform",
    "TransformNames",
    "Variable",
    "convert",
    "grid_shape",
    "open",
    "recommend",
    "samples_to_arrays",
    "write_store",
    "write_vtu",
]
