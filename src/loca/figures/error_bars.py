"""Error bars: bands around curves, σ beside the error of fields, and whether bands cover as often as they claim."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from loca.data import Records, Samples
from loca.evaluation import RELIABILITY_LEVELS, Report
from loca.figures.columns import columns_of, coordinates_of, symbol
from loca.figures.curves import DASHES
from loca.figures.fields import named, selected
from loca.figures.panel_grid import draw_columns
from loca.figures.style import INK, OUTPUT_COLOR, PALETTE, style, with_unit
from loca.models import LEVEL, ErrorBars, Uncertain, adapt, predict_error_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reliability(reports: Mapping[str, Report] | Report) -> Figure:
    """Draw the share of labels, and of functions, that bands contain over the level of the bands.

    On the diagonal bands contain as much as they claim, below it less. Pointwise and simultaneous bands have panels of
    their own; with one report there is a line for each channel, with several the mean over channels of each.

    **Arguments:**

    - `reports`: of models that know their error, by name, or a single one.
    """
    from matplotlib.figure import Figure

    many = {"": reports} if isinstance(reports, Report) else dict(reports)
    many = {name: report for name, report in many.items() if report.reliability}
    if not many:
        raise ValueError("no report has the coverage of bands; evaluate a model that knows its error")
    lines: dict[str, dict[str, np.ndarray]] = {"pointwise": {}, "simultaneous": {}}
    for name, report in many.items():
        for kind, shares in (report.reliability or {}).items():
            own = {variable.name: shares[:, c] for c, variable in enumerate(report.outputs)}
            lines[kind] |= own if len(many) == 1 else {name: shares.mean(axis=1)}
    lines = {kind: named_lines for kind, named_lines in lines.items() if named_lines}
    order = list(lines["pointwise"])
    with style():
        figure = Figure(figsize=(0.3 + 2.1 * len(lines), 2.3), layout="constrained")
        axes = figure.subplots(1, len(lines), squeeze=False)[0]
        for ax, (kind, inside) in zip(axes, lines.items(), strict=True):
            ax.plot([0, 1], [0, 1], color=INK, linewidth=0.6)
            for name, shares in inside.items():
                i = order.index(name)
                color, dash = PALETTE[i % len(PALETTE)], DASHES[i % len(DASHES)]
                ax.plot(RELIABILITY_LEVELS, shares, dash, marker="o", color=color, label=name)
            what = "labels" if kind == "pointwise" else "functions"
            ax.set(title=f"{kind} bands", xlabel="level", ylabel=f"{what} inside", xlim=(0, 1), ylim=(0, 1))
            ax.set_aspect("equal")
            ax.spines[["top", "right"]].set_visible(False)
        if len(order) > 1:
            axes[0].legend(frameon=False, fontsize=6.5)
        figure.draw_without_rendering()
    return figure


def error_bars(
    model: Uncertain,
    samples: Samples | Records,
    rows: int | Sequence[int] = 3,
    level: float = LEVEL,
    captions: Sequence[str] | None = None,
) -> Figure:
    """Draw what a model knows of its error, one function per row.

    Functions of one coordinate are drawn as curves: truth, prediction and pointwise bands, and around these
    simultaneous bands if the model has them. Of fields, the absolute error and σ are drawn beside each other, in the
    same colors.

    **Arguments:**

    - `model`: an operator that knows its error, such as one from `loca.calibrate`.
    - `samples`: the data, in memory or in files.
    - `rows`: the number of functions, or their indices.
    - `level`: of the bands.
    - `captions`: a text for the left of each row.
    """
    numbers = list(range(min(rows, len(samples)))) if isinstance(rows, int) else list(rows)
    shown = named(adapt(model, selected(samples, numbers)), model)
    found = predict_error_bars(model, shown.u, shown.y, model.radius(level))
    if shown.domain.dimension == 1:
        try:
            wide = predict_error_bars(model, shown.u, shown.y, model.radius(level, simultaneous=True))
        except ValueError:  # only calibrated models have them
            wide = None
        return draw_bands(shown, found, wide, level, captions)
    kinds = {"truth": shown.s, "prediction": found.mean, "|error|": jnp.abs(found.mean - shown.s), "σ": found.std}
    parts = []
    for heading, s in kinds.items():
        columns = columns_of(dataclasses.replace(shown, s=s), len(shown), levels=1)
        size = {"is_displacement": False, "is_linear": True} if heading in ("|error|", "σ") else {}
        parts.append(
            [
                dataclasses.replace(c, heading=heading, scale=f"{c.scale} size" if size else c.scale, **size)
                for c in columns
                if c.is_output
            ]
        )
    return draw_columns([column for group in zip(*parts, strict=True) for column in group], len(shown), captions)


def draw_bands(
    samples: Samples, found: ErrorBars, wide: ErrorBars | None, level: float, captions: Sequence[str] | None
) -> Figure:
    """Draw curves with their bands: a row for each function, a column for each channel."""
    from matplotlib.figure import Figure

    count, channels = len(samples), samples.output_size
    y = np.asarray(samples.y.take(jnp.arange(count)).locations(count))[..., 0]
    (coordinate,) = coordinates_of(samples.query_coordinates, samples.domain, "y", 1)
    with style():
        figure = Figure(figsize=(0.4 + 2.6 * channels, 0.5 + 1.2 * count), layout="constrained")
        axes = figure.subplots(count, channels, squeeze=False, sharex=True)
        for i in range(count):
            order = np.argsort(y[i])
            for c, variable in enumerate(samples.outputs):
                ax, place = axes[i, c], y[i][order]
                for bars, alpha, kind in ((wide, 0.15, "simultaneous"), (found, 0.3, "pointwise")):
                    if bars is not None:
                        ends = (np.asarray(end[i, order, c]) for end in (bars.lower, bars.upper))
                        label = f"{kind} {100 * level:g} % band"
                        ax.fill_between(place, *ends, color=OUTPUT_COLOR, alpha=alpha, linewidth=0, label=label)
                ax.plot(place, np.asarray(found.mean[i, order, c]), "--", color=OUTPUT_COLOR, label="prediction")
                ax.plot(place, np.asarray(samples.s[i, order, c]), color=INK, label="truth", linewidth=0.8)
                ax.spines[["top", "right"]].set_visible(False)
                if i == 0:
                    ax.set_title(with_unit(variable.name.replace("_", " "), variable.unit))
            if captions is not None:
                axes[i, 0].set_ylabel(captions[i])
        for ax in axes[-1]:
            ax.set_xlabel(with_unit(symbol(coordinate.name), coordinate.unit))
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=6.0)
        figure.draw_without_rendering()
    return figure
