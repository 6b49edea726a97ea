"""The style of all figures: sized for print, legible in gray and with color-blindness; one color for each model."""

import itertools
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

import matplotlib.style
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb

STYLE = Path(__file__).with_name("loca.mplstyle")
"""Settings for a figure that is printed at its original size, for `matplotlib.style.use` as well."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#666666")
"""The colors of Okabe and Ito (2008), distinct for all kinds of color vision: blue, vermilion, green, …"""

DASHES = ("-", "--", ":", "-.")  # line styles, so that lines are distinct without color

MODELS = ("loca", "deeponet", "fno", "gaussian", "ridge", "ensemble", "mean field")
"""The models with a fixed color and line style: those at the same place in `PALETTE` and `DASHES`."""

INPUT_COLOR, OUTPUT_COLOR, ERROR_COLOR = PALETTE[:3]

INK = "#333333"
"""The color of lines and text that are not data."""

OUTLINE, MISSING = "#888888", "#dddddd"


def style() -> AbstractContextManager[None]:
    """Use the style of this part within a `with` block, leaving the global settings of matplotlib unchanged."""
    return matplotlib.style.context(STYLE)


def line_styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """`color` and `linestyle` for each name, the same in all figures for names that contain that of a model.

    Up to three names that contain the same model, as "LOCA" and "LOCA, own kernel", have its color in darker and darker
    shades. Other names, and further ones of the same model, get those that are free.
    """
    names, places = list(dict.fromkeys(names)), dict[str, tuple[int, int]]()
    for name in sorted(names, key=len):  # "FNO" before "FNO of another package"
        known = ((place, shade) for place, model in enumerate(MODELS) if model in name.lower() for shade in range(3))
        if unused := [look for look in known if look not in places.values()]:
            places[name] = unused[0]
    free = (i for i in itertools.count() if (i, 0) not in places.values())
    for name in names:
        if name not in places:
            places[name] = next(free), 0
    return {name: _look(*places[name]) for name in names}


def _look(place: int, shade: int) -> dict[str, Any]:
    red, green, blue = (part * (1.0, 0.65, 0.4)[shade] for part in to_rgb(PALETTE[place % 7]))
    return {"color": to_hex((red, green, blue)).upper(), "linestyle": DASHES[(place + shade) % 4]}


def log_axis(ax: Axes, name: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic with few tick labels: 0.02, 0.05, 0.1 over up to two decades, 10⁻² over more."""
    ax.set(**{f"{name}scale": "log"})
    axis, (low, high) = (ax.xaxis, ax.get_xlim()) if name == "x" else (ax.yaxis, ax.get_ylim())
    is_short = high < 200.0 * low
    locator = ticker.LogLocator(subs=(1.0, 2.0, 5.0) if is_short else (1.0,))
    if high < 5.0 * low:  # may be too short for two labels of the form 1, 2, 5
        locator = ticker.MaxNLocator(nbins=5, steps=[1, 2, 5, 10])
        axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_locator(locator)
    axis.set_major_formatter("{x:g}" if is_short else ticker.LogFormatterMathtext())
    axis.set_minor_formatter(ticker.NullFormatter())
    ax.grid(axis=name, linewidth=0.3, color="#cccccc")
    ax.set_axisbelow(True)


def with_unit(name: str, unit: str) -> str:
    """A label with its unit, such as `temperature (K)`."""
    return f"{name} ({typeset(unit)})" if unit else name


def typeset(unit: str) -> str:
    """A unit with superscripts: m s⁻¹ for `m s-1`, as files write it."""
    return re.sub(r"(?<=[A-Za-z])(-?\d+)", r"$^{\1}$", unit)
