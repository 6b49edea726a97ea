"""Stores: pairs in a Zarr group that is written piece by piece and checked bit by bit."""

from loca.data.store.schema import Arrays as Arrays
from loca.data.store.schema import StoreSchema as StoreSchema
from loca.data.store.schema import array_digest as array_digest
from loca.data.store.schema import samples_from_arrays as samples_from_arrays
from loca.data.store.schema import samples_to_arrays as samples_to_arrays
from loca.data.store.store import Store as Store
from loca.data.store.store import group_attributes as group_attributes
from loca.data.store.store import is_store as is_store
from loca.data.store.writing import Progress as Progress
from loca.data.store.writing import convert as convert
from loca.data.store.writing import versions as versions
from loca.data.store.writing import write_store as write_store
from loca.durable import CorruptDataError as CorruptDataError

__all__ = [
    "Arrays",
    "CorruptDataError",
    "Progress",
    "Store",
    "StoreSchema",
    "array_digest",
    "convert",
    "group_attributes",
    "is_store",
    "samples_from_arrays",
    "samples_to_arrays",
    "versions",
    "write_store",
]
