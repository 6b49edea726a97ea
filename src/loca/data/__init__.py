"""Functions as data: samples in memory, records in files, query forms, transforms and streams of batches."""

from loca.data.channels import ChannelValues, channels, check_finite, not_finite
from loca.data.files.labeled import Labeled
from loca.data.files.meshes import write_vtu
from loca.data.files.opening import open  # noqa: A004
from loca.data.grids import Interpolation, grid_axes, grid_shape, multilinear, nearest
from loca.data.normalization import Normalization, OutputNormalization, TransformNames, recommend
from loca.data.queries import Free, Indexed, Queries, Shared, as_input, as_numbers, as_queries, shared_array
from loca.data.records import Part, Records, Rows, Stream, pieces
from loca.data.samples import Samples, Variable, batch_rows, coordinates_of
from loca.data.store import (
    Arrays,
    Store,
    array_digest,
    arrays_digest,
    convert,
    data_digest,
    finish_group,
    group_attributes,
    is_store,
    labeled,
    samples_to_arrays,
    versions,
    write_store,
)
from loca.data.trajectories import Moments, Steps, Trajectories, at, phases
from loca.data.transforms import Asinh, Chain, Identity, Log, PerLocation, Transform
from loca.durable import CorruptDataError

__all__ = [
    "CorruptDataError",
    "Free",
    "Indexed",
    "Labeled",
    "Log",
    "Normalization",
    "Part",
    "Queries",
    "Records",
    "Samples",
    "Shared",
    "Steps",
    "Store",
    "Stream",
    "Trajectories",
    "TransformNames",
    "Variable",
    "convert",
    "grid_shape",
    "open",
    "samples_to_arrays",
    "write_store",
    "write_vtu",
]
