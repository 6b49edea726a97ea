"""One look for every picture: small, quiet, readable in print and by the color-blind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:  # importing it takes as long as importing everything else
    from matplotlib.colors import Colormap, Normalize

STYLE: dict[Any, Any] = {
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.0,
    "xtick.labelsize": 6.0,
    "ytick.labelsize": 6.0,
    "axes.linewidth": 0.5,
    "lines.linewidth": 1.0,
    "lines.markersize": 2.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "axes.titlepad": 4.0,
    "axes.labelpad": 2.0,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.use_mathtext": True,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "pdf.fonttype": 42,  # letters stay letters, which journals ask for
    "savefig.dpi": 300,
}
"""Sizes in points for a picture printed at its own size."""

INPUT_COLOR, OUTPUT_COLOR = "#0072B2", "#D55E00"
"""The blue and the vermilion of Okabe and Ito (2008), which all kinds of color vision tell apart."""

INK, OUTLINE, MISSING = "#333333", "#888888", "#dddddd"

ONE_SIDED = 0.25
"""A field counts as signed when its smaller side reaches this part of its larger one. Below that, three eighths of a
scale centered at 0 would be spent on values that do not occur."""


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw in our style, and leave everybody else's alone."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def scale(values: Float[np.ndarray, " _"]) -> tuple[Colormap, Normalize]:
    """A color map and its limits: diverging and centered at 0 for signed values, viridis over their range otherwise."""
    import matplotlib as mpl
    from matplotlib.colors import Normalize

    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    largest = max(abs(low), abs(high))
    if low < 0.0 < high and min(-low, high) > ONE_SIDED * largest:
        return mpl.colormaps["RdBu_r"].with_extremes(bad=MISSING), Normalize(-largest, largest)
    if low == high:  # one value has no range to show
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    return mpl.colormaps["viridis"].with_extremes(bad=MISSING), Normalize(low, high)
