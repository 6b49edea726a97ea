"""Checks of functions on grids: edges that do not meet, and sensors too few for what they see."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from loca.checks.fields import Field, input_fields, output_fields
from loca.checks.finding import Finding
from loca.data import Samples

JUMP = 3.0
"""How much more values may change over an edge than between neighbors. In a periodic field an edge is a place like any
other and the ratio is 1, or a little more where the field happens to be livelier there. Across an edge that does not
close, values have nothing to do with each other, and the ratio is the number of points per correlation length times
√2: more than 3 as soon as a field is resolved at all."""

ROUGH = 0.1
"""The part of the variance in the upper third of the frequencies at which a field counts as not resolved. Noise has a
third there, and a spectrum 1/k, whose variance grows without end as the grid is refined, has ln 1.5 / ln K: 14 % with
K = 16 frequencies. A spectrum 1/k², of Brownian paths and of fields with jumps, whose sampling does converge, has
0.5/(K − 1): 3 % with 16 frequencies and 7 % with 8."""

FEWEST = 16
"""Points along an axis below which a spectrum has too few frequencies to tell one third of them from another."""


def check_edges(samples: Samples) -> Iterator[Finding]:
    """Jumps between opposite edges: a defect on a periodic domain, good to know on a box."""
    open_edges: list[str] = []
    for field in itertools.chain(input_fields(samples), output_fields(samples)):
        for i, axis in enumerate(field.axes):
            lines = field.lines(i)
            if lines.shape[-1] < FEWEST:
                continue
            jump = edge_jump(lines)
            if axis.closing is not None and axis.spacing is not None and jump > JUMP:
                message = (
                    f"{field.name} jumps at the edge of {axis.label} by {jump:.0f} times what neighbors differ by, but "
                    "its domain is periodic there; use a Box, or look for a wrong period"
                )
                yield Finding("warning", "edges", message)
            elif jump > JUMP:
                open_edges.append(f"{field.name} along {axis.label}")
    if open_edges:
        message = (
            f"not periodic: {', '.join(open_edges)}; an FNO rings at such edges unless it is given padding, and so "
            "does a Fourier encoder. LOCA's own encoders do not mind"
        )
        yield Finding("note", "edges", message)


def edge_jump(lines: Float[np.ndarray, "N lines k"]) -> float:
    """Root mean square of last minus first over that of neighbors; 0 for lines that do not vary."""
    between = np.sqrt(np.mean(np.diff(lines, axis=-1) ** 2))
    across = np.sqrt(np.mean((lines[..., -1] - lines[..., 0]) ** 2))
    return float(across / between) if between > 0.0 else 0.0


def check_resolution(samples: Samples) -> Iterator[Finding]:
    """Energy of u near the highest frequency that its sensors can see: there is more beyond, folded into the rest."""
    for field in input_fields(samples):
        for i, axis in enumerate(field.axes):
            if axis.spacing is None or field.values.shape[i + 1] < FEWEST:
                continue
            part = rough_part(field, i)
            if part > ROUGH:
                message = (
                    f"{field.name} has {part:.0%} of its variance in the upper third of the frequencies that its "
                    f"{field.values.shape[i + 1]} sensors along {axis.label} can see: it is noise, or they are too few"
                )
                yield Finding("warning", "resolution", message)


def rough_part(field: Field, axis: int) -> float:
    """The part of a field's variance in the upper third of the frequencies along an axis, averaged over functions.

    A line is freed of its trend and faded out towards its ends before it is transformed: what does not close
    would otherwise have a spectrum of its own.
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
    # what the trend and the differences between lines hold is resolved: count the rest against all of the variance
    left = np.mean(level**2, axis=(1, 2))
    fine = (total > 0.0) & (everything > 0.0)
    if not fine.any():
        return 0.0
    return float(np.mean(upper[fine] / total[fine] * left[fine] / everything[fine]))
