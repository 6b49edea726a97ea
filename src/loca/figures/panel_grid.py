"""A grid of panels, one function per row and one quantity per column, with titles, axes and color bars."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from loca.figures.columns import Column, covers_globe, extent
from loca.figures.panels import draw_curve, draw_field, draw_globe, draw_number, magnification
from loca.figures.scales import beyond, scales_of, separate_slices, values_of
from loca.figures.style import style, typeset, with_unit

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

BAR = 0.4
"""Height of a color bar with its labels, in inches."""

LETTER = 0.062
"""Average width of a letter in a title, in inches."""


def draw_columns(columns: list[Column], count: int, captions: Sequence[str] | None = None) -> Figure:
    """Draw `count` functions, one per row, with one panel per column: numbers, curves, fields or maps.

    Color bars are below the columns, or below every panel if rows have color scales of their own.
    `captions` are written to the left of the rows, rotated.
    """
    from matplotlib.figure import Figure

    columns = separate_slices(columns)
    starts = [j == 0 or columns[j - 1].is_output != column.is_output for j, column in enumerate(columns)]
    headings = ["" if j and columns[j - 1].heading == each.heading else each.heading for j, each in enumerate(columns)]
    aspects = [aspect_of(column) for column in columns]
    height = float(np.clip(PRINT_WIDTH / sum(aspects), SMALLEST, LARGEST))
    has_fields = any(column.dimension > 1 for column in columns)
    gaps = [0.42 if start or column.dimension == 1 else 0.1 for start, column in zip(starts, columns, strict=True)]
    beside = sum(gaps) + (0.0 if captions is None else 0.3)
    scales = scales_of(columns, count)
    by_row = any(norm is not norms[0][1] for norms in scales.values() for _, norm in norms)
    around = 0.12 * any(column.heading or column.caption for column in columns) + 0.45 * (has_fields and not by_row)
    around += 0.3 if all(map(is_globe, columns)) else 0.43  # maps have no axis labels below
    with style():
        figure = Figure(figsize=(height * sum(aspects) + beside, (height + 0.07 + BAR * by_row) * count + around))
        figure.set_layout_engine("compressed" if all(map(is_framed, columns)) else "constrained")
        grid = figure.add_gridspec(count, len(columns), width_ratios=aspects)
        panels: dict[str, list[Axes]] = {}
        for j, column in enumerate(columns):
            projection = "mollweide" if is_globe(column) else None
            axes = [figure.add_subplot(grid[i, j], projection=projection) for i in range(count)]
            heading, width = headings[j], height * aspects[j]
            draw_column(axes, column, scales.get(column.scale, []), heading, width=width, starts_side=starts[j])
            if column.dimension > 1:
                for row, (cmap, norm) in enumerate(scales[column.scale][: count if by_row else 1]):
                    rows = [row] if by_row else list(range(count))
                    add_colorbar(figure, axes, column, rows, cmap, norm)
            if column.dimension > 1 and not is_globe(column):
                panels.setdefault(column.scale, []).extend(axes)
        for ax, caption in zip(figure.axes, captions or (), strict=False):  # the axes of the first column come first
            ax.set_ylabel(f"{caption}\n{ax.get_ylabel()}".rstrip())
        for same in panels.values():  # panels with the same color scale have the same limits
            align_limits(same, "xy")
        figure.draw_without_rendering()  # computes the layout now, in this style
    return figure


def draw_column(
    axes: list[Axes],
    column: Column,
    colors: list[tuple[Colormap, Normalize]],
    heading: str,
    *,
    width: float,
    starts_side: bool,
) -> None:
    """Draw one column of the given width in inches; fields have the colors of their rows."""
    if column.is_number:
        for i, ax in enumerate(axes):
            draw_number(ax, column, i)
        unit = f"({typeset(column.unit)})" if column.unit else ""
        axes[0].set_title("\n".join(filter(None, (heading, wrapped(column.name, width), unit))))
        return
    if column.dimension == 1:
        for i, ax in enumerate(axes):
            draw_curve(ax, column, i)
            ax.tick_params(labelbottom=i == len(axes) - 1)
        axes[0].set_title("\n".join(filter(None, (heading, with_unit(wrapped(column.name, width), column.unit)))))
        axes[-1].set_xlabel(column.axes[0])
        align_limits(axes, "x")
        return
    for i, (ax, (cmap, norm)) in enumerate(zip(axes, colors, strict=True)):
        if is_globe(column):
            draw_globe(ax, column, i, cmap, norm)
        else:
            draw_field(ax, column, i, cmap, norm)
            set_axes(ax, column, left=starts_side, bottom=i == len(axes) - 1)
    is_moved = column.is_vector and column.is_displacement
    factor = magnification(column.bounds, colors[0][1].vmax or 1.0) if is_moved else 1.0
    magnified = f"×{factor:g}" if factor != 1.0 else ""
    lines = (heading, column.caption), (wrapped(column.name, width), magnified)
    axes[0].set_title("\n".join(filter(None, (", ".join(filter(None, line)) for line in lines))))


def align_limits(axes: list[Axes], directions: str) -> None:
    """Set the same axis limits for all these panels."""
    for direction in directions:
        limits = np.array([getattr(ax, f"get_{direction}lim")() for ax in axes])
        for ax in axes:
            getattr(ax, f"set_{direction}lim")(limits.min(), limits.max())


def is_framed(column: Column) -> bool:
    """Whether the panels of a column have a fixed aspect ratio, which the layout must keep."""
    return column.is_number or (column.dimension > 1 and column.is_isotropic)


def set_axes(ax: Axes, column: Column, *, left: bool, bottom: bool) -> None:
    """Set ticks and labels, on outer panels only, and an equal aspect ratio if both coordinates are spatial."""
    if column.is_geographic:  # a regional map: latitude points up
        ax.set_aspect(1.0 / np.cos(np.radians(column.bounds[:, 0].mean())))
    elif column.is_isotropic:
        width, height = extent(column)
        if width < 4.0 * height and height < 4.0 * width:  # otherwise the panel would be too narrow to read
            ax.set_aspect("equal")
    ax.locator_params(nbins=3)
    ax.tick_params(labelleft=left, labelbottom=bottom)
    across, up = ("longitude", "latitude") if column.is_geographic else column.axes
    if bottom:
        ax.set_xlabel(across)
    if left:
        ax.set_ylabel(up)


def add_colorbar(
    figure: Figure, axes: list[Axes], column: Column, rows: list[int], cmap: Colormap, norm: Normalize
) -> None:
    """Add a horizontal color bar with the unit below these rows of a column; arrows mark values beyond its ends."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, LogFormatterMathtext, LogLocator

    beyond_ends = beyond(norm, values_of([column], rows))
    bar = figure.colorbar(
        ScalarMappable(norm, cmap),
        ax=[axes[row] for row in rows],
        location="bottom",
        aspect=14 * aspect_of(column),
        pad=0.01,
        fraction=0.15 / len(rows),
        extend=beyond_ends,
    )
    bar.outline.set_linewidth(0.5)  # pyright: ignore[reportCallIssue]
    power = thousands(norm)
    if isinstance(norm, LogNorm):
        is_long = (norm.vmax or 1.0) > 30.0 * (norm.vmin or 1.0)
        bar.locator = LogLocator(subs=(1.0,) if is_long else (1.0, 2.0, 5.0), numticks=4)
        bar.formatter = LogFormatterMathtext() if is_long else FuncFormatter(lambda value, _: f"{value:g}")
        bar.minorlocator = LogLocator(subs=(), numticks=1)
        power = 0
    else:
        bar.ax.locator_params(nbins=3)
        bar.formatter = FuncFormatter(lambda value, _: f"{round(value / 10.0**power, 6) + 0.0:g}".replace("-", "−"))
    factor = f"$10^{{{power}}}$" if power else ""
    unit = f"{factor} {typeset(column.unit)}".strip()
    most = "99 % of values" if column.is_error and beyond_ends != "neither" else ""
    bar.set_label("\n".join(filter(None, (f"|{column.name}|" if column.is_vector else "", unit, most))))


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
    if column.is_number:  # as wide as the longest word above it
        return LETTER * max(8, len(column.unit), *map(len, column.name.split())) / SMALLEST
    if column.dimension == 1:
        return CURVE_ASPECT
    if not (column.is_isotropic or column.is_geographic):
        return 1.2
    width, height = extent(column)
    return float(np.clip(width / height, 0.5, 2.0)) if height > 0.0 else 1.0
