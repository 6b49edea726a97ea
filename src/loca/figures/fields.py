"""Functions drawn one per row: the pairs of a data set, and predictions next to the truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Records, Samples
from loca.figures.columns import Column, columns_of
from loca.figures.panel_grid import draw_columns
from loca.models import Operator, adapt, is_numbered, predict

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
