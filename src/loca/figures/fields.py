"""Figures of functions: data, predictions with their errors and error bars, attention weights, and posteriors."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.attention import Channels, Dense, Uncoupled, coupling
from loca.data import Records, Samples, as_input, grid_shape
from loca.domains import Domain, grid
from loca.figures.panels import SLICES, Drawn, Quantity, coordinates_of, draw, inputs_of, norm_of, outputs_of
from loca.figures.style import INK, OUTPUT_COLOR, PALETTE, style
from loca.inversion import Posterior
from loca.models import (
    LEVEL,
    LOCA,
    Adaptation,
    Operator,
    Uncertain,
    adapt,
    is_numbered,
    predict,
    predict_error_bars,
)
from loca.typing import Input, Measurements, MultiInput, Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    if rows < 1:
        raise ValueError(f"expected at least one row, got rows={rows}")
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
    kinds = (
        outputs_of(samples, heading="truth"),
        outputs_of(samples, prediction, heading="prediction"),
        outputs_of(samples, prediction - samples.s, heading="error", kind="error"),
    )
    found = inputs_of(samples)
    for truth, predicted, error in zip(*kinds, strict=True):
        if truth.dimension == 1:
            both = "truth (solid), prediction (dashed)"
            found += [dataclasses.replace(truth, heading=both, overlay=predicted.functions), error]
        else:
            found += [truth, _alike(predicted, truth), error]
    return draw(found, captions)


def _alike(quantity: Quantity, other: Quantity) -> Quantity:
    return dataclasses.replace(quantity, kind=other.kind, norms=other.norms)


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
    if shown.domain.dimension > 1:
        truth, predicted = outputs_of(shown, heading="truth"), outputs_of(shown, found.mean, heading="prediction")
        error = outputs_of(shown, jnp.abs(found.mean - shown.s), heading="|error|", kind="size")
        sigma = outputs_of(shown, found.std, heading="σ", kind="size")
        columns = zip(truth, map(_alike, predicted, truth), error, sigma, strict=True)
        return draw([quantity for group in columns for quantity in group], captions)
    bands = {}
    with contextlib.suppress(ValueError):  # only calibrated models have them
        wide = predict_error_bars(model, shown.u, shown.y, model.radius(level, simultaneous=True))
        bands = {f"simultaneous {100 * level:g} % band": (wide.lower, wide.upper)}
    bands[f"pointwise {100 * level:g} % band"] = found.lower, found.upper
    lines = {"prediction": ("--", OUTPUT_COLOR, found.mean), "truth": ("-", INK, shown.s)}
    return draw_bands(
        {kind: tuple(outputs_of(shown, end) for end in ends) for kind, ends in bands.items()},
        {kind: (dash, color, outputs_of(shown, s)) for kind, (dash, color, s) in lines.items()},
        OUTPUT_COLOR,
        captions,
    )


def draw_bands(
    bands: dict[str, tuple[list[Quantity], ...]],
    lines: dict[str, tuple[str, str, list[Quantity]]],
    color: str,
    captions: Sequence[str] | None = None,
) -> Figure:
    """Draw curves over bands, all by their label: a row for each function, a column for each quantity."""
    from matplotlib.figure import Figure

    quantities = next(iter(lines.values()))[2]
    count = len(quantities[0].functions)
    with style():
        size = 0.4 + 2.8 * len(quantities), 0.7 + 1.3 * count
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(count, len(quantities), squeeze=False, sharex="col")
        for row in range(count):
            for j, (ax, quantity) in enumerate(zip(axes[row], quantities, strict=True)):
                for i, (label, ends) in enumerate(bands.items()):
                    lower, upper = (end[j].functions[row] for end in ends)
                    alpha = 0.3 if i == len(bands) - 1 else 0.15
                    ax.fill_between(lower.a, lower, upper, color=color, alpha=alpha, linewidth=0, label=label)
                for label, (dash, shade, drawn) in lines.items():
                    width = 0.4 if label.startswith(("draws", "_")) else 0.8
                    drawn[j].functions[row].plot.line(dash, ax=ax, color=shade, linewidth=width, label=label)
                name = quantity.name + (f" ({quantity.unit})" if quantity.unit else "")
                ax.set(title=name if row == 0 else "", ylabel="", xlabel=ax.get_xlabel() if row == count - 1 else "")
            if captions is not None:
                axes[row, 0].set_ylabel(captions[row])
        handles = axes[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=2 * len(quantities), fontsize=6.0)
        figure.draw_without_rendering()
    return figure


# ---- attention -------------------------------------------------------------------------------------------------------

RANKS = ("largest", "second", "third", "fourth", "fifth", "sixth")
"""Titles of the columns of φ, from the largest mean weight down."""

CELLS = 64
"""Number of cells along each side of the grid on which weights are drawn if the queries do not form a grid."""


def attention(model: Operator, samples: Samples, points: Sequence[int] | None = None, features: int = 3) -> Figure:
    """Draw φᵢ over Y for the features i with the largest mean weight, and κ(y, ·) for one location y.

    There is one row per output channel, in which all φ share one color scale. All channels share one κ, so each row
    shows it for a different location, marked by a cross. A model without coupling has no κ, and its column is left out.
    If the queries form no grid, such as a point cloud, φ and κ are drawn on an even grid around them; it is gray
    outside of Y.

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
    y, channels = samples.y.points, len(samples.outputs)
    chosen = list(points) if points is not None else interior_points(np.asarray(y), channels)
    if len(chosen) != channels or not all(0 <= point < len(y) for point in chosen):
        raise ValueError(
            f"expected {channels} indices of queries below {len(y)} as `points`, one per channel; got {chosen}"
        )
    drawn = _drawn_locations(samples.domain, y)
    inside = np.ones(len(y), bool) if drawn is y else samples.domain.contains(np.asarray(drawn), tolerance=1e-6)
    phi = [np.asarray(each) for each in weights(model, y, drawn)]
    order = [np.argsort(-each[inside].mean(axis=0), kind="stable")[:features] for each in phi]
    shown = [np.where(inside[:, None], each[:, first], np.nan) for each, first in zip(phi, order, strict=True)]
    coordinates = coordinates_of(samples.query_coordinates, samples.domain, "y", samples.domain.dimension)
    places = Drawn([np.asarray(drawn)] * channels, coordinates, samples.domain, "")
    names = [type(samples.outputs[0])(f"{RANKS[i]} $\\phi$") for i in range(shown[0].shape[1])]
    norms = [norm_of("plain", each) for each in shown]
    columns = [dataclasses.replace(each, norms=norms) for each in places.quantities(shown, names, 1, "plain")]
    if not isinstance(model.attention, Uncoupled):
        kappa = np.where(inside, kernel(model, y, y[jnp.asarray(chosen)], drawn), np.nan)[..., None]
        columns += places.quantities(list(kappa), [type(names[0])("$\\kappa(y, \\cdot)$")], 1, "plain")
    figure = draw(columns)
    axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
    for j, column in enumerate(columns):
        for c, ax in enumerate(axes[j * channels : (j + 1) * channels]):
            if j < len(names):
                name = f" {samples.outputs[c].name.replace('_', ' ')}" if channels > 1 and j == 0 else ""
                inset = 0.0 if column.is_globe else 0.03
                box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0}
                ax.text(inset, 1.0 - inset, f"$i = {order[c][j]}${name}", transform=ax.transAxes, ha="left", va="top",
                        fontsize=6.0, bbox=box)  # fmt: skip
            else:
                mark_location(ax, column, np.asarray(y[chosen[c]]))
    return figure


def _drawn_locations(domain: Domain, y: Float[Array, "P d_y"]) -> Float[Array, "D d_y"]:
    """The queries, if they have one coordinate or form a grid; otherwise an even grid of cells over their range.

    The grid spans the last two coordinates. A third one, such as time, has its last value.
    """
    if domain.dimension not in (2, 3) or grid_shape(y) is not None:
        return y
    low, high = np.asarray(y).min(axis=0), np.asarray(y).max(axis=0)
    steps = (np.arange(CELLS) + 0.5) / CELLS
    axes = [*high[: domain.dimension - 2, None], *(low + steps[:, None] * (high - low)).T[-2:]]
    return jnp.asarray(grid(*axes), y.dtype)


@eqx.filter_jit
def weights(model: LOCA, y: Float[Array, "_ d_y"], drawn: Float[Array, "P d_y"]) -> Channels:
    """φ at the drawn locations; y are the queries, on which the nodes may depend."""
    return model.weights(drawn) if model.is_pointwise else model.basis(drawn, model.nodes(y))


@eqx.filter_jit
def kernel(
    model: LOCA, y: Float[Array, "P d_y"], points: Float[Array, "K d_y"], drawn: Float[Array, "D d_y"]
) -> Float[Array, "K D"]:
    """κ(y_k, y) between a few locations y_k and the drawn ones: the former are nodes of weight zero."""
    z, w = model.rule(y)
    q_z, weight = jnp.concatenate([model.lift(z), model.lift(points)]), jnp.pad(w, (0, len(points)))
    nodes = Dense().nodes(model.k, model.propose, q_z, weight)
    return coupling(model.k, model.lift(drawn), nodes)[:, len(z) :].T


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
    if column.is_globe:
        across, up = np.radians((across + 180.0) % 360.0 - 180.0), np.radians(up)
    ax.plot(across, up, "+", color="white", markersize=7.0, markeredgewidth=2.0)
    ax.plot(across, up, "+", color=INK, markersize=6.0, markeredgewidth=0.8)


# ---- inversion -------------------------------------------------------------------------------------------------------

DRAWS = 5
"""Draws among the curves."""


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

    def quantities(u: Input, heading: str = "", kind: str = "value") -> list[Quantity]:
        operator, signature = found.operator, found.operator.signature
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

    known = [] if truth is None else quantities(as_input(truth, many=False), "truth")
    mean = quantities(found.mean, "posterior mean")
    some = [jax.tree.map(lambda array, i=i: array[i], found.draws) for i in range(DRAWS)]
    if all(column.dimension == 1 for column in mean):
        ends = [
            jax.tree.map(lambda array, q=q: jnp.quantile(array, q, axis=0), found.draws)
            for q in (0.5 * (1.0 - level), 0.5 * (1.0 + level))
        ]
        lines = {"_" * i + "draws": ("-", PALETTE[0], quantities(one)) for i, one in enumerate(some)}
        lines["posterior mean"] = ("--", PALETTE[0], mean)
        if known:
            lines["truth"] = ("-", INK, known)
        band = {f"{100 * level:g} % of draws": tuple(quantities(end) for end in ends)}
        return draw_bands(band, lines, PALETTE[0])
    kinds = [*([known] if known else []), mean, quantities(some[0], "a draw")]
    kinds = [[_alike(each, first) for each, first in zip(kind, kinds[0], strict=True)] for kind in kinds]
    kinds.append(quantities(found.std, "standard deviation", "size"))
    return draw([quantity for group in zip(*kinds, strict=True) for quantity in group])
