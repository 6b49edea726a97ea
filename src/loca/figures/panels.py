"""Drawing one function into one panel: curves, fields, points, arrows, deformed grids and globes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from loca.data import grid_shape
from loca.figures.columns import Column
from loca.figures.style import ERROR_COLOR, INK, INPUT_COLOR, MISSING, OUTLINE, OUTPUT_COLOR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize

ARROWS = 10
"""Number of arrows along the longer side of a panel: as many as stay distinct in a panel of one inch."""

LINES = 15
"""Number of lines of a deformed grid along each side."""

CROWDED = 100
"""Number of values from which a curve is drawn as a line; fewer labels are drawn as separate points."""

VISIBLE = 0.05
"""A displacement below this fraction of the domain is too small to see and is drawn magnified."""


def draw_number(ax: Axes, column: Column, row: int) -> None:
    """Write a single number into the middle of a panel without a frame."""
    (value,) = column.values[row]
    ax.text(0.5, 0.5, f"{value:.4g}".replace("-", "−"), transform=ax.transAxes, ha="center", va="center")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def draw_curve(ax: Axes, column: Column, row: int) -> None:
    """Draw values over one coordinate: a line, or points if locations are few and differ between functions."""
    x, values = column.points[row][:, 0], column.values[row]
    order = np.argsort(x, kind="stable")
    few = len(x) < 2 or (not column.is_shared and len(x) < CROWDED)
    ax.plot(x[order], values[order], "." if few else "-", color=curve_color(column))
    if column.overlay is not None:
        ax.plot(x[order], column.overlay[row][order], "x" if few else "--", color=INK, linewidth=0.8)
    if column.is_error:
        ax.axhline(0.0, color=OUTLINE, linewidth=0.5, zorder=0)
    ax.margins(x=0.0 if not few else 0.02)
    ax.spines[["top", "right"]].set_visible(False)
    ax.locator_params(axis="y", nbins=4)
    ax.locator_params(axis="x", nbins=5)


def curve_color(column: Column) -> str:
    """Blue for inputs, vermilion for outputs, green for errors."""
    return ERROR_COLOR if column.is_error else OUTPUT_COLOR if column.is_output else INPUT_COLOR


def draw_field(ax: Axes, column: Column, row: int, cmap: Colormap, norm: Normalize) -> None:
    """Draw values over two coordinates as colors: the cells of a grid, or points."""
    points, values = column.points[row], column.values[row]
    shape = grid_shape(jnp.asarray(points))
    if column.is_vector and column.is_displacement and shape is not None:
        draw_deformed(ax, points.reshape(*shape, 2), values.reshape(*shape, 2), cmap, norm)
        return
    colors = column.colors[row]
    upright = column.is_geographic
    drawn = points[:, ::-1] if upright else points
    triangles = None if shape is not None or column.domain is None else column.domain.triangles(points)
    if triangles is not None and np.isfinite(colors).all():
        ax.tripcolor(
            points[:, 0],
            points[:, 1],
            colors,
            triangles=triangles,
            cmap=cmap,
            norm=norm,
            shading="gouraud",
            rasterized=True,
        )
    elif shape is None:
        draw_points(ax, drawn, colors, cmap, norm)
        (left, bottom), (right, top) = column.bounds[:, ::-1] if upright else column.bounds
        ax.update_datalim([(left, bottom), (right, top)])  # all slices have the same limits
        ax.autoscale_view()
    else:
        (a, b), field = sorted_grid(points.reshape(*shape, 2), colors.reshape(shape))
        across, up, field = (b, a, field) if upright else (a, b, field.T)
        ax.pcolormesh(edges(across), edges(up), np.ma.masked_invalid(field), cmap=cmap, norm=norm, rasterized=True)
    if column.is_vector:
        draw_arrows(ax, drawn, values, norm.vmax or 1.0)


def draw_points(
    ax: Axes, points: Float[np.ndarray, "P 2"], colors: Float[np.ndarray, " P"], cmap: Colormap, norm: Normalize
) -> None:
    """Draw one dot per location, as large as possible without hiding its neighbors."""
    size = float(np.clip(2500.0 / len(points), 2.0, 16.0))  # in square points; a panel of an inch has 5184
    known = np.isfinite(colors)
    ax.scatter(*points[~known].T, s=size, color=MISSING, marker="x", linewidth=0.4)
    # Outlines keep white dots visible; very small dots have none.
    line = {"linewidth": 0.2 if size > 4.0 else 0.0, "edgecolor": OUTLINE}
    ax.scatter(*points[known].T, c=colors[known], s=size, cmap=cmap, norm=norm, rasterized=True, **line)


def draw_arrows(ax: Axes, points: Float[np.ndarray, "P 2"], v: Float[np.ndarray, "P 2"], largest: float) -> None:
    """Draw a coarse set of arrows, the longest twice as long as their spacing.

    They are dark because colors are light where arrows are long.
    """
    keep = thinned(points)
    spacing = np.ptp(points, axis=0).max() / ARROWS
    ax.quiver(
        *points[keep].T, *v[keep].T, color=INK, angles="xy", scale_units="xy", scale=largest / (2.0 * spacing),
        width=0.009, headwidth=3.5, headlength=4.0, headaxislength=3.5, minlength=0.3, pivot="mid",
    )  # fmt: skip


def thinned(points: Float[np.ndarray, "P 2"]) -> Int[np.ndarray, " K"]:
    """Indices of the locations nearest to the centers of the cells of a coarse grid, one per cell."""
    low, size = points.min(axis=0), np.ptp(points, axis=0)
    position = (points - low) / np.where(size == 0.0, 1.0, size).max() * ARROWS * (1.0 - 1e-9)
    cell = np.floor(position).astype(int)
    distance = np.linalg.norm(position - cell - 0.5, axis=1)
    order = np.lexsort((distance, cell[:, 1], cell[:, 0]))
    _, first = np.unique(cell[order], axis=0, return_index=True)
    return order[first]


def draw_deformed(
    ax: Axes, x: Float[np.ndarray, "a b 2"], v: Float[np.ndarray, "a b 2"], cmap: Colormap, norm: Normalize
) -> None:
    """Draw the deformed grid x + v(x), colored by |v|, and the outline of the undeformed one."""
    place = x + magnification(x, norm.vmax or 1.0) * v
    colors = np.ma.masked_invalid(np.linalg.norm(v, axis=-1))
    if np.isfinite(place).all():
        ax.pcolormesh(place[..., 0], place[..., 1], colors, cmap=cmap, norm=norm, shading="gouraud", rasterized=True)
    for lines in (place, place.swapaxes(0, 1)):
        for i in np.unique(np.linspace(0, len(lines) - 1, LINES).round().astype(int)):
            ax.plot(*lines[i].T, color="white", linewidth=0.2)
    outline = np.concatenate([x[:, 0], x[-1], x[::-1, -1], x[0, ::-1]])
    ax.plot(*outline.T, color=INK, linewidth=0.5, linestyle=(0, (3, 2)))


def magnification(x: Float[np.ndarray, "*P 2"], largest: float) -> float:
    """The factor by which displacements are magnified: 1, or a round number if they would be too small to see."""
    extent = float(np.ptp(x.reshape(-1, 2), axis=0).max())
    if not 0.0 < largest < VISIBLE * extent:
        return 1.0
    return float(f"{2.0 * VISIBLE * extent / largest:.0e}")


def draw_globe(ax: Axes, column: Column, row: int, cmap: Colormap, norm: Normalize) -> None:
    """Draw values over latitude and longitude in the Mollweide projection, which preserves areas."""
    values = column.colors[row]
    latitude, longitude = column.points[row].T
    longitude = np.mod(longitude + 180.0, 360.0) - 180.0
    points = np.stack([latitude, longitude], axis=-1)
    shape = grid_shape(jnp.asarray(column.points[row]))
    if shape is None:
        draw_points(ax, np.radians(points[:, ::-1]), values, cmap, norm)
    else:
        (a, b), field = sorted_grid(points.reshape(*shape, 2), values.reshape(shape))
        a, b = np.clip(edges(a), -90.0, 90.0), np.clip(edges(b), -180.0, 180.0)
        # The cells cut by the edge of the map are drawn on both sides of it.
        b, field = np.append(b, 180.0), np.concatenate([field, field[:, :1]], axis=1)
        ax.pcolormesh(np.radians(b), np.radians(a), np.ma.masked_invalid(field), cmap=cmap, norm=norm, rasterized=True)
    ax.set_xticks(np.radians(np.arange(-120, 121, 60)), labels=[])
    ax.set_yticks(np.radians(np.arange(-60, 61, 30)), labels=[])
    ax.grid(color="white", linewidth=0.25, alpha=0.6)


def sorted_grid(
    points: Float[np.ndarray, "a b 2"], field: Float[np.ndarray, "a b"]
) -> tuple[tuple[Float[np.ndarray, " a"], Float[np.ndarray, " b"]], Float[np.ndarray, "a b"]]:
    """The axes of a grid in increasing order, and the field in the same order."""
    a, b = points[:, 0, 0], points[0, :, 1]
    a_order, b_order = np.argsort(a), np.argsort(b)
    return (a[a_order], b[b_order]), field[np.ix_(a_order, b_order)]


def edges(middles: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k+1"]:
    """The edges of cells, from their centers."""
    if len(middles) == 1:
        return middles[0] + np.array([-0.5, 0.5])
    inner = 0.5 * (middles[1:] + middles[:-1])
    return np.concatenate([[2 * middles[0] - inner[0]], inner, [2 * middles[-1] - inner[-1]]])
