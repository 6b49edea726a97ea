"""Functions as data: samples, query forms, normalization, order."""

from loca.data.grids import grid_shape as grid_shape
from loca.data.normalization import Normalization as Normalization
from loca.data.order import batch_rows as batch_rows
from loca.data.queries import Free as Free
from loca.data.queries import Indexed as Indexed
from loca.data.queries import Queries as Queries
from loca.data.queries import Shared as Shared
from loca.data.samples import Samples as Samples
from loca.data.samples import Variable as Variable

__all__ = ["Free", "Indexed", "Normalization", "Queries", "Samples", "Shared", "Variable", "batch_rows", "grid_shape"]
