"""Error against core minutes: which model for these data, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from loca.comparing import Comparison, mean_of
from loca.figures.style import INK, line_styles, log_axis, style
from loca.models import MODELS

LEAST = 1e-3
"""Core minutes at which a model without any, such as persistence, is drawn."""


def comparison(found: Comparison, title: str = "") -> Figure:
    """Draw the test error of every model over its core minutes; bars reach from the best seed to the worst one.

    Budgets of a trained model are joined by a line. A dashed line is the error of the mean field, which ignores the
    input; a ring marks the model that validation functions prefer.

    **Arguments:**

    - `found`: what `loca.compare` returned.
    - `title`: above the figure.
    """
    groups = found.groups()
    if not groups:
        raise ValueError("no model has a result to draw; print the comparison for the reasons")
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for (model, _), group in sorted(groups.items(), key=lambda each: each[0][1]):
        errors = [100.0 * (entry.error or 0.0) for entry in group]
        minutes = max(LEAST, mean_of(group, "core_seconds") / 60.0)
        lines.setdefault(model, []).append((minutes, sum(errors) / len(errors), min(errors), max(errors)))
    looks = line_styles(name for name in lines if name != MODELS["mean-field"].title)
    ends = dict[str, tuple[float, float]]()
    with style():
        figure = Figure(figsize=(4.2, 2.8), layout="constrained")
        ax = figure.subplots()
        for model, points in lines.items():
            x, y, low, high = zip(*points, strict=True)
            if model == MODELS["mean-field"].title:
                ax.axhline(y[0], color=INK, linestyle="--", linewidth=0.6)
                ax.annotate(model, (0.02, y[0]), xycoords=("axes fraction", "data"), va="bottom", color=INK)
                continue
            color = looks[model]["color"]
            bars = [
                [m - each for m, each in zip(y, low, strict=True)],
                [each - m for m, each in zip(y, high, strict=True)],
            ]
            ax.errorbar(x, y, yerr=bars, marker="o", markersize=4.5, capsize=2.0, color=color)
            ends[model] = x[-1], y[-1]
            if model == found.best:
                ax.plot(x[-1], y[-1], marker="o", markersize=9.0, markerfacecolor="none", color=color)
        ax.margins(x=0.15, y=0.1)
        log_axis(ax, "x")
        log_axis(ax)
        ax.set(xlabel="core minutes to fit, choice of settings included", ylabel="test error (%)", title=title)
        figure.draw_without_rendering()  # computes where points are
        label_points(ax, ends, {model: looks[model]["color"] for model in ends})
        figure.draw_without_rendering()
    return figure


SIDES = ((0, 5, "center", "bottom"), (0, -5, "center", "top"), (6, 0, "left", "center"), (-6, 0, "right", "center"))
"""Where the name of a point may be: above, below, to the right, to the left; offsets in points, and alignments."""


def label_points(ax: Axes, points: Mapping[str, tuple[float, float]], colors: Mapping[str, str]) -> None:
    """Write names beside points, on the first side where a name hides neither another one nor a point."""
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in ax.transData.transform(list(points.values()))]
    for name, point in points.items():
        box = taken[0]
        for dx, dy, ha, va in SIDES:
            text = ax.annotate(
                name, point, xytext=(dx, dy), textcoords="offset points", ha=ha, va=va, color=colors[name]
            )
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken) or (dx, dy) == SIDES[-1][:2]:
                break
            text.remove()
        taken.append(box)
