"""Files of many formats as labeled pairs of functions, read on demand."""

from loca.data.files.labeled import Labeled as Labeled
from loca.data.files.meshes import write_vtu as write_vtu
from loca.data.files.opening import FORMATS as FORMATS
from loca.data.files.opening import open as open  # noqa: A004

__all__ = ["FORMATS", "Labeled", "open", "write_vtu"]
