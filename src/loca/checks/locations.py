"""Checks of sensors and queries, and of functions on grids: open edges, and too few sensors."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Literal

import numpy as np
from jaxtyping import Float

from loca.checks.findings import FEW, Finding
from loca.data import Indexed, Samples, Shared, grid_axes
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
        found = np.sort(place.reshape(-1)[np.asarray(queries.index)], axis=1)
        repeated = (np.diff(found, axis=1) == 0).sum(axis=1)
    else:
        y = np.asarray(queries.locations(len(samples)))
        order = np.lexsort(np.moveaxis(y, -1, 0), axis=-1)
        found = np.take_along_axis(y, order[..., None], axis=1)
        repeated = (found[:, 1:] == found[:, :-1]).all(axis=-1).sum(axis=1)
    if repeated.any():
        whom = "every function" if len(repeated) == 1 else f"{int((repeated > 0).sum())} functions"
        message = f"up to {int(repeated.max())} of {queries.count} query locations occur twice in {whom}; keep one each"
        yield Finding("warning", "repeated-queries", message)


@dataclasses.dataclass(frozen=True)
class GridField:
    """One channel of all functions on a grid, without those that contain NaN or Inf; a `letter` names its axes."""

    name: str
    letter: str
    values: Float[np.ndarray, "N ..."]
    axes: tuple[Float[np.ndarray, " _"], ...]
    periods: tuple[float | None, ...]

    def lines(self, axis: int) -> Float[np.ndarray, "N lines k"]:
        """The values along one axis, line by line."""
        moved = np.moveaxis(self.values, axis + 1, -1)
        return moved.reshape(len(moved), -1, moved.shape[-1])

    def label(self, axis: int) -> str:
        """The name of an axis."""
        return self.letter if len(self.axes) == 1 else f"{self.letter}{axis + 1}"

    def spacing(self, axis: int) -> float | None:
        """The spacing of the points along an axis; None if it is uneven."""
        steps = np.abs(np.diff(self.axes[axis].astype(np.float64)))
        even = len(steps) > 0 and np.ptp(steps) <= EVEN * steps.mean()
        return float(steps.mean()) if even else None

    def closes(self, axis: int) -> bool:
        """Whether the points go once around a period: a gap of several spacings would leave no edge to close."""
        spacing, period = self.spacing(axis), self.periods[axis]
        if spacing is None or period is None:
            return False
        return period - float(np.ptp(self.axes[axis])) < 1.5 * spacing


def grid_fields(samples: Samples, side: Literal["input", "output"]) -> Iterator[GridField]:
    """The channels of u or of s whose locations form a grid that all functions share."""
    if side == "input":
        parts = (part for part in samples.parts if not isinstance(part.u, Measurements) and part.x is not None)
        found = [(part.inputs, np.asarray(part.x), part.u) for part in parts]
    else:
        found = [(samples.outputs, np.asarray(samples.y.y), samples.s)] if isinstance(samples.y, Shared) else []
    for variables, points, values in found:
        axes, dimension = grid_axes(points), points.shape[1]
        if axes is None:
            continue
        periods = samples.domain.periods if samples.domain.dimension == dimension else (None,) * dimension
        for variable, channel in zip(variables, np.moveaxis(np.asarray(values), -1, 0), strict=True):
            finite = channel[np.isfinite(channel).all(axis=1)].astype(np.float64)
            if len(finite):
                finite = finite.reshape(len(finite), *map(len, axes))
                letter = "x" if side == "input" else "y"
                yield GridField(f"{side} `{variable.name}`", letter, finite, axes, tuple(periods))


def check_edges(samples: Samples) -> Iterator[Finding]:
    """Jumps between opposite edges: a defect on a periodic domain, a note on a box."""
    open_edges: list[str] = []
    for field in itertools.chain(grid_fields(samples, "input"), grid_fields(samples, "output")):
        for i, axis in enumerate(field.axes):
            jump = edge_jump(field.lines(i)) if len(axis) >= FEWEST else 0.0
            if jump > JUMP and field.closes(i):
                message = (
                    f"{field.name} changes {jump:.0f} times as much across the edge of {field.label(i)} as between "
                    "neighbors, but its domain is periodic there; use a Box, or look for a wrong period"
                )
                yield Finding("warning", "edges", message)
            elif jump > JUMP:
                open_edges.append(f"{field.name} along {field.label(i)}")
    if open_edges:
        message = (
            f"not periodic: {', '.join(open_edges)}; FNO and Fourier encoders ring at such edges, so give an FNO "
            "padding. LOCA's other encoders are not affected"
        )
        yield Finding("note", "edges", message)


def check_periodic(samples: Samples) -> Iterator[Finding]:
    """Coordinates that are not declared periodic, but along which all outputs close."""
    every = list(grid_fields(samples, "output"))
    if not every or len(samples) < FEW:
        return
    for i, axis in enumerate(every[0].axes):
        seams = [seam(field.lines(i)) for field in every]
        if len(axis) < FEWEST or samples.domain.periods[i] is not None or None in seams:
            continue
        spacing = every[0].spacing(i)
        if spacing is None:
            continue
        # a last point that repeats the first is one period away from it, otherwise one spacing before that
        period = float(np.ptp(axis)) + (0.0 if max(each or 0.0 for each in seams) < 0.1 else spacing)
        message = (
            f"the outputs have the same values at both ends of {every[0].label(i)} in every function: if this "
            f"coordinate is periodic, pass domain=Torus(low, high, periodic) with the period {period:.6g}, which also "
            "makes predictions periodic"
        )
        yield Finding("note", "periodic", message)


def seam(lines: Float[np.ndarray, "N lines k"]) -> float | None:
    """`edge_jump` of smooth functions that close; None if they do not, or if all have the same value at the ends."""
    jump, deviation = edge_jump(lines), lines.std()
    between = np.sqrt(np.mean(np.diff(lines, axis=-1) ** 2))
    is_smooth, differs = 0.0 < between < 0.7 * deviation, lines[..., 0].std(axis=0).mean() > 0.3 * deviation
    return jump if jump < 1.5 and is_smooth and differs else None


def edge_jump(lines: Float[np.ndarray, "N lines k"]) -> float:
    """The root mean square of last minus first values over that of neighbors; 0 for constant lines."""
    between = np.sqrt(np.mean(np.diff(lines, axis=-1) ** 2))
    across = np.sqrt(np.mean((lines[..., -1] - lines[..., 0]) ** 2))
    return float(across / between) if between > 0.0 else 0.0


def check_resolution(samples: Samples) -> Iterator[Finding]:
    """Energy of u near the highest frequency that its sensors resolve: a sign of more beyond, aliased into the rest."""
    for field in grid_fields(samples, "input"):
        for i, axis in enumerate(field.axes):
            if len(axis) < FEWEST or field.spacing(i) is None:
                continue
            part = rough_part(field, i)
            if part > ROUGH:
                message = (
                    f"{field.name} has {part:.0%} of its variance in the upper third of the frequencies that its "
                    f"{len(axis)} sensors along {field.label(i)} resolve: it is noise, or there are too few sensors"
                )
                yield Finding("warning", "resolution", message)


def rough_part(field: GridField, axis: int) -> float:
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
