"""One look for every picture: small, quiet, readable in print and by the color-blind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:  # importing it takes as long as importing everything else
    from matplotlib.axes import Axes
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

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#666666")
"""Colors of Okabe and Ito (2008), which all kinds of color vision tell apart: blue, vermilion, green, and so on."""

INPUT_COLOR, OUTPUT_COLOR, ERROR_COLOR = PALETTE[:3]

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


def scale(values: Float[np.ndarray, " _"], alike: Float[np.ndarray, " _"] | None = None) -> tuple[Colormap, Normalize]:
    """A color map and its limits: diverging and centered at 0 for signed values, viridis over their range otherwise.

    Others that are to be like the values, such as predictions of them, widen the limits, but do not choose the map: a
    pressure does not become a signed quantity by being predicted badly.
    """
    import matplotlib as mpl
    from matplotlib.colors import Normalize

    low, high = limits(values)
    is_signed = low < 0.0 < high and min(-low, high) > ONE_SIDED * max(-low, high)
    if alike is not None:
        low, high = limits(np.concatenate([values, alike]))
    largest = max(abs(low), abs(high))
    if is_signed:
        return mpl.colormaps["RdBu_r"].with_extremes(bad=MISSING), Normalize(-largest, largest)
    if low == high:  # one value has no range to show
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    return mpl.colormaps["viridis"].with_extremes(bad=MISSING), Normalize(low, high)


def limits(values: Float[np.ndarray, " _"]) -> tuple[float, float]:
    """The least and the largest of the values that are known."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def error_scale(values: Float[np.ndarray, " _"]) -> tuple[Colormap, Normalize]:
    """Purple and orange around white at 0: not to be taken for values."""
    import matplotlib as mpl
    from matplotlib.colors import Normalize

    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    return mpl.colormaps["PuOr"].with_extremes(bad=MISSING), Normalize(-(largest or 1.0), largest or 1.0)


def log_axis(ax: Axes) -> None:
    """A logarithmic y axis with few and plain numbers: 0.02, 0.05, 0.1 over up to two decades, 10⁻² over more."""
    from matplotlib.ticker import (
        FuncFormatter,
        LogFormatterMathtext,
        LogLocator,
        MaxNLocator,
        NullFormatter,
        NullLocator,
    )

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    is_short = high < 200.0 * low
    locator = LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,))
    if high < 5.0 * low:  # too short for two such numbers to be sure
        locator = MaxNLocator(nbins=5, steps=[1, 2, 5, 10])
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(locator)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}") if is_short else LogFormatterMathtext())
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", linewidth=0.3, color="#cccccc")
    ax.set_axisbelow(True)
