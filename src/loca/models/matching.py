"""The names and locations of data beside those of an operator: equal, the same in another order, or different."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from loca.data import Queries, Shared, Variable, grid_shape

ROUND_OFF = 4.0 * float(np.finfo(np.float32).eps)
"""The largest difference of equal coordinates, relative to the largest coordinate: files store single precision."""

OF_EXTENT = 1e-6
"""The largest difference of equal coordinates, relative to their range: files print them with few digits."""

LONGITUDE_PERIOD = 360.0

Order = Int[np.ndarray, " _"]
"""Numbers of the data's channels, columns or locations, in the order of the operator."""


def channel_order(given: Sequence[Variable], expected: Sequence[Variable], what: str, letter: str) -> Order | None:
    """Which channel of the data is each channel of the operator; None if they have the same order, or no names."""
    both = f"the data has the {what} {listed(given)}, but the model was made for {listed(expected)}"
    if len(given) != len(expected):
        raise ValueError(f"{both}; open the data with the model's {what}")
    names, wanted = [variable.name for variable in given], [variable.name for variable in expected]
    is_same_set = sorted(names) == sorted(wanted) and len(set(names)) == len(names)
    if is_numbered(given, letter) and is_same_set and names != wanted:
        raise ValueError(f"{both}; open the data with the model's {what}, in its order")  # or is it an array's order?
    if not is_same_set and (is_numbered(given, letter) or is_numbered(expected, letter)):
        return None
    if not is_same_set:
        raise ValueError(f"{both}; open the data with the model's {what}, or rename them in the file")
    order = np.array([names.index(name) for name in wanted])
    differing = [v.name for i, v in zip(order, expected, strict=True) if v.unit and given[i].unit not in ("", v.unit)]
    if differing:
        raise ValueError(f"{both}: the units of {', '.join(differing)} differ; convert the values")
    return changed(order)


def column_order(given: Sequence[Variable], expected: Sequence[Variable], what: str) -> Order | None:
    """Which coordinate of the data is each coordinate of the operator; None if in the same order, or without names."""
    if not given or not expected or len(given) == len(expected) == 1:
        return None
    names, wanted = ([canonical_name(variable.name) for variable in each] for each in (given, expected))
    is_same_set = sorted(names) == sorted(wanted) and len(set(names)) == len(names)
    if not is_same_set and any(is_numbered(each, letter) for each in (given, expected) for letter in "xy"):
        return None
    if not is_same_set:
        raise ValueError(
            f"the coordinates of the {what} are {listed(given)} in the data, but {listed(expected)} in the model; "
            "rename them in the file"
        )
    return changed(np.array([names.index(name) for name in wanted]))


def changed(order: Order) -> Order | None:
    """An order; None if it changes nothing."""
    return None if np.array_equal(order, np.arange(len(order))) else order


def is_numbered(variables: Sequence[Variable], letter: str) -> bool:
    """Whether these are the names u1, u2, … of data without names."""
    return all(variable == Variable(f"{letter}{i + 1}") for i, variable in enumerate(variables))


def canonical_name(name: str) -> str:
    """The name of a coordinate in lower case, without abbreviations of latitude and longitude."""
    name = name.lower()
    return {"lat": "latitude", "lon": "longitude", "long": "longitude"}.get(name, name)


def listed(variables: Sequence[Variable]) -> str:
    """Names with units, for messages."""
    return ", ".join(f"{v.name} ({v.unit})" if v.unit else v.name for v in variables) or "(none)"


def described(x: Float[np.ndarray, "m d"], coordinates: Sequence[Variable]) -> str:
    """Locations in words: the shape of their grid or their number, and the range of every coordinate."""
    shape = grid_shape(x)
    coordinates = coordinates or [Variable(f"x{i + 1}") for i in range(x.shape[1])]
    ends = (x[0], x[-1]) if shape is not None else (x.min(axis=0), x.max(axis=0))
    ranges = [
        " ".join(filter(None, (v.name, "from", f"{a:.5g}", "to", f"{b:.5g}", v.unit)))
        for v, a, b in zip(coordinates, *ends, strict=True)
    ]
    what = f"{len(x)} points" if shape is None else f"a grid of {' × '.join(map(str, shape))}"
    return f"{what} ({', '.join(ranges)})"


def matching_order(
    given: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m_ d"], periods: Sequence[float | None]
) -> Order | None:
    """The order in which the given locations are the expected ones; None if they are other locations.

    Round-off is ignored, and coordinates with a period are compared modulo the period.
    """
    if given.shape != expected.shape:
        return None
    tolerance = ROUND_OFF * np.abs(expected).max(axis=0) + OF_EXTENT * np.ptp(expected, axis=0)
    tolerance = np.where(tolerance == 0.0, 1e-30, tolerance)  # a coordinate that is 0 everywhere
    candidates = [(given, expected)]
    if any(period is not None for period in periods):
        columns = list(zip(given.T, expected.T, periods, strict=True))
        around = ([wrap(a, b, period) for a, b, period in columns], [wrap(b, b, period) for _, b, period in columns])
        candidates.append((np.stack(around[0], axis=-1), np.stack(around[1], axis=-1)))
    for here, there in candidates:
        if (np.abs(here - there) <= tolerance).all():  # also if several sensors share a location
            return np.arange(len(here))
    found = (nearest(here / tolerance, there / tolerance) for here, there in candidates)
    return next((order for order in found if order is not None), None)


def nearest(given: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m d"]) -> Order | None:
    """For every expected location the given one within distance 1 along all coordinates; None unless one to one."""
    from scipy.spatial import KDTree

    order = np.asarray(KDTree(given).query(expected, p=np.inf, distance_upper_bound=1.0 + 1e-9)[1])
    times = np.bincount(order, minlength=len(given) + 1)  # a location without a neighbor has the number m
    return order if (times[:-1] == 1).all() else None


def wrap(
    values: Float[np.ndarray, " m"], expected: Float[np.ndarray, " m_"], period: float | None
) -> Float[np.ndarray, " m"]:
    """Values modulo a period, cut in the middle of the widest gap between the expected values."""
    if period is None:
        return values
    around = np.unique(np.mod(expected, period))
    gaps = np.diff(around, append=around[0] + period)
    cut = around[np.argmax(gaps)] + 0.5 * gaps.max()
    return cut + np.mod(values - cut, period)


def transposed_grid(queries: Queries, columns: Order | None) -> Order | None:
    """The order in which shared queries on a grid remain in row-major order if their columns are reordered."""
    if columns is None or not isinstance(queries, Shared):
        return None
    shape = grid_shape(queries.y)
    return None if shape is None else np.arange(queries.count).reshape(shape).transpose(*columns).ravel()
