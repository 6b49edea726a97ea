"""Figures of functions: data, predictions with their errors and error bars, attention weights, and posteriors."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loca.attention import Channels, Dense, Uncoupled, coupling
from loca.data import Records, Samples, Variable, as_input
from loca.figures.panels import SLICES, Quantity, coordinates_of, draw, inputs_of, norm_of, outputs_of, quantities
from loca.figures.style import INK
from loca.inversion import Posterior
from loca.models import (
    LEVEL,
    LOCA,
    Operator,
    Uncertain,
    adapt,
    is_numbered,
    predict,
    predict_error_bars,
)
from loca.typing import Input, Measurements, MultiInput, Numbers


def sheet(samples: Samples | Records, rows: int = 4) -> Figure:
    """Draw the first functions of a data set, one per row: every input channel, then every output channel.

    Functions of one coordinate are drawn as curves, and single numbers as text. Fields have colors of their own in
    every row: viridis, logarithmic if values are positive over more than two decades, or a diverging map centered at 0
    if values are signed. Axes have the names and units of the data.

    Fields over latitude and longitude are drawn as maps. Fields with one more coordinate, such as time, are drawn at
    its first and its last value.

    **Arguments:**

    - `samples`: the data, in memory or in files.
    - `rows`: the number of functions.
    """
    samples = _selected(samples, rows)
    return draw([*inputs_of(samples, slices=SLICES), *outputs_of(samples, slices=SLICES)])


def fields(
    model: Operator, samples: Samples | Records, rows: int | Sequence[int] = 3, captions: Sequence[str] | None = None
) -> Figure:
    """Draw u, s, F(u) and F(u) − s, one function per row: the input, the truth, the prediction and the error.

    Truth and prediction share the colors of the truth; the error has its own, centered at 0. Colors are chosen as in
    `sheet`. Arrows at the ends of a color bar mark values beyond them: predictions outside of the range of the truth,
    or few large errors. Curves of the truth and of the prediction are drawn into one panel. Fields with one more
    coordinate, such as time, are drawn at its last value. Channels without names have those that the model knows.

    **Arguments:**

    - `model`: the operator.
    - `samples`: the data, in memory or in files.
    - `rows`: the number of functions, or their indices, such as `report.worst()`.
    - `captions`: a text for the left of each row.
    """
    shown = named(adapt(model, _selected(samples, rows, captions)), model)
    return draw_predictions(shown, predict(model, shown.u, shown.y), captions)


def draw_predictions(samples: Samples, prediction: Float[Array, "N P d_s"], captions: Sequence[str] | None) -> Figure:
    """Draw every function next to a given prediction, as `fields` does."""
    truth, predicted = outputs_of(samples, heading="truth"), outputs_of(samples, prediction, heading="prediction")
    errors = outputs_of(samples, prediction - samples.s, heading="error", kind="error")
    found = inputs_of(samples)
    for *both, error in zip(truth, predicted, errors, strict=True):
        found += [*together(both, "output"), error]
    return draw(found, captions)


def together(group: Sequence[Quantity], heading: str, bands: dict[str, list[Quantity]] | None = None) -> list[Quantity]:
    """A quantity and others to compare with it: curves in one panel, fields beside each other in the same colors."""
    first = group[0]
    if first.dimension != 1:
        return [dataclasses.replace(each, kind=first.kind, norms=first.norms) for each in group]
    lines = {each.heading: each.functions for each in group}
    ends = {label: [each.functions for each in both] for label, both in (bands or {}).items()}
    return [dataclasses.replace(first, heading=heading, lines=lines, bands=ends)]


def _selected(samples: Samples | Records, rows: int | Sequence[int], captions: Sequence[str] | None = None) -> Samples:
    numbers = list(range(min(rows, len(samples)))) if isinstance(rows, int) else [int(row) for row in rows]
    if not numbers or not all(0 <= number < len(samples) for number in numbers):
        raise ValueError(
            f"rows={rows} does not select functions among {len(samples)}; pass the number of functions or their indices"
        )
    if captions is not None and len(captions) != len(numbers):
        raise ValueError(f"got {len(captions)} captions for {len(numbers)} functions; pass one per function")
    return samples.load(numbers) if isinstance(samples, Records) else samples.take(jnp.asarray(numbers))


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


def error_bars(
    model: Uncertain,
    samples: Samples | Records,
    rows: int | Sequence[int] = 3,
    level: float = LEVEL,
    captions: Sequence[str] | None = None,
) -> Figure:
    """Draw what a model knows of its error, one function per row.

    Functions of one coordinate are drawn as curves: truth, prediction and pointwise bands, and around these
    simultaneous bands if the model has them. Of fields, the truth, the prediction, the absolute error and σ are drawn
    beside each other; the last two each in their own colors from 0.

    **Arguments:**

    - `model`: an operator that knows its error, such as one from `loca.calibrate`.
    - `samples`: the data, in memory or in files.
    - `rows`: the number of functions, or their indices.
    - `level`: of the bands.
    - `captions`: a text for the left of each row.
    """
    shown = named(adapt(model, _selected(samples, rows, captions)), model)
    found = predict_error_bars(model, shown.u, shown.y, model.radius(level))
    truth, predicted = outputs_of(shown, heading="truth"), outputs_of(shown, found.mean, heading="prediction")
    if shown.domain.dimension > 1:
        errors = outputs_of(shown, jnp.abs(found.mean - shown.s), heading="|error|", kind="size")
        sigmas = outputs_of(shown, found.std, heading="σ", kind="size")
        columns = zip(truth, predicted, errors, sigmas, strict=True)
        return draw([each for *both, error, sigma in columns for each in (*together(both, ""), error, sigma)], captions)
    bands = {}
    with contextlib.suppress(ValueError):  # only calibrated models have them
        wide = predict_error_bars(model, shown.u, shown.y, model.radius(level, simultaneous=True))
        bands[f"simultaneous {100 * level:g} % band"] = outputs_of(shown, wide.lower), outputs_of(shown, wide.upper)
    bands[f"pointwise {100 * level:g} % band"] = outputs_of(shown, found.lower), outputs_of(shown, found.upper)
    columns = []
    for j, both in enumerate(zip(truth, predicted, strict=True)):
        columns += together(both, "output", {label: [end[j] for end in ends] for label, ends in bands.items()})
    return draw(columns, captions)


RANKS = ("largest", "second", "third")  # the features of an attention figure, by their mean weight


def attention(model: Operator, samples: Samples) -> Figure:
    """Draw φᵢ over Y for the three features i with the largest mean weight, and κ(y, ·) for one location y.

    There is one row per output channel, in which all φ share one color scale. All channels share one κ, so each row
    shows it for a different location, marked by a cross. A model without coupling has no κ, and its column is left out.

    **Arguments:**

    - `model`: a `LOCA`.
    - `samples`: data whose queries span the part of Y to draw.
    """
    if not isinstance(model, LOCA):
        raise ValueError(f"only LOCA has attention weights to draw, got a {type(model).__name__}")
    samples = adapt(model, samples)
    y, outputs = samples.y.points, samples.outputs
    phi = [np.asarray(each) for each in weights(model, y)]
    order = [np.argsort(-each.mean(axis=0), kind="stable")[: len(RANKS)] for each in phi]
    shown = [each[:, first] for each, first in zip(phi, order, strict=True)]
    places = [np.asarray(y)] * len(outputs)
    coordinates = coordinates_of(samples.query_coordinates, samples.domain, "y", samples.domain.dimension)
    names = [Variable(f"{rank} $\\phi$") for rank in RANKS][: shown[0].shape[1]]
    norms = [norm_of("plain", each) for each in shown]
    columns = quantities(places, shown, names, coordinates, samples.domain, "")
    columns = [dataclasses.replace(each, norms=norms) for each in columns]
    chosen = interior_points(np.asarray(y), len(outputs))
    if not isinstance(model.attention, Uncoupled):
        kappa = list(np.asarray(kernel(model, y, y[jnp.asarray(chosen)]))[..., None])
        name = [Variable("$\\kappa(y, \\cdot)$")]
        columns += quantities(places, kappa, name, coordinates, samples.domain, "")
    figure = draw(columns)
    axes = iter([ax for ax in figure.axes if ax.get_label() != "<colorbar>"])
    for j, column in enumerate(columns):
        for c, ax in zip(range(len(outputs)), axes, strict=False):
            if j == len(names):
                mark_location(ax, column, np.asarray(y[chosen[c]]))
                continue
            name = f" {outputs[c].name.replace('_', ' ')}" if len(outputs) > 1 and j == 0 else ""
            box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0}
            ax.text(0.03, 0.97, f"$i = {order[c][j]}${name}", transform=ax.transAxes, ha="left", va="top",
                    fontsize=6.0, bbox=box)  # fmt: skip
    return figure


@eqx.filter_jit
def weights(model: LOCA, y: Float[Array, "P d_y"]) -> Channels:
    """φ at the queries, on which the nodes may depend."""
    return model.weights(y) if model.is_pointwise else model.basis(y, model.nodes(y))


@eqx.filter_jit
def kernel(model: LOCA, y: Float[Array, "P d_y"], points: Float[Array, "K d_y"]) -> Float[Array, "K P"]:
    """κ(y_k, y) between a few locations y_k and the queries: the former are nodes of weight zero."""
    z, w = model.rule(y)
    q_z, weight = jnp.concatenate([model.lift(z), model.lift(points)]), jnp.pad(w, (0, len(points)))
    nodes = Dense().nodes(model.k, model.propose, q_z, weight)
    return coupling(model.k, model.lift(y), nodes)[:, len(z) :].T


def interior_points(y: Float[np.ndarray, "P d_y"], count: int) -> list[int]:
    """Indices of `count` locations along the diagonal of the bounding box, in the time slice that is drawn."""
    low, high = y.min(axis=0), y.max(axis=0)
    size = np.where(high > low, high - low, 1.0)
    wanted = low + np.arange(1, count + 1)[:, None] / (count + 2) * (high - low)
    if y.shape[1] == 3:
        wanted[:, 0] = high[0]
        size[0] *= 1e-6  # makes any other time slice farther away than any location in this one
    return [int(np.argmin(np.linalg.norm((y - each) / size, axis=1))) for each in wanted]


def mark_location(ax: Axes, column: Quantity, point: Float[np.ndarray, " d_y"]) -> None:
    """Mark a location with a cross, or with a vertical line if it has one coordinate."""
    if column.dimension == 1:
        ax.axvline(float(point[0]), color=INK, linewidth=0.6, linestyle=(0, (3, 2)))
        return
    across, up = point[:-3:-1] if column.is_geographic else point[-2:]
    ax.plot(across, up, "+", color="white", markersize=7.0, markeredgewidth=2.0)
    ax.plot(across, up, "+", color=INK, markersize=6.0, markeredgewidth=0.8)


DRAWS = 5  # draws among the curves


def posterior(
    found: Posterior, truth: Numbers | Measurements | MultiInput | None = None, level: float = LEVEL
) -> Figure:
    """Draw the inputs that explain observations.

    Inputs of one coordinate are drawn as curves: the mean, a band that contains the share `level` of the draws at each
    sensor, some draws, and the truth. Of fields, the truth, the mean, a draw and the standard deviation are drawn
    beside each other; all but the standard deviation in the same colors.

    **Arguments:**

    - `found`: the result of `loca.invert`.
    - `truth`: the input that was looked for, if it is known.
    - `level`: of the band.
    """

    operator, signature = found.operator, found.operator.signature

    def shown(u: Input, heading: str = "", kind: str = "value") -> list[Quantity]:
        samples = Samples(
            jax.tree.map(lambda array: array[None], u),
            found.y,
            jnp.zeros((1, len(found.y), len(operator.outputs))),
            x=operator.sensors,
            domain=operator.domain,
            inputs=operator.inputs,
            sensor_coordinates=() if signature is None else [c for part in signature.fields for c in part.coordinates],
        )
        return inputs_of(samples, heading=heading, kind=kind)

    kinds = [] if truth is None else [shown(as_input(truth, many=False), "truth")]
    kinds.append(shown(found.mean, "posterior mean"))
    count = len(kinds) + 1
    draws = [jax.tree.map(lambda array, i=i: array[i], found.draws) for i in range(DRAWS)]
    kinds += [shown(draw, "_" * i + "a draw") for i, draw in enumerate(draws)]
    quantiles = [0.5 * (1.0 - level), 0.5 * (1.0 + level)]
    ends = [shown(jax.tree.map(lambda array, q=q: jnp.quantile(array, q, axis=0), found.draws)) for q in quantiles]
    columns = []
    for *group, lower, upper, std in zip(*kinds, *ends, shown(found.std, "standard deviation", "size"), strict=True):
        is_curve = std.dimension == 1
        band = {f"{100 * level:g} % of draws": [lower, upper]}
        columns += together(group if is_curve else group[:count], "input", band)
        columns += [] if is_curve else [std]
    return draw(columns)
