"""Arrays in JSON, without loss and as every reader of JSON takes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
"""JSON has no word for these; as strings they survive."""


def to_numbers(values: Float[np.ndarray, ...]) -> Any:
    """Nested lists of numbers; null for what is not a number, words for what is infinite."""

    def write(value: Any) -> Any:
        if isinstance(value, list):
            return [write(each) for each in value]
        return None if math.isnan(value) else INFINITE.get(value, value)

    return write(values.tolist())


def from_numbers(values: Any, shape: tuple[int, ...]) -> Float[np.ndarray, ...]:
    """The array of this shape that `to_numbers` wrote."""
    # NumPy reads null as not a number and both words as they are meant
    array = np.asarray(values, np.float64)
    if array.shape != shape:
        raise ValueError(f"expected numbers of shape {shape} in a report, found {array.shape}; the file was changed")
    return array
