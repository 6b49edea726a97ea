"""The kinds and shapes of arrays that a model file can hold."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from loca.saving.errors import ModelFileError, shown

MAX_DIMENSIONS = 32
MAX_EXTENT = 2**40
"""Of an array with one in the place of every zero: an empty array takes no bytes however long its other axes."""

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(bool),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "F32": np.dtype(np.float32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
}
"""By the names that safetensors gives them."""

DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

Arrays = dict[str, jax.Array | np.ndarray]
"""Arrays by their places in a model."""


class Entry(NamedTuple):
    """The kind and shape of one array."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def entry_of(dtype: Any, shape: tuple[int, ...], place: str) -> Entry:
    """The entry of an array that is to be written."""
    name = DTYPE_NAMES.get(dtype)
    if name is None:
        raise ModelFileError(
            f"`{place}` is an array of {dtype}, which a model file cannot hold; it holds {', '.join(DTYPES)}: keep "
            "complex numbers as real and imaginary parts, and random keys out of the model"
        )
    return Entry(name, shape)


def checked_entry(description: Any, place: str) -> Entry:
    """The entry that a file describes as [dtype, *shape]."""
    match description:
        case [str(dtype), *shape] if (
            dtype in DTYPES
            and len(shape) <= MAX_DIMENSIONS
            and all(type(n) is int and n >= 0 for n in shape)
            and math.prod(max(n, 1) for n in shape) <= MAX_EXTENT
        ):
            return Entry(dtype, tuple(shape))
    raise ModelFileError(f"the array {shown(place)} is described as {shown(description)}, which no array is")
