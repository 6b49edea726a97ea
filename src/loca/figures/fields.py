"""Predictions beside the truth, with or without error bars, and whether error bars cover as often as they claim."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Records, Samples
from loca.evaluation import RELIABILITY_LEVELS, Report
from loca.figures.columns import Column, columns_of, coordinates_of, symbol
from loca.figures.panel_grid import draw_columns
from loca.figures.plots import DASHES
from loca.figures.style import INK, OUTPUT_COLOR, PALETTE, style, with_unit
from loca.models import LEVEL, ErrorBars, Operator, Uncertain, adapt, is_numbered, predict, predict_error_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sheet(samples: Samples | Records, rows: int = 4) -> Figure:
    """Draw the first functions of a data set, one per row: every input channel, then every output channel.

    Functions of one coordinate are drawn as curves, and single numbers as text. Fields in one column share a color
    scale: viridis, logarithmic if values are positive over more than two decades, or a diverging map centered at 0 if
    values are signed. If one of the rows would be nearly blank, every row has its own scale, with color bars below
    every row. Axes have the names and units of the data.

    Two channels named like the components of a vector are drawn together, as arrows over their length, or as a deformed
    grid if the name contains "displacement". Fields over latitude and longitude are drawn as maps. Fields with one more
    coordinate, such as time, are drawn at up to three of its values.

    **Arguments:**

    - `samples`: the data, in memory or in files.
    - `rows`: the number of functions.
    """
    if rows < 1:
        raise ValueError(f"expected at least one row, got rows={rows}")
    samples = selected(samples, list(range(min(rows, len(samples)))))
    return draw_columns(columns_of(samples, len(samples)), len(samples))


def fields(
    model: Operator, samples: Samples | Records, rows: int | Sequence[int] = 3, captions: Sequence[str] | None = None
) -> Figure:
    """Draw u, s, F(u) and F(u) − s, one function per row: the input, the truth, the prediction and the error.

    Truth and prediction share one color scale; the error has its own, centered at 0. Colors are chosen as in `sheet`.
    Arrows at the ends of a color bar mark values beyond them: predictions far from any true value, or few large errors.
    Curves of the truth and of the prediction are drawn into one panel. Fields with one more coordinate, such as time,
    are drawn at its last value. Channels without names have those that the model knows.

    **Arguments:**

    - `model`: the operator.
    - `samples`: the data, in memory or in files.
    - `rows`: the number of functions, or their indices, such as `report.worst()`.
    - `captions`: a text for the left of each row.
    """
    numbers = list(range(min(rows, len(samples)))) if isinstance(rows, int) else [int(row) for row in rows]
    if not numbers or not all(0 <= number < len(samples) for number in numbers):
        raise ValueError(
            f"rows={rows} does not select functions among {len(samples)}; pass the number of functions or their indices"
        )
    if captions is not None and len(captions) != len(numbers):
        raise ValueError(f"got {len(captions)} captions for {len(numbers)} functions; pass one per function")
    shown = named(adapt(model, selected(samples, numbers)), model)
    return draw_predictions(shown, predict(model, shown.u, shown.y), captions)


def selected(samples: Samples | Records, rows: list[int]) -> Samples:
    """These functions, in memory."""
    return samples.load(rows) if isinstance(samples, Records) else samples.take(jnp.asarray(rows))


def named(samples: Samples, model: Operator) -> Samples:
    """Samples with the names and units that the model knows, where channels and coordinates have none."""
    changes: dict[str, Any] = {}
    if is_numbered(samples.inputs, "u") and len(model.inputs) == samples.input_size:
        changes["inputs"] = model.inputs
    if is_numbered(samples.outputs, "s") and len(model.outputs) == samples.output_size:
        changes["outputs"] = model.outputs
    known = model.signature
    if known is not None and not samples.query_coordinates and known.query_coordinate_names:
        changes["query_coordinates"] = known.query_coordinates
    return dataclasses.replace(samples, **changes)


def draw_predictions(samples: Samples, prediction: Float[Array, "N P d_s"], captions: Sequence[str] | None) -> Figure:
    """Draw every function next to a given prediction, as `fields` does."""

    def outputs(s: Float[Array, "N P d_s"]) -> list[Column]:
        columns = columns_of(dataclasses.replace(samples, s=s), len(samples), levels=1)
        return [column for column in columns if column.is_output]

    inputs = [column for column in columns_of(samples, len(samples), levels=1) if not column.is_output]
    triples = zip(outputs(samples.s), outputs(prediction), outputs(prediction - samples.s), strict=True)
    columns = [*inputs, *(column for triple in triples for column in comparison_columns(*triple))]
    return draw_columns(columns, len(samples), captions)


def comparison_columns(truth: Column, prediction: Column, error: Column) -> Iterator[Column]:
    """The columns for one quantity: truth, prediction and error for fields; truth with prediction, error for curves."""
    if truth.dimension == 1:
        yield dataclasses.replace(truth, heading="truth (solid), prediction (dashed)", overlay=prediction.values)
    else:
        yield dataclasses.replace(truth, heading="truth")
        yield dataclasses.replace(prediction, heading="prediction", is_prediction=True)
    # An error is not a displacement, so it is never drawn as a deformed grid.
    scale = f"{error.scale} error"
    yield dataclasses.replace(error, heading="error", scale=scale, is_error=True, is_displacement=False)


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
