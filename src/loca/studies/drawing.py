"""Figures of studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loca.evaluation import MEASURES
from loca.figures.curves import DASHES, draw_line, series
from loca.figures.spread import draw_boxes
from loca.figures.style import INK, PALETTE, log_axis, style
from loca.studies.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Table = Mapping[str, Mapping[str, int | float]]
"""A number for each model in each experiment."""


def boxes(
    results: Results, metric: str = "relative_l2", by: str = "condition", models: Sequence[str] | None = None
) -> Figure:
    """The paper's box plots, one panel for each condition or test: all seeds together, one box per model."""
    from matplotlib.figure import Figure

    names = [m for m in results.kinds("model") if models is None or m in models]
    groups = results.kinds(by)
    with style():
        figure = Figure(figsize=(0.5 + 0.75 * len(names) * len(groups), 2.4), layout="constrained")
        axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for ax, group in zip(axes, groups, strict=True):
            reports = {name: results.pooled(model=name, **{by: group}) for name in names}
            first = next(iter(reports.values()))
            draw_boxes(ax, reports, metric, list(range(len(first.outputs))))
            ax.set_title(group if len(groups) > 1 else "")
        axes[0].set_ylabel(MEASURES[metric].title)
        figure.draw_without_rendering()
    return figure


def over_values(results: Results, label: str) -> Figure:
    """Mean errors over what is varied, a panel for each condition: medians over seeds, their range as a band."""
    from matplotlib.figure import Figure

    groups = results.kinds("condition")
    with style():
        figure = Figure(figsize=(0.6 + 2.4 * len(groups), 2.3), layout="constrained")
        axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for ax, group in zip(axes, groups, strict=True):
            for i, model in enumerate(results.kinds("model")):
                points = [
                    {"value": row.value, "error": row.mean()} for row in results.select(condition=group, model=model)
                ]
                draw_line(
                    ax, series(points, "value", "error"), model, PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)]
                )
            ax.set_title(group if len(groups) > 1 else "")
            ax.set_xlabel(label)
            ax.set_xscale("log")
            log_axis(ax)
            ax.spines[["top", "right"]].set_visible(False)
        axes[0].set_ylabel(MEASURES["relative_l2"].title)
        axes[0].legend(frameon=False, fontsize=6.0)
        figure.draw_without_rendering()
    return figure


def bars_beside_paper(ours: Table, paper: Table, label: str) -> Figure:
    """A bar for each model in each experiment, and a dash where the paper has it."""
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
