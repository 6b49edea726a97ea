"""Color scales: which map, which limits, and which panels share them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from loca.figures.columns import Column
from loca.figures.style import MISSING

if TYPE_CHECKING:
    from matplotlib.colors import Colormap, Normalize

MAPS = {"plain": "viridis", "log": "viridis", "length": "viridis", "signed": "RdBu_r", "error": "PuOr"}
"""The color map of each kind of scale. Errors have colors of their own: purple and orange around white at 0."""

ONE_SIDED = 0.25
"""A field counts as signed if its smaller extreme is at least this fraction of its larger one. Below that, three
eighths of a color scale centered at 0 would be unused."""

DECADES = 100.0
"""Ratio of the 99 % to the 1 % quantile from which positive values have a logarithmic scale."""

OUTLIER = 4.0
"""Errors have the limits of 99 % of the values if the largest is this many times larger."""

VISIBLE = 0.25
"""Rows and slices have scales of their own if one of them would use less than this fraction of the colors."""


def scales_of(columns: list[Column], count: int) -> dict[str, list[tuple[Colormap, Normalize]]]:
    """The color map and limits of every row, by the key of the scale that columns of fields share.

    Rows share their limits unless one of them would be nearly blank, such as a typical error above the worst one.
    """
    found = {}
    for key in dict.fromkeys(column.scale for column in columns if column.dimension > 1):
        same = [column for column in columns if column.scale == key]
        true, alike = ([c for c in same if c.is_prediction is predicted] for predicted in (False, True))
        everything = values_of(true, range(count))
        kind = kind_of_column(true[0], everything)
        shared = norm_of(kind, everything, values_of(alike, range(count)))
        rows = [values_of(true, [row]) for row in range(count)]
        # displacements are magnified by a factor in the title, which all rows must share
        shares = true[0].is_displacement or min(used(kind, shared, values) for values in rows) >= VISIBLE
        found[key] = [
            (color_map(kind), shared if shares else norm_of(kind, values, values_of(alike, [row])))
            for row, values in enumerate(rows)
        ]
    return found


def separate_slices(columns: list[Column]) -> list[Column]:
    """The columns with a scale for each slice, such as each time, where one of them would be nearly blank otherwise."""
    blank = set()
    for key in dict.fromkeys(column.scale for column in columns if column.dimension > 1 and column.caption):
        same = [column for column in columns if column.scale == key]
        everything = values_of(same, range(len(same[0].values)))
        kind = kind_of_column(same[0], everything)
        norm = norm_of(kind, everything)
        slices = (values_of([column], range(len(column.values))) for column in same)
        if not same[0].is_displacement and min(used(kind, norm, values) for values in slices) < VISIBLE:
            blank.add(key)
    return [
        dataclasses.replace(column, scale=f"{column.scale} {column.caption}") if column.scale in blank else column
        for column in columns
    ]


def values_of(columns: list[Column], rows: range | list[int]) -> Float[np.ndarray, " _"]:
    """All values of these columns and rows."""
    return np.concatenate([np.empty(0), *(column.colors[row] for column in columns for row in rows)])


def kind_of_column(column: Column, values: Float[np.ndarray, " _"]) -> str:
    """The kind of scale of a column, given the values of all columns that share it."""
    if column.is_vector:
        return "length"
    if column.is_error:
        return "error"
    kind = kind_of(values)
    return "plain" if kind == "log" and column.is_linear else kind


def kind_of(values: Float[np.ndarray, " _"]) -> str:
    """The kind of scale that suits values: "signed", "log" or "plain"."""
    low, high = limits(values)
    if low < 0.0 < high and min(-low, high) > ONE_SIDED * max(-low, high):
        return "signed"
    if low > 0.0:
        first, last = np.quantile(values[np.isfinite(values)], [0.01, 0.99])
        return "log" if last > DECADES * first else "plain"
    return "plain"


def color_map(kind: str) -> Colormap:
    """The color map of a kind of scale, gray where values are missing."""
    import matplotlib as mpl

    return mpl.colormaps[MAPS[kind]].with_extremes(bad=MISSING)


def norm_of(kind: str, values: Float[np.ndarray, " _"], alike: Float[np.ndarray, " _"] | None = None) -> Normalize:
    """The limits of a scale.

    They are the range of the values; centered at 0 if the kind is "signed" or "error", and from 0 if it is "length".
    Values in `alike`, such as predictions, widen them by at most the range of the values on each side, or by a decade:
    a bad prediction must not make the truth pale. Few large errors do not count, see `OUTLIER`; neither do values far
    below the others on a logarithmic scale.
    """
    from matplotlib.colors import LogNorm, Normalize

    low, high = limits(values)
    below, above = (low, high) if alike is None or not np.isfinite(alike).any() else limits(alike)
    if kind == "error":
        largest = largest_error(values)
        return Normalize(-(largest or 1.0), largest or 1.0)
    finite = values[np.isfinite(values)]
    if kind == "log" and finite.size:
        low = max(low, float(np.quantile(finite, 0.01)) / 10.0)
        low, high = max(min(low, below), low / 10.0), min(max(high, above), high * 10.0)
        return LogNorm(*((low, high) if low < high else (0.5 * low, 2.0 * high)), clip=True)  # 0 is below, not missing
    reach = high - low or np.inf
    low, high = max(min(low, below), low - reach), min(max(high, above), high + reach)
    largest = max(abs(low), abs(high))
    if kind == "signed":
        return Normalize(-largest, largest)
    if kind == "length":
        return Normalize(0.0, high or 1.0)
    if low == high:  # a constant field has no range
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    return Normalize(low, high)


def limits(values: Float[np.ndarray, " _"]) -> tuple[float, float]:
    """The smallest and the largest finite value."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def largest_error(values: Float[np.ndarray, " _"]) -> float:
    """The largest absolute value, or that of 99 % of the values if it is much smaller."""
    finite = np.abs(values[np.isfinite(values)])
    if not finite.size:
        return 0.0
    largest, most = float(finite.max()), float(np.quantile(finite, 0.99))
    return most if 0.0 < OUTLIER * most < largest else largest


def used(kind: str, norm: Normalize, values: Float[np.ndarray, " _"]) -> float:
    """The fraction of the colors that values use; 1 for a constant field, which no scale makes visible."""
    finite = values[np.isfinite(values)]
    if not finite.size or np.ptp(finite) == 0.0:
        return 1.0
    if kind == "error":
        return largest_error(finite) / (norm.vmax or 1.0)
    place = np.asarray(norm(finite))
    if kind == "signed":
        return float(2.0 * np.abs(place - 0.5).max())
    return float(place.max() if kind == "length" else np.ptp(place))


def beyond(norm: Normalize, values: Float[np.ndarray, " _"]) -> str:
    """At which ends values exceed the limits of a scale: "neither", "min", "max" or "both"."""
    low, high = limits(values)
    slack = 1e-6 * ((norm.vmax or 0.0) - (norm.vmin or 0.0))
    below, above = low < (norm.vmin or 0.0) - slack, high > (norm.vmax or 0.0) + slack
    return {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[below, above]
