"""Predictions beside the truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Samples
from loca.figures.columns import Column, columns_of
from loca.figures.layout import draw_columns
from loca.models import Operator, predict

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fields(
    model: Operator, samples: Samples, rows: int | Sequence[int] = 3, captions: Sequence[str] | None = None
) -> Figure:
    """u, s, F(u) and F(u) − s of some functions, one per row: what went in, the truth, the prediction, the error.

    Truth and prediction share one color scale; the error has one of its own, centered at 0. Curves of truth and
    prediction lie over each other. Of fields with one more coordinate, such as time, the last slice is shown.

    **Arguments:**

    - `model`: the operator.
    - `samples`: the data.
    - `rows`: how many functions, or their numbers, such as `report.worst()`.
    - `captions`: what to write on the left of each.
    """
    numbers = list(range(min(rows, len(samples)))) if isinstance(rows, int) else [int(row) for row in rows]
    if not numbers or not all(0 <= number < len(samples) for number in numbers):
        raise ValueError(f"rows={rows} names no functions among {len(samples)}; pass how many, or their numbers")
    if captions is not None and len(captions) != len(numbers):
        raise ValueError(f"{len(captions)} captions were given for {len(numbers)} functions; pass one for each")
    shown = samples.take(jnp.asarray(numbers))
    return draw_answers(shown, predict(model, shown.u, shown.y), captions)


def draw_answers(samples: Samples, prediction: Float[Array, "N P d_s"], captions: Sequence[str] | None) -> Figure:
    """All samples, each beside what is predicted for it."""

    def outputs(s: Float[Array, "N P d_s"]) -> list[Column]:
        columns = columns_of(dataclasses.replace(samples, s=s), len(samples), levels=1)
        return [column for column in columns if column.is_output]

    inputs = [column for column in columns_of(samples, len(samples), levels=1) if not column.is_output]
    answers = zip(outputs(samples.s), outputs(prediction), outputs(prediction - samples.s), strict=True)
    columns = [*inputs, *(column for each in answers for column in beside(*each))]
    return draw_columns(columns, len(samples), captions)


def beside(truth: Column, prediction: Column, error: Column) -> Iterator[Column]:
    """The columns of one quantity: three for fields, two for curves."""
    if truth.dimension == 1:
        yield dataclasses.replace(truth, heading="truth (solid), prediction (dashed)", overlay=prediction.values)
    else:
        yield dataclasses.replace(truth, heading="truth")
        yield dataclasses.replace(prediction, heading="prediction", is_prediction=True)
    # an error moves nothing, so it is never drawn as a deformed grid
    scale = f"{error.scale} error"
    yield dataclasses.replace(error, heading="error", scale=scale, is_error=True, is_displacement=False)
