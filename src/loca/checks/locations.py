"""Checks of where functions are known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loca.checks.finding import Finding
from loca.data import Indexed, Samples, Shared
from loca.typing import Measurements

TOLERANCE = 1e-5
"""How far outside, as a part of the extent, is round-off of coordinates in single precision: some hundred spacings."""


def check_locations(samples: Samples) -> Iterator[Finding]:
    """Sensors and queries that are no numbers, or queries outside the domain."""
    x = samples.x
    if isinstance(samples.u, Measurements):
        x = samples.u.x[samples.u.mask]
    for name, points in (("sensors", x), ("queries", samples.y.points)):
        if points is not None:
            wrong = ~np.isfinite(np.asarray(points)).all(axis=-1)
            if wrong.any():
                yield Finding("error", "locations", f"{int(wrong.sum())} of {wrong.size} {name} are NaN or Inf")
    y = np.asarray(samples.y.points)
    outside = ~samples.domain.contains(y[np.isfinite(y).all(axis=-1)], TOLERANCE)
    if outside.any():
        message = (
            f"{int(outside.sum())} of {len(y)} query locations are outside {samples.domain}, for example "
            f"{np.round(y[np.argmax(outside)], 4).tolist()}; are coordinates in the order and unit of the domain?"
        )
        yield Finding("error", "outside", message)


def check_repeated_queries(samples: Samples) -> Iterator[Finding]:
    """The same location asked twice of one function."""
    queries = samples.y
    if isinstance(queries, Shared):
        repeated = np.array([len(queries.y) - len(np.unique(np.asarray(queries.y), axis=0))])
    elif isinstance(queries, Indexed):
        _, place = np.unique(np.asarray(queries.y), axis=0, return_inverse=True)
        repeated = neighbors_equal(np.sort(place.reshape(-1)[np.asarray(queries.index)], axis=1)[..., None])
    else:
        y = np.asarray(queries.locations(len(samples)))
        order = np.lexsort(np.moveaxis(y, -1, 0), axis=-1)
        repeated = neighbors_equal(np.take_along_axis(y, order[..., None], axis=1))
    if repeated.any():
        whom = "every function" if len(repeated) == 1 else f"{int((repeated > 0).sum())} functions"
        message = f"up to {int(repeated.max())} of {queries.count} query locations occur twice in {whom}; keep one each"
        yield Finding("warning", "repeated-queries", message)


def neighbors_equal(values: np.ndarray) -> np.ndarray:
    """How many rows of each function equal the row before."""
    return (values[:, 1:] == values[:, :-1]).all(axis=-1).sum(axis=1)
