"""Line plots of losses over steps, or of errors over any other number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from loca.evaluation import MEASURES
from loca.figures.style import PALETTE, log_axis, style
from loca.training import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Sequence[Mapping[str, Any]]
"""Records with named numbers, such as `history.to_json()`."""

DASHES = ("-", "--", ":", "-.")
"""Line styles, so that lines are distinct without color."""

FEW = 30
"""Largest number of values of x at which every point gets a marker."""

TITLES = {"validation": "validation error"}
"""Axis labels that differ from the name of the number."""


def curves(
    lines: Mapping[str, History | Points] | History | Points,
    x: str = "step",
    y: str | Sequence[str] = ("loss", "validation"),
    x_label: str | None = None,
) -> Figure:
    """Plot numbers of one or several runs over another number, with one panel per y and one line per run.

    By default, plot the loss and the validation error of histories over steps. If a run has several values at one x,
    such as those of several seeds, the line shows their median and a band shows their range. To plot other records:
    `curves(records, x="labels", y="relative_l2", x_label="fraction of labels")`.

    **Arguments:**

    - `lines`: histories or records by the name of the run, or a single one.
    - `x`, `y`: the names of the numbers to plot. A y that no record has gets no panel.
    - `x_label`: the label of the x axis, by default the name of x.
    """
    from matplotlib.figure import Figure

    named: dict[str, History | Points] = dict(lines) if isinstance(lines, Mapping) else {"": lines}
    records = {name: line.to_json() if isinstance(line, History) else list(line) for name, line in named.items()}
    wanted = [y] if isinstance(y, str) else list(y)
    shown = [each for each in wanted if any(len(series(points, x, each)[0]) for points in records.values())]
    if not shown:
        raise ValueError(f"no record has both `{x}` and one of {', '.join(wanted)}; pass names that the records have")
    with style():
        figure = Figure(figsize=(0.3 + 2.7 * len(shown), 2.1), layout="constrained")
        for ax, each in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            for i, (name, points) in enumerate(records.items()):
                draw_line(ax, series(points, x, each), name, PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)])
            ax.set_xlabel(x_label if x_label is not None else title(x))
            ax.set_ylabel(title(each))
            if all(np.all(values > 0.0) for points in records.values() for values in series(points, x, each)[1]):
                log_axis(ax)
            ax.spines[["top", "right"]].set_visible(False)
        if len(records) > 1:
            figure.axes[0].legend(frameon=False, fontsize=6.5)
        figure.draw_without_rendering()
    return figure


def draw_line(
    ax: Axes, data: tuple[Float[np.ndarray, " K"], list[np.ndarray]], name: str, color: str, dash: str
) -> None:
    """Draw the medians, and a band from the smallest to the largest value where there are several."""
    places, values = data
    if not len(places):
        return
    marker = "o" if len(places) <= FEW else None
    ax.plot(places, [np.median(each) for each in values], dash, marker=marker, color=color, label=name)
    if any(len(each) > 1 for each in values):
        low, high = [each.min() for each in values], [each.max() for each in values]
        ax.fill_between(places, low, high, color=color, alpha=0.2, linewidth=0.0)


def series(points: Iterable[Mapping[str, Any]], x: str, y: str) -> tuple[Float[np.ndarray, " K"], list[np.ndarray]]:
    """The distinct values of x in increasing order, and all finite values of y at each."""
    found: dict[float, list[float]] = {}
    for point in points:
        a, b = point.get(x), point.get(y)
        if a is not None and b is not None and np.isfinite(b):
            found.setdefault(float(a), []).append(float(b))
    places = sorted(found)
    return np.array(places, np.float64), [np.array(found[place]) for place in places]


def title(name: str) -> str:
    """The axis label for the name of a number."""
    measure = MEASURES.get(name)
    return measure.title if measure else TITLES.get(name, name.replace("_", " "))
