"""Checks of sensors and queries, and of functions on grids: open edges, and too few sensors."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.checks.findings import Finding
from loca.data import Indexed, Samples, Shared, grid_shape
from loca.domains import Domain
from loca.typing import Measurements

TOLERANCE = 1e-5
"""How far outside the domain, relative to its extent, a location may be: some hundred spacings of single precision."""

EVEN = 1e-3
"""The relative difference below which spacings count as equal: coordinates in single precision stay below it."""

JUMP = 3.0
"""How much more values may change across an edge than between neighbors. For a periodic field the edge is a place like
any other, and the ratio is 1, or a little more if the field happens to vary more there. Across an edge that does not
close, the values are unrelated, and the ratio is √2 times the number of points per correlation length: more than 3 for
any resolved field."""

ROUGH = 0.1
"""The share of the variance in the upper third of the frequencies above which a field counts as not resolved. White
noise has a third there. A spectrum 1/k, whose variance grows without bound as the grid is refined, has ln 1.5 / ln K:
14 % with K = 16 frequencies. A spectrum 1/k², that of Brownian paths and of fields with jumps, whose sampling does
converge, has 0.5/(K − 1): 3 % with 16 frequencies and 7 % with 8."""

FEWEST = 16
"""Points along an axis below which a spectrum has too few frequencies to compare thirds of them."""


def check_locations(samples: Samples) -> Iterator[Finding]:
    """Sensors and queries that are NaN or Inf, and queries outside the domain."""
    sensors = [part.u.x[part.u.mask] if isinstance(part.u, Measurements) else part.x for part in samples.parts]
    for name, points in (*(("sensors", x) for x in sensors), ("queries", samples.y.points)):
        if points is not None:
            wrong = ~np.isfinite(np.asarray(points)).all(axis=-1)
            if wrong.any():
                yield Finding("error", "locations", f"{int(wrong.sum())} of {wrong.size} {name} are NaN or Inf")
    y = np.asarray(samples.y.points)
    finite = y[np.isfinite(y).all(axis=-1)]
    outside = ~samples.domain.contains(finite, TOLERANCE)
    if outside.any():
        message = (
            f"{int(outside.sum())} of {len(y)} query locations are outside {samples.domain}, for example "
            f"{np.round(finite[np.argmax(outside)], 4).tolist()}; check the order and the units of the coordinates"
        )
        yield Finding("error", "outside", message)


def check_repeated_queries(samples: Samples) -> Iterator[Finding]:
    """Locations at which one function is queried twice."""
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
    """For each function, the number of rows that equal the row before."""
    return (values[:, 1:] == values[:, :-1]).all(axis=-1).sum(axis=1)


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis of a grid: the spacing of its points, and the gap from the last point across the edge to the first.

    The spacing is None if it is uneven, and the gap is None if the axis does not close.
    """

    label: str
    spacing: float | None
    closing: float | None


@dataclasses.dataclass(frozen=True)
class Field:
    """One channel of all functions on a grid."""

    name: str
    values: Float[np.ndarray, "N ..."]
    axes: tuple[Axis, ...]

    def lines(self, axis: int) -> Float[np.ndarray, "N lines k"]:
        """The values along one axis, line by line."""
        moved = np.moveaxis(self.values, axis + 1, -1)
        return moved.reshape(len(moved), -1, moved.shape[-1])


def input_fields(samples: Samples) -> Iterator[Field]:
    """The channels of u, if the sensors form a grid."""
    for part in samples.parts:
        if not isinstance(part.u, Measurements) and part.x is not None:
            x = np.asarray(part.x)
            domain = samples.domain if samples.domain.dimension == x.shape[1] else None
            names = [f"input `{variable.name}`" for variable in part.inputs]
            yield from fields(names, x, np.asarray(part.u), domain, "x")


def output_fields(samples: Samples) -> Iterator[Field]:
    """The channels of s, if all functions share queries that form a grid."""
    if isinstance(samples.y, Shared):
        names = [f"output `{variable.name}`" for variable in samples.outputs]
        yield from fields(names, np.asarray(samples.y.y), np.asarray(samples.s), samples.domain, "y")


def fields(
    names: list[str],
    points: Float[np.ndarray, "P d"],
    values: Float[np.ndarray, "N P c"],
    domain: Domain | None,
    letter: str,
) -> Iterator[Field]:
    """One field per channel, without the functions that contain NaN or Inf."""
    shape = grid_shape(jnp.asarray(points))
    if shape is None:
        return
    grid = points.astype(np.float64).reshape(*shape, len(shape))
    periods = (None,) * len(shape) if domain is None else domain.periods
    axes = []
    for i in range(len(shape)):
        along = grid[(0,) * i + (slice(None),) + (0,) * (len(shape) - 1 - i) + (i,)]
        label = letter if len(shape) == 1 else f"{letter}{i + 1}"
        axes.append(axis_of(along, periods[i], label))
    for c, name in enumerate(names):
        kept = values[np.isfinite(values[..., c]).all(axis=1), :, c]
        if len(kept):
            yield Field(name, kept.astype(np.float64).reshape(len(kept), *shape), tuple(axes))


def axis_of(along: Float[np.ndarray, " k"], period: float | None, label: str) -> Axis:
    """The axis with these points."""
    steps = np.abs(np.diff(along))
    even = len(steps) > 0 and np.ptp(steps) <= EVEN * steps.mean()
    spacing = float(steps.mean()) if even else None
    if period is None or spacing is None:
        return Axis(label, spacing, None)
    gap = period - float(np.ptp(along))
    # A gap of several spacings means that the points cover only part of the period: there is no edge to close.
    return Axis(label, spacing, max(gap, 0.0) if gap < 1.5 * spacing else None)


def check_edges(samples: Samples) -> Iterator[Finding]:
    """Jumps between opposite edges: a defect on a periodic domain, a note on a box."""
    open_edges: list[str] = []
    for field in itertools.chain(input_fields(samples), output_fields(samples)):
        for i, axis in enumerate(field.axes):
            lines = field.lines(i)
            if lines.shape[-1] < FEWEST:
                continue
            jump = edge_jump(lines)
            if axis.closing is not None and axis.spacing is not None and jump > JUMP:
                message = (
                    f"{field.name} changes {jump:.0f} times as much across the edge of {axis.label} as between "
                    "neighbors, but its domain is periodic there; use a Box, or look for a wrong period"
                )
                yield Finding("warning", "edges", message)
            elif jump > JUMP:
                open_edges.append(f"{field.name} along {axis.label}")
    if open_edges:
        message = (
            f"not periodic: {', '.join(open_edges)}; FNO and Fourier encoders ring at such edges, so give an FNO "
            "padding. LOCA's other encoders are not affected"
        )
        yield Finding("note", "edges", message)


def edge_jump(lines: Float[np.ndarray, "N lines k"]) -> float:
    """The root mean square of last minus first values over that of neighbors; 0 for constant lines."""
    between = np.sqrt(np.mean(np.diff(lines, axis=-1) ** 2))
    across = np.sqrt(np.mean((lines[..., -1] - lines[..., 0]) ** 2))
    return float(across / between) if between > 0.0 else 0.0


def check_resolution(samples: Samples) -> Iterator[Finding]:
    """Energy of u near the highest frequency that its sensors resolve: a sign of more beyond, aliased into the rest."""
    for field in input_fields(samples):
        for i, axis in enumerate(field.axes):
            if axis.spacing is None or field.values.shape[i + 1] < FEWEST:
                continue
            part = rough_part(field, i)
            if part > ROUGH:
                message = (
                    f"{field.name} has {part:.0%} of its variance in the upper third of the frequencies that its "
                    f"{field.values.shape[i + 1]} sensors along {axis.label} resolve: it is noise, or there are too "
                    "few sensors"
                )
                yield Finding("warning", "resolution", message)


def rough_part(field: Field, axis: int) -> float:
    """The share of a field's variance in the upper third of the frequencies along an axis, averaged over functions.

    Before the Fourier transform, every line is detrended and tapered towards its ends: open edges would otherwise
    have a spectrum of their own.
    """
    lines = field.lines(axis)
    k = lines.shape[-1]
    t = np.linspace(-1.0, 1.0, k)
    centered = lines - lines.mean(axis=-1, keepdims=True)
    level = centered - (centered @ t)[..., None] * t / (t @ t)
    power = np.abs(np.fft.rfft(level * np.hanning(k), axis=-1)) ** 2
    power[..., 0] = 0.0
    highest = power.shape[-1] - 1
    upper = power[..., int(np.ceil(2 * highest / 3)) :].sum(axis=(1, 2))
    total, everything = power.sum(axis=(1, 2)), np.var(lines, axis=(1, 2))
    # the trend and the differences between lines are resolved: compare the rest with all of the variance
    left = np.mean(level**2, axis=(1, 2))
    fine = (total > 0.0) & (everything > 0.0)
    if not fine.any():
        return 0.0
    return float(np.mean(upper[fine] / total[fine] * left[fine] / everything[fine]))
