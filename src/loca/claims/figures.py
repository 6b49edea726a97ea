"""The figures of claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loca.claims.results import Results
from loca.evaluation import MEASURES
from loca.figures import DASHES, INK, PALETTE, box_legend, draw_boxes, draw_line, log_axis, series, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Mapping[str, Mapping[str, int | float]]
"""A number by experiment and model."""


def boxes(results: Results, metric: str = "relative_l2", models: Sequence[str] | None = None) -> Figure:
    """Box plots as in the paper: a panel for each condition and test, a box for each model with all its seeds."""
    from matplotlib.figure import Figure

    names = [m for m in results.kinds("model") if models is None or m in models]
    groups = list(dict.fromkeys((row.condition, row.test) for row in results.rows))
    outputs = results.rows[0].report.outputs
    with style():
        width = (0.3 if len(outputs) > 1 else 0.75) * len(names) * len(outputs) * len(groups)
        figure = Figure(figsize=(0.6 + width, 2.4), layout="constrained")
        axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        reports = {}
        for ax, (condition, test) in zip(axes, groups, strict=True):
            reports = {name: results.pooled(condition=condition, test=test, model=name) for name in names}
            draw_boxes(ax, reports, metric, list(range(len(outputs))))
            varied = [condition] * (len(results.kinds("condition")) > 1) + [test] * (len(results.kinds("test")) > 1)
            ax.set_title(", ".join(varied))
        axes[0].set_ylabel(MEASURES[metric].title)
        if len(outputs) > 1:
            figure.legend(*box_legend(reports), loc="outside upper center", ncols=len(names), frameon=False)
        figure.draw_without_rendering()
    return figure


def over_values(results: Results, label: str, *, logarithmic: bool) -> Figure:
    """Mean errors against the varied value, a panel for each condition: medians over seeds, with their range."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    groups = results.kinds("condition")
    places = sorted({row.value for row in results.rows if row.value is not None})
    with style():
        figure = Figure(figsize=(0.6 + 2.4 * len(groups), 2.5), layout="constrained")
        axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for ax, group in zip(axes, groups, strict=True):
            for i, model in enumerate(results.kinds("model")):
                points = [
                    {"value": row.value, "error": row.mean()} for row in results.select(condition=group, model=model)
                ]
                data = series(points, "value", "error")
                draw_line(ax, data, model, PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)])
            ax.set_title(group if len(groups) > 1 else "")
            ax.set_xlabel(label)
            if logarithmic:
                ax.set_xscale("log")
            ax.xaxis.set_major_locator(FixedLocator(places))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter("{x:g}")
            log_axis(ax)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel(MEASURES["relative_l2"].title)
        handles = axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=3, frameon=False, fontsize=6.0)
        figure.draw_without_rendering()
    return figure


def bars_beside_paper(ours: Table, paper: Table, label: str) -> Figure:
    """A bar for each model in each experiment, with a dash at the paper's number."""
    from matplotlib.figure import Figure

    models = list(next(iter(ours.values())))
    with style():
        figure = Figure(figsize=(0.7 + 0.75 * len(ours), 2.2), layout="constrained")
        ax = figure.subplots()
        for i, model in enumerate(models):
            places = [k + 0.25 * (i - 1) for k in range(len(ours))]
            color = PALETTE[i % len(PALETTE)]
            ax.bar(places, [values[model] for values in ours.values()], 0.22, color=color, label=model)
            ax.plot(places, [paper[name][model] for name in ours], "_", color=INK, markersize=9)
        ax.plot([], [], "_", color=INK, markersize=9, label="paper")
        ax.set_xticks(range(len(ours)), [name.replace("-", "\n") for name in ours])
        ax.set_ylabel(label)
        log_axis(ax)
        ax.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", frameon=False, fontsize=6.5, ncols=4)
        figure.draw_without_rendering()
    return figure
