"""Our own files: pairs in a Zarr group that is written piece by piece and checked bit by bit."""

from loca.data.store.conversion import convert as convert
from loca.data.store.layout import Arrays as Arrays
from loca.data.store.layout import StoreLayout as StoreLayout
from loca.data.store.moments import Statistics as Statistics
from loca.data.store.store import Store as Store
from loca.data.store.store import is_store as is_store
from loca.data.store.writing import Progress as Progress
from loca.data.store.writing import versions as versions
from loca.data.store.writing import write_store as write_store
from loca.durable import CorruptDataError as CorruptDataError

__all__ = [
    "Arrays",
    "CorruptDataError",
    "Progress",
    "Statistics",
    "Store",
    "StoreLayout",
    "convert",
    "is_store",
    "versions",
    "write_store",
]
