"""Maps of LOCA's attention weights φ and of its normalized kernel κ."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.attention import Channels, Uncoupled, inverse_root
from loca.data import Samples, Shared, Variable, grid_shape
from loca.domains import Domain
from loca.figures.columns import Column, columns_of
from loca.figures.panel_grid import draw_columns, is_globe
from loca.figures.style import INK
from loca.models import LOCA, Adaptation, Operator
from loca.typing import Measurements

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANKS = ("largest", "second", "third", "fourth", "fifth", "sixth")
"""Titles of the columns of φ, from the largest mean weight down."""

CELLS = 64
"""Number of cells along each side of the grid on which weights are drawn if the queries do not form a grid."""


def attention(model: Operator, samples: Samples, points: Sequence[int] | None = None, features: int = 3) -> Figure:
    """Draw φᵢ over Y for the features i with the largest mean weight, and κ(y, ·) for one location y.

    There is one row per output channel. All φ share one color scale, unless a channel would be nearly blank in it. All
    channels share one κ, so each row shows it for a different location, marked by a cross. A model without coupling has
    no κ, and its column is left out. If the queries form no grid, such as a point cloud, φ and κ are drawn on an even
    grid around them; it is gray outside of Y.

    **Arguments:**

    - `model`: a `LOCA`.
    - `samples`: data whose queries span the part of Y to draw.
    - `points`: indices of the queries y for κ(y, ·), one per channel. By default, locations inside the domain.
    - `features`: the number of features φᵢ to draw, at most six.
    """
    if not isinstance(model, LOCA):
        raise ValueError(f"only LOCA has attention weights to draw, got a {type(model).__name__}")
    if not 1 <= features <= len(RANKS):
        raise ValueError(f"expected between 1 and {len(RANKS)} features, got {features}")
    adaptation = Adaptation.of(model, samples)
    if points is not None and adaptation.queries is not None:
        points = np.argsort(adaptation.queries)[list(points)].tolist()
    samples = adaptation.apply(samples)
    y = samples.y.points
    channels = len(samples.outputs)
    chosen = list(points) if points is not None else interior_points(np.asarray(y), channels)
    if len(chosen) != channels or not all(0 <= point < len(y) for point in chosen):
        raise ValueError(
            f"expected {channels} indices of queries below {len(y)} as `points`, one per channel; got {chosen}"
        )
    drawn = drawn_locations(samples.domain, y)
    inside = np.ones(len(y), bool) if drawn is y else samples.domain.contains(np.asarray(drawn), tolerance=1e-6)
    phi = [np.asarray(each) for each in weights(model, y, drawn)]
    order = [np.argsort(-each[inside].mean(axis=0), kind="stable")[:features] for each in phi]
    shown = np.stack([each[:, first] for each, first in zip(phi, order, strict=True)])
    shown = np.where(inside[:, None], shown, np.nan)
    names = [f"{RANKS[i]} $\\phi$" for i in range(shown.shape[-1])]
    columns = columns_over_queries(samples, drawn, shown, names, "phi")
    if not isinstance(model.attention, Uncoupled):
        kappa = np.where(inside, kernel(model, y, y[jnp.asarray(chosen)], drawn), np.nan)
        columns += columns_over_queries(samples, drawn, kappa[..., None], ["$\\kappa(y, \\cdot)$"], "kappa")
    figure = draw_columns(columns, channels)
    axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    for j, column in enumerate(columns):
        for c, ax in enumerate(axes[j * channels : (j + 1) * channels]):
            if j < shown.shape[-1]:
                name = f" {samples.outputs[c].name.replace('_', ' ')}" if channels > 1 and j == 0 else ""
                annotate(ax, f"$i = {order[c][j]}${name}", inset=0.0 if is_globe(column) else 0.03)
            else:
                mark_location(ax, column, np.asarray(y[chosen[c]]))
    return figure


def drawn_locations(domain: Domain, y: Float[Array, "P d_y"]) -> Float[Array, "D d_y"]:
    """The queries, if they have one coordinate or form a grid; otherwise an even grid of cells over their range.

    The grid spans the last two coordinates. A third one, such as time, has its last value.
    """
    if domain.dimension not in (2, 3) or grid_shape(y) is not None:
        return y
    points = np.asarray(y)
    low, high = points.min(axis=0), points.max(axis=0)
    steps = (np.arange(CELLS) + 0.5) / CELLS
    axes = [a + steps * (b - a) for a, b in zip(low[-2:], high[-2:], strict=True)]
    if domain.dimension == 3:
        axes = [high[:1], *axes]
    return jnp.asarray(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)), y.dtype)


@eqx.filter_jit
def weights(model: LOCA, y: Float[Array, "_ d_y"], drawn: Float[Array, "P d_y"]) -> Channels:
    """φ at the drawn locations; y are the queries, on which the nodes may depend."""
    return model.weights(drawn) if model.is_pointwise else model.basis(drawn, model.nodes(y))


@eqx.filter_jit
def kernel(
    model: LOCA, y: Float[Array, "P d_y"], points: Float[Array, "K d_y"], drawn: Float[Array, "D d_y"]
) -> Float[Array, "K D"]:
    """κ(y_k, y) between a few locations y_k and the drawn ones."""
    z, w = model.rule(y)
    q_z, q_points, q_drawn = model.lift(z), model.lift(points), model.lift(drawn)
    r_points, r_drawn = (inverse_root(model.k.matrix(q, q_z) @ w) for q in (q_points, q_drawn))
    return r_points[:, None] * model.k.matrix(q_points, q_drawn) * r_drawn


def columns_over_queries(
    samples: Samples, y: Float[Array, "P d_y"], values: np.ndarray, names: list[str], scale: str
) -> list[Column]:
    """Columns that show functions over Y, one row per output channel."""
    rows = len(values)
    first = samples.parts[0]
    sensors = first.u.x if isinstance(first.u, Measurements) else first.x
    # A placeholder sensor. Its dimension is the true one, from which `columns_of` infers whether Y includes time.
    x = jnp.zeros((1, y.shape[1] if sensors is None else np.asarray(sensors).shape[-1]))
    over = Samples(
        jnp.zeros((rows, 1, 1)),
        Shared(y),
        jnp.asarray(values),
        x=x,
        domain=samples.domain,
        outputs=[Variable(n) for n in names],
        query_coordinates=samples.query_coordinates,
    )
    found = [column for column in columns_of(over, rows, levels=1) if column.is_output]
    return [dataclasses.replace(column, heading="", scale=scale, is_linear=True) for column in found]


def interior_points(y: Float[np.ndarray, "P d_y"], count: int) -> list[int]:
    """Indices of `count` locations along the diagonal of the bounding box, in the time slice that is drawn."""
    low, high = y.min(axis=0), y.max(axis=0)
    size = np.where(high > low, high - low, 1.0)
    wanted = low + np.arange(1, count + 1)[:, None] / (count + 2) * (high - low)
    if y.shape[1] == 3:
        wanted[:, 0] = high[0]
        size[0] *= 1e-6  # makes any other time slice farther away than any location in this one
    return [int(np.argmin(np.linalg.norm((y - each) / size, axis=1))) for each in wanted]


def annotate(ax: Axes, text: str, inset: float) -> None:
    """Write text into the upper left corner of a panel, inset by this fraction of its size."""
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0}
    ax.text(inset, 1.0 - inset, text, transform=ax.transAxes, ha="left", va="top", fontsize=6.0, bbox=box)


def mark_location(ax: Axes, column: Column, point: Float[np.ndarray, " d_y"]) -> None:
    """Mark a location with a cross, or with a vertical line if it has one coordinate."""
    if column.dimension == 1:
        ax.axvline(float(point[0]), color=INK, linewidth=0.6, linestyle=(0, (3, 2)))
        return
    across, up = point[-2:]
    if column.is_geographic:
        across, up = up, across
    if is_globe(column):
        across, up = np.radians((across + 180.0) % 360.0 - 180.0), np.radians(up)
    ax.plot(across, up, "+", color="white", markersize=7.0, markeredgewidth=2.0)
    ax.plot(across, up, "+", color=INK, markersize=6.0, markeredgewidth=0.8)
