"""A grid of panels, one function per row and one quantity per column, with titles, axes and color bars."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from loca.figures.columns import Column, covers_globe, extent
from loca.figures.panels import draw_curve, draw_field, draw_globe, magnification
from loca.figures.style import error_scale, scale, style, typeset, with_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

PRINT_WIDTH = 7.0
"""Width of the text on a printed page, in inches."""

SMALLEST, LARGEST = 0.8, 1.5
"""Smallest and largest height of a row, in inches."""

CURVE_ASPECT = 1.6
"""Width over height of a panel with a curve."""

LETTER = 0.062
"""Average width of a letter in a title, in inches."""


def draw_columns(columns: list[Column], count: int, captions: Sequence[str] | None = None) -> Figure:
    """Draw `count` functions, one per row, with one panel per column: curves, fields or maps, with color bars below.

    `captions` are written to the left of the rows, rotated.
    """
    from matplotlib.figure import Figure

    starts = [j == 0 or columns[j - 1].is_output != column.is_output for j, column in enumerate(columns)]
    headings = ["" if j and columns[j - 1].heading == each.heading else each.heading for j, each in enumerate(columns)]
    aspects = [aspect_of(column) for column in columns]
    height = float(np.clip(PRINT_WIDTH / sum(aspects), SMALLEST, LARGEST))
    has_fields = any(column.dimension > 1 for column in columns)
    gaps = [0.42 if start or column.dimension == 1 else 0.1 for start, column in zip(starts, columns, strict=True)]
    beside = sum(gaps) + (0.0 if captions is None else 0.3)
    around = 0.12 * any(column.heading or column.caption for column in columns) + 0.45 * has_fields
    around += 0.3 if all(map(is_globe, columns)) else 0.43  # maps have no axis labels below
    with style():
        figure = Figure(figsize=(height * sum(aspects) + beside, (height + 0.07) * count + around))
        figure.set_layout_engine("compressed" if all(map(is_framed, columns)) else "constrained")
        grid = figure.add_gridspec(count, len(columns), width_ratios=aspects)
        panels: dict[str, list[Axes]] = {}
        for j, column in enumerate(columns):
            projection = "mollweide" if is_globe(column) else None
            axes = [figure.add_subplot(grid[i, j], projection=projection) for i in range(count)]
            heading, width = headings[j], height * aspects[j]
            draw_column(figure, axes, column, scale_of(column, columns), heading, width=width, starts_side=starts[j])
            if column.dimension > 1 and not is_globe(column):
                panels.setdefault(column.scale, []).extend(axes)
        for ax, caption in zip(figure.axes, captions or (), strict=False):  # the axes of the first column come first
            ax.set_ylabel(f"{caption}\n{ax.get_ylabel()}".rstrip())
        for same in panels.values():  # panels with the same color scale have the same limits
            align_limits(same, "xy")
        figure.draw_without_rendering()  # computes the layout now, in this style
    return figure


def scale_of(column: Column, columns: list[Column]) -> tuple[Colormap, Normalize]:
    """The color scale shared by all panels of a quantity, at all times."""
    same = [each for each in columns if each.scale == column.scale]
    values = np.concatenate([values for each in same for values in each.colors if not each.is_prediction])
    predicted = [values for each in same for values in each.colors if each.is_prediction]
    if column.is_error and not column.is_vector:
        return error_scale(values)
    cmap, norm = scale(values, np.concatenate(predicted) if predicted else None)
    if column.is_vector:  # lengths start at 0
        norm.vmin = 0.0
    return cmap, norm


def draw_column(
    figure: Figure,
    axes: list[Axes],
    column: Column,
    colors: tuple[Colormap, Normalize],
    heading: str,
    *,
    width: float,
    starts_side: bool,
) -> None:
    """Draw one column of the given width in inches, with a color bar below it if it shows fields."""
    if column.dimension == 1:
        for i, ax in enumerate(axes):
            draw_curve(ax, column, i)
            ax.tick_params(labelbottom=i == len(axes) - 1)
        axes[0].set_title("\n".join(filter(None, (heading, with_unit(wrapped(column.name, width), column.unit)))))
        axes[-1].set_xlabel(column.axes[0])
        align_limits(axes, "x")
        return
    cmap, norm = colors
    for i, ax in enumerate(axes):
        if is_globe(column):
            draw_globe(ax, column, i, cmap, norm)
        else:
            draw_field(ax, column, i, cmap, norm)
            set_axes(ax, column, left=starts_side, bottom=i == len(axes) - 1)
    is_moved = column.is_vector and column.is_displacement
    factor = magnification(column.bounds, norm.vmax or 1.0) if is_moved else 1.0
    magnified = f"×{factor:g}" if factor != 1.0 else ""
    lines = (heading, column.caption), (wrapped(column.name, width), magnified)
    axes[0].set_title("\n".join(filter(None, (", ".join(filter(None, line)) for line in lines))))
    add_colorbar(figure, axes, column, cmap, norm)


def align_limits(axes: list[Axes], directions: str) -> None:
    """Set the same axis limits for all these panels."""
    for direction in directions:
        limits = np.array([getattr(ax, f"get_{direction}lim")() for ax in axes])
        for ax in axes:
            getattr(ax, f"set_{direction}lim")(limits.min(), limits.max())


def is_framed(column: Column) -> bool:
    """Whether the panels of a column have a fixed aspect ratio, which the layout must keep."""
    return column.dimension > 1 and column.axes[0] != "$t$"


def set_axes(ax: Axes, column: Column, *, left: bool, bottom: bool) -> None:
    """Set ticks and labels, on outer panels only, and an equal aspect ratio if both coordinates are spatial."""
    if column.is_geographic:  # a regional map: latitude points up
        ax.set_aspect(1.0 / np.cos(np.radians(column.bounds[:, 0].mean())))
    elif column.axes[0] != "$t$":
        width, height = extent(column.domain, column.bounds)
        if width < 4.0 * height and height < 4.0 * width:  # otherwise the panel would be too narrow to read
            ax.set_aspect("equal")
    ax.locator_params(nbins=3)
    ax.tick_params(labelleft=left, labelbottom=bottom)
    across, up = ("longitude", "latitude") if column.is_geographic else column.axes
    if bottom:
        ax.set_xlabel(across)
    if left:
        ax.set_ylabel(up)


def add_colorbar(figure: Figure, axes: list[Axes], column: Column, cmap: Colormap, norm: Normalize) -> None:
    """Add a horizontal color bar with the unit below a column."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import FuncFormatter

    mappable = ScalarMappable(norm, cmap)
    aspect, fraction = 14 * aspect_of(column), 0.15 / len(axes)
    bar = figure.colorbar(mappable, ax=axes, location="bottom", aspect=aspect, pad=0.01, fraction=fraction)
    bar.outline.set_linewidth(0.5)  # pyright: ignore[reportCallIssue]
    bar.ax.locator_params(nbins=3)
    power = thousands(norm)
    bar.formatter = FuncFormatter(lambda value, _: f"{round(value / 10.0**power, 6) + 0.0:g}".replace("-", "−"))
    factor = f"$10^{{{power}}}$" if power else ""
    lines = (f"|{column.name}|" if column.is_vector else "", f"{factor} {typeset(column.unit)}".strip())
    bar.set_label("\n".join(filter(None, lines)))


def thousands(norm: Normalize) -> int:
    """The exponent, a multiple of 3, to factor out of the tick labels of a color bar; 0 if they are short already.

    Tick labels then have at most three digits before the decimal point. Matplotlib's own offset text would overlap the
    unit.
    """
    largest = max(abs(norm.vmin or 0.0), abs(norm.vmax or 0.0))
    return 0 if largest == 0.0 or 1e-2 <= largest < 1e4 else 3 * math.floor(math.log10(largest) / 3.0)


def wrapped(name: str, width: float) -> str:
    """A name wrapped to fit above a column of this width in inches."""
    return textwrap.fill(name, max(8, int(width / LETTER)), break_long_words=False)


def is_globe(column: Column) -> bool:
    """Whether a column is drawn as maps of the entire sphere."""
    return column.dimension == 2 and column.is_geographic and covers_globe(column.bounds)


def aspect_of(column: Column) -> float:
    """The aspect ratio (width over height) of the panels of a column."""
    if column.dimension == 1:
        return CURVE_ASPECT
    if column.axes[0] == "$t$":
        return 1.2
    width, height = extent(column.domain, column.bounds)
    return float(np.clip(width / height, 0.5, 2.0)) if height > 0.0 else 1.0
