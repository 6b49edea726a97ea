"""Plots of losses and errors over steps and core minutes, of the errors of all functions, and of coverage."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from loca.comparing import Comparison, mean_of
from loca.evaluation import MEASURES, RELIABILITY_LEVELS, Distribution, Report
from loca.figures.style import INK, line_styles, log_axis, style, with_unit
from loca.models import MODELS
from loca.training import History

Points = Sequence[Mapping[str, Any]]
"""Records with named numbers, such as `history.to_json()`."""

FEW = 30  # largest number of values of x at which every point gets a marker


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
    named: dict[str, History | Points] = dict(lines) if isinstance(lines, Mapping) else {"": lines}
    records = {name: line.to_json() if isinstance(line, History) else list(line) for name, line in named.items()}
    wanted = [y] if isinstance(y, str) else list(y)
    found = {each: np.concatenate([_at_each(points, x, each)["min"] for points in records.values()]) for each in wanted}
    shown = [each for each in wanted if len(found[each])]
    if not shown:
        raise ValueError(f"no record has both `{x}` and one of {', '.join(wanted)}; pass names that the records have")
    with style():
        figure = Figure(figsize=(0.3 + 2.7 * len(shown), 2.1), layout="constrained")
        for ax, each in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            for name, look in line_styles(records).items():
                draw_line(ax, records[name], x, each, label=name, **look)
            ax.set(xlabel=x_label if x_label is not None else _title(x), ylabel=_title(each))
            if (found[each] > 0.0).all():
                log_axis(ax)
        if len(records) > 1:
            figure.axes[0].legend()
        figure.draw_without_rendering()
    return figure


def draw_line(ax: Axes, points: Points, x: str, y: str, *, color: str, **options: Any) -> None:
    """Draw the median of y at each x, and a band from the smallest to the largest value where there are several.

    `color` and `options` of the line are for matplotlib, such as those of `line_styles`.
    """
    found = _at_each(points, x, y)
    if found.empty:
        return
    ax.plot(found.index, found["median"], marker="o" if len(found) <= FEW else None, color=color, **options)
    if (found["size"] > 1).any():
        ax.fill_between(found.index, found["min"], found["max"], color=color, alpha=0.2, linewidth=0.0)


def _at_each(points: Points, x: str, y: str) -> Any:
    """A table of the median, the least, the largest and the number of the finite values of y at each x."""
    table: Any = pandas.DataFrame([(point.get(x), point.get(y)) for point in points], columns=[x, y], dtype=float)
    return table[np.isfinite(table).all(axis=1)].groupby(x)[y].agg(["median", "min", "max", "size"])


def _title(name: str) -> str:
    if name in MEASURES:
        return MEASURES[name].title
    return "validation error" if name == "validation" else name.replace("_", " ")


GROUP = 0.8  # fraction of the width of a channel that its boxes fill
LETTERS = 16  # largest number of letters in one line of a name below a box
LETTER = 0.055  # width of a letter, in inches


def box_plots(reports: Mapping[str, Report] | Report, metric: str = "relative_l2") -> Figure:
    """Draw box plots as in the paper: quartiles, whiskers within 1.5 interquartile ranges, and outliers as points.

    Channels are side by side, with one box per model; channels of different units are in separate panels. A dashed line
    shows the median error of the reference field if the first report has one.

    **Arguments:**

    - `reports`: reports by the name of the model, or a single one.
    - `metric`: the name of the error to draw.
    """
    named = {"": reports} if isinstance(reports, Report) else dict(reports)
    if not named:
        raise ValueError("got no reports to draw; pass at least one")
    first = next(iter(named.values()))
    for name, report in named.items():
        if report.outputs != first.outputs:
            raise ValueError(f"the report of {name!r} has the channels {report.outputs}, others have {first.outputs}")
    groups: dict[str, list[int]] = {}
    for channel in range(len(first.outputs)):
        groups.setdefault(first.unit(metric, channel), []).append(channel)
    label = max(len(line) for name in named for line in _wrapped(name).split("\n"))
    box_width = 0.28 if len(first.outputs) > 1 else max(0.28, LETTER * label)  # names of models are below their boxes
    widths = [max(1.0, len(channels) * (0.3 + box_width * len(named))) for channels in groups.values()]
    with style():
        figure = Figure(figsize=(0.35 + sum(widths) + 0.45 * len(groups), 2.2), layout="constrained")
        axes = figure.subplots(1, len(groups), width_ratios=widths, squeeze=False)[0]
        for ax, (unit, channels) in zip(axes, groups.items(), strict=True):
            draw_boxes(ax, named, metric, channels)
            ax.set_ylabel(with_unit(MEASURES[metric].title, unit))
        if len(first.outputs) > 1 and len(named) > 1:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(named))
        figure.draw_without_rendering()
    return figure


def draw_boxes(ax: Axes, named: Mapping[str, Report], metric: str, channels: list[int]) -> None:
    """Draw one group of boxes per channel, in the order of the reports, whose names are the labels for a legend."""
    first = next(iter(named.values()))
    width = GROUP / len(named)
    offsets = (np.arange(len(named)) - 0.5 * (len(named) - 1)) * width
    line = {"color": INK, "linewidth": 0.6}
    for offset, (name, look) in zip(offsets, line_styles(named).items(), strict=True):
        values = [named[name].of(metric, channel) for channel in channels]
        ax.boxplot(
            [each[np.isfinite(each)] for each in values],
            positions=np.arange(len(channels)) + offset, widths=0.75 * width, patch_artist=True, manage_ticks=False,
            label=name,
            boxprops={"facecolor": look["color"], "edgecolor": INK, "linewidth": 0.6, "alpha": 0.75},
            medianprops={"color": "black", "linewidth": 1.1}, whiskerprops=line, capprops=line,
            flierprops={"marker": "o", "markersize": 1.8, "markerfacecolor": look["color"], "markeredgewidth": 0.0},
        )  # fmt: skip
    if first.baseline is not None and metric in first.baseline:
        for place, channel in enumerate(channels):
            median = Distribution.of(first.baseline[metric][:, channel]).median
            ax.hlines(median, place - 0.5 * GROUP, place + 0.5 * GROUP, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
            ax.annotate("reference", (place + 0.5 * GROUP, median), (0, 1.5), textcoords="offset points",
                        ha="right", va="bottom", fontsize=5.5, color=INK)  # fmt: skip
    places, labels = np.arange(len(channels)), [first.outputs[c].name for c in channels]
    if len(first.outputs) == 1 and len(named) > 1:
        places, labels = offsets, list(named)
    ax.set_xticks(places, [_wrapped(label) for label in labels])
    ax.set_xlim(-0.5, len(channels) - 0.5)
    ax.tick_params(axis="x", length=0.0)
    if not MEASURES[metric].larger_is_better:
        log_axis(ax)


def _wrapped(name: str) -> str:
    return textwrap.fill(name.replace("_", " "), LETTERS)


def reliability(reports: Mapping[str, Report] | Report) -> Figure:
    """Draw the share of labels, and of functions, that bands contain over the level of the bands.

    On the diagonal bands contain as much as they claim, below it less. Pointwise and simultaneous bands have panels of
    their own; with one report there is a line for each channel, with several the mean over channels of each.

    **Arguments:**

    - `reports`: of models that know their error, by name, or a single one.
    """
    named = {"": reports} if isinstance(reports, Report) else dict(reports)
    many = {name: report.reliability for name, report in named.items() if report.reliability}
    if not many:
        raise ValueError("no report has the coverage of bands; evaluate a model that knows its error")
    kinds = list(dict.fromkeys(kind for shares in many.values() for kind in shares))
    looks = line_styles(many if len(many) > 1 else [each.name for each in named[next(iter(many))].outputs])
    with style():
        figure = Figure(figsize=(0.3 + 2.1 * len(kinds), 2.3), layout="constrained")
        for ax, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
            ax.plot([0, 1], [0, 1], color=INK, linewidth=0.6)
            lines = {name: shares[kind].mean(axis=1) for name, shares in many.items() if kind in shares}
            if len(many) == 1:
                (name,) = many
                lines = {each.name: many[name][kind][:, c] for c, each in enumerate(named[name].outputs)}
            for name, line in lines.items():
                ax.plot(RELIABILITY_LEVELS, line, marker="o", label=name, **looks[name])
            what = "labels" if kind == "pointwise" else "functions"
            ax.set(title=f"{kind} bands", xlabel="level", ylabel=f"{what} inside", xlim=(0, 1), ylim=(0, 1))
            ax.set_aspect("equal")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        if len(labels) > 1:
            figure.set_figheight(2.3 + 0.15 * len(labels))
            figure.legend(handles, labels, loc="outside upper left")
        figure.draw_without_rendering()
    return figure


# ---- comparisons -----------------------------------------------------------------------------------------------------

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
    ends = dict[str, tuple[float, float, float, float]]()
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
            ends[model] = x[-1], y[-1], low[-1], high[-1]
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


def label_points(ax: Axes, bars: Mapping[str, tuple[float, float, float, float]], colors: Mapping[str, str]) -> None:
    """Write names beside points (x, y, low, high), on the first side where a name hides neither another nor a bar."""
    corners = [ax.transData.transform([(x, low), (x, high)]) for x, _, low, high in bars.values()]
    taken = [Bbox([bottom - 4, top + 4]) for bottom, top in corners]
    for name, (x, y, low, high) in bars.items():
        box = taken[0]
        for dx, dy, ha, va in SIDES:
            point = x, {"bottom": high, "top": low, "center": y}[va]
            text = ax.annotate(
                name, point, xytext=(dx, dy), textcoords="offset points", ha=ha, va=va, color=colors[name]
            )
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken) or (dx, dy) == SIDES[-1][:2]:
                break
            text.remove()
        taken.append(box)
