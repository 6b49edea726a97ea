"""What LOCA looks at: its weights over Y, and how alike it finds locations."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.attention import Channels, Uncoupled, inverse_root
from loca.data import Samples, Shared, Variable
from loca.figures.columns import Column, columns_of
from loca.figures.layout import draw_columns, is_globe
from loca.figures.style import INK
from loca.models import LOCA, Operator
from loca.typing import Measurements

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANKS = ("largest", "second", "third", "fourth", "fifth", "sixth")


def attention(model: Operator, samples: Samples, points: Sequence[int] | None = None, features: int = 3) -> Figure:
    """φᵢ over Y for the i with the largest mean weight, and κ(y, ·) around one location; a row per output channel.

    All φ share one color scale. Channels share one κ, so each row shows it around a location of its own, which a
    cross marks. A model without coupling has no κ to show.

    **Arguments:**

    - `model`: a `LOCA`.
    - `samples`: data whose queries say where to draw.
    - `points`: the numbers of queries for κ, one per channel; by default some that lie well inside.
    - `features`: how many φᵢ, at most six.
    """
    if not isinstance(model, LOCA):
        raise ValueError(f"only LOCA has an attention to show, got a {type(model).__name__}")
    if not 1 <= features <= len(RANKS):
        raise ValueError(f"between one and {len(RANKS)} features can be shown, got {features}")
    y = samples.y.points
    channels = len(samples.outputs)
    chosen = list(points) if points is not None else central(np.asarray(y), channels)
    if len(chosen) != channels or not all(0 <= point < len(y) for point in chosen):
        raise ValueError(
            f"pass {channels} numbers of queries below {len(y)} as `points`, one per channel; got {chosen}"
        )
    phi = [np.asarray(each) for each in weights(model, y)]
    order = [np.argsort(-each.mean(axis=0), kind="stable")[:features] for each in phi]
    shown = np.stack([each[:, first] for each, first in zip(phi, order, strict=True)])
    names = [f"{RANKS[i]} $\\phi$" for i in range(shown.shape[-1])]
    columns = columns_over(samples, y, shown, names, "phi")
    if not isinstance(model.attention, Uncoupled):
        kappa = kernel(model, y, jnp.asarray(chosen))
        columns += columns_over(samples, y, np.asarray(kappa)[..., None], ["$\\kappa(y, \\cdot)$"], "kappa")
    figure = draw_columns(columns, channels)
    axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    for j, column in enumerate(columns):
        for c, ax in enumerate(axes[j * channels : (j + 1) * channels]):
            if j < shown.shape[-1]:
                name = f" {samples.outputs[c].name.replace('_', ' ')}" if channels > 1 and j == 0 else ""
                write(ax, f"$i = {order[c][j]}${name}", inset=0.0 if is_globe(column) else 0.03)
            else:
                mark(ax, column, np.asarray(y[chosen[c]]))
    return figure


@eqx.filter_jit
def weights(model: LOCA, y: Float[Array, "P d_y"]) -> Channels:
    """φ(y)."""
    return model.weights(y)


@eqx.filter_jit
def kernel(model: LOCA, y: Float[Array, "P d_y"], points: Array) -> Float[Array, "K P"]:
    """κ(y_k, y) of a few locations with all."""
    z, w = model.rule(y)
    q_y, q_z = model.lift(y), model.lift(z)
    r_y = inverse_root(model.k.matrix(q_y, q_z) @ w)
    return r_y[points, None] * model.k.matrix(q_y[points], q_y) * r_y


def columns_over(
    samples: Samples, y: Float[Array, "P d_y"], values: np.ndarray, names: list[str], scale: str
) -> list[Column]:
    """Columns of functions over Y, one row per output channel."""
    rows = len(values)
    sensors = samples.u.x if isinstance(samples.u, Measurements) else samples.x
    # a sensor that is not drawn, of as many coordinates as the true ones: they tell whether Y has time besides
    x = jnp.zeros((1, y.shape[1] if sensors is None else sensors.shape[-1]))
    over = Samples(
        jnp.zeros((rows, 1, 1)),
        Shared(y),
        jnp.asarray(values),
        x=x,
        domain=samples.domain,
        outputs=[Variable(n) for n in names],
    )
    found = [column for column in columns_of(over, rows, levels=1) if column.is_output]
    return [dataclasses.replace(column, heading="", scale=scale) for column in found]


def central(y: Float[np.ndarray, "P d_y"], count: int) -> list[int]:
    """Locations spread along the diagonal of the box around all, away from its ends; in the slice that is shown."""
    low, high = y.min(axis=0), y.max(axis=0)
    size = np.where(high > low, high - low, 1.0)
    wanted = low + np.arange(1, count + 1)[:, None] / (count + 2) * (high - low)
    if y.shape[1] == 3:
        wanted[:, 0] = high[0]
        size[0] *= 1e-6  # nothing is as far away as another slice
    return [int(np.argmin(np.linalg.norm((y - each) / size, axis=1))) for each in wanted]


def write(ax: Axes, text: str, inset: float) -> None:
    """A few words in the upper left corner of a panel, set in by this part of it."""
    box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0}
    ax.text(inset, 1.0 - inset, text, transform=ax.transAxes, ha="left", va="top", fontsize=6.0, bbox=box)


def mark(ax: Axes, column: Column, point: Float[np.ndarray, " d_y"]) -> None:
    """A cross at a location, or a line where there is only one coordinate."""
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
