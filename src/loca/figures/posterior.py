"""The posterior of an inversion: mean, standard deviation and a draw of the inputs, beside the truth if it is known."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Samples, as_input
from loca.figures.columns import Column, columns_of
from loca.figures.panel_grid import draw_columns
from loca.figures.style import INK, PALETTE, style, with_unit
from loca.inversion import Posterior
from loca.models import LEVEL
from loca.typing import Input, Measurements, MultiInput, Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = 5
"""Draws among the curves."""


def posterior(
    found: Posterior, truth: Numbers | Measurements | MultiInput | None = None, level: float = LEVEL
) -> Figure:
    """Draw the inputs that explain observations.

    Inputs of one coordinate are drawn as curves: the mean, a band that contains the share `level` of the draws at each
    sensor, some draws, and the truth. Of fields, the truth, the mean, the standard deviation and a draw are drawn
    beside each other; all but the standard deviation in the same colors.

    **Arguments:**

    - `found`: the result of `loca.invert`.
    - `truth`: the input that was looked for, if it is known.
    - `level`: of the band.
    """
    known = None if truth is None else as_input(truth, many=False)
    mean = input_columns(found, found.mean)
    if all(column.dimension == 1 for column in mean):
        return draw_curves(found, mean, None if known is None else input_columns(found, known), level)
    one = jax.tree.map(lambda array: array[0], found.draws)
    kinds = {"truth": known, "posterior mean": found.mean, "standard deviation": found.std, "a draw": one}
    parts = []
    for heading, u in kinds.items():
        if u is not None:
            size = {"is_linear": True, "is_displacement": False} if u is found.std else {}
            columns = input_columns(found, u)
            parts.append(
                [
                    dataclasses.replace(c, heading=heading, scale=f"{c.scale} std" if size else c.scale, **size)
                    for c in columns
                ]
            )
    return draw_columns([column for group in zip(*parts, strict=True) for column in group], 1)


def input_columns(found: Posterior, u: Input) -> list[Column]:
    """The columns of one input function."""
    operator, signature = found.operator, found.operator.signature
    named = () if signature is None else tuple(c for part in signature.parts for c in part.coordinates)
    samples = Samples(
        jax.tree.map(lambda array: array[None], u),
        found.y,
        jnp.zeros((1, len(found.y), len(operator.outputs))),
        x=operator.sensors,
        domain=operator.domain,
        inputs=operator.inputs,
        sensor_coordinates=named,
    )
    return [column for column in columns_of(samples, 1, levels=1) if not column.is_output]


def draw_curves(found: Posterior, mean: list[Column], truth: list[Column] | None, level: float) -> Figure:
    """Draw inputs of one coordinate, one panel for each channel."""
    from matplotlib.figure import Figure

    count = len(jax.tree.leaves(found.draws)[0])
    some = [jax.tree.map(lambda array, i=i: array[i], found.draws) for i in range(min(DRAWS, count))]
    ends = [
        jax.tree.map(lambda array, q=q: jnp.quantile(array, q, axis=0), found.draws)
        for q in (0.5 * (1.0 - level), 0.5 * (1.0 + level))
    ]
    lower, upper = (input_columns(found, end) for end in ends)
    drawn = [input_columns(found, one) for one in some]
    with style():
        figure = Figure(figsize=(0.4 + 3.0 * len(mean), 2.2), layout="constrained")
        axes = figure.subplots(1, len(mean), squeeze=False)[0]
        for c, (ax, column) in enumerate(zip(axes, mean, strict=True)):
            x = column.points[0][:, 0]
            order = np.argsort(x)

            def values(columns: list[Column], c: int = c, order: np.ndarray = order) -> np.ndarray:
                return columns[c].values[0][order]

            band = f"{100 * level:g} % of draws"
            color = PALETTE[0]
            ax.fill_between(x[order], values(lower), values(upper), color=color, alpha=0.25, linewidth=0, label=band)
            for i, one in enumerate(drawn):
                label = "draws" if i == 0 else None
                ax.plot(x[order], values(one), color=color, linewidth=0.4, alpha=0.7, label=label)
            ax.plot(x[order], values(mean), "--", color=color, label="posterior mean")
            if truth is not None:
                ax.plot(x[order], values(truth), color=INK, linewidth=0.8, label="truth")
            ax.set(title=with_unit(column.name.replace("_", " "), column.unit), xlabel=column.axes[0])
            ax.spines[["top", "right"]].set_visible(False)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=6.0)
        figure.draw_without_rendering()
    return figure
