"""The style of all figures: sized for print, legible in gray and with color-blindness."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:  # importing matplotlib takes as long as importing everything else
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
    "pdf.fonttype": 42,  # embeds fonts as TrueType, as journals require
    "savefig.dpi": 300,
}
"""Matplotlib settings; sizes are in points for a figure printed at its original size."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#666666")
"""The colors of Okabe and Ito (2008), distinct for all kinds of color vision: blue, vermilion, green, …"""

INPUT_COLOR, OUTPUT_COLOR, ERROR_COLOR = PALETTE[:3]

INK = "#333333"
"""The color of lines and text that are not data."""

OUTLINE, MISSING = "#888888", "#dddddd"

ONE_SIDED = 0.25
"""A field counts as signed if its smaller extreme is at least this fraction of its larger one. Below that, three
eighths of a color scale centered at 0 would be unused."""


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Use the style of this part within a `with` block, leaving the global settings of matplotlib unchanged."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def scale(values: Float[np.ndarray, " _"], alike: Float[np.ndarray, " _"] | None = None) -> tuple[Colormap, Normalize]:
    """A color map and its limits: diverging and centered at 0 for signed values, viridis over their range otherwise.

    Values in `alike`, such as predictions, widen the limits but do not affect the choice of the map: a bad prediction
    does not turn pressure into a signed quantity.
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
    if low == high:  # a constant field has no range
        low, high = low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0)
    return mpl.colormaps["viridis"].with_extremes(bad=MISSING), Normalize(low, high)


def limits(values: Float[np.ndarray, " _"]) -> tuple[float, float]:
    """The smallest and the largest finite value."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def error_scale(values: Float[np.ndarray, " _"]) -> tuple[Colormap, Normalize]:
    """A color map for errors, purple and orange around white at 0, distinct from those for values."""
    import matplotlib as mpl
    from matplotlib.colors import Normalize

    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max()) if finite.size else 0.0
    return mpl.colormaps["PuOr"].with_extremes(bad=MISSING), Normalize(-(largest or 1.0), largest or 1.0)


def log_axis(ax: Axes) -> None:
    """Make the y axis logarithmic with few tick labels: 0.02, 0.05, 0.1 over up to two decades, 10⁻² over more."""
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
    if high < 5.0 * low:  # may be too short for two labels of the form 1, 2, 5
        locator = MaxNLocator(nbins=5, steps=[1, 2, 5, 10])
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(locator)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}") if is_short else LogFormatterMathtext())
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(axis="y", linewidth=0.3, color="#cccccc")
    ax.set_axisbelow(True)


def with_unit(name: str, unit: str) -> str:
    """A label with its unit, such as `temperature (K)`."""
    return f"{name} ({typeset(unit)})" if unit else name


def typeset(unit: str) -> str:
    """A unit with superscripts: m s⁻¹ for `m s-1`, as files write it."""
    return re.sub(r"(?<=[A-Za-z])(-?\d+)", r"$^{\1}$", unit)
