"""The arrays of a prediction, as they are stored: outputs and their error bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from loca.prediction.grid import Tile

ERROR_BARS = {
    "": "",
    "_std": "standard deviation of the error of {name}",
    "_lower": "lower end of pointwise {level} % bands of {name}",
    "_upper": "upper end of pointwise {level} % bands of {name}",
}
"""Endings of the names of predictions, error bars and bands, and what they are."""


class StoredArray(NamedTuple):
    """An array that is written in tiles."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: str
    attributes: dict[str, Any]


TileValues = Mapping[str, tuple[Tile, np.ndarray]]
"""The content of one tile: for each array a region and its values."""


def with_error_bars(arrays: Mapping[str, StoredArray], level: float | None) -> dict[str, StoredArray]:
    """Outputs as they are stored and, if there are bands of a level, standard deviations and ends of bands."""
    if level is None:
        return dict(arrays)
    found = {}
    for ending, title in ERROR_BARS.items():
        for name, array in arrays.items():
            kept = {k: v for k, v in array.attributes.items() if not ending or k in ("units", "coordinates")}
            told = {"long_name": title.format(name=name, level=f"{100 * level:g}")} if ending else {}
            found[name + ending] = array._replace(attributes={**kept, **told})
    return found
