"""Functions in panels, one function per row and one quantity per column: numbers, curves, fields, clouds, maps."""

import dataclasses
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import xarray
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.tri import Triangulation

from loca.data import Samples, Shared, Variable, grid_shape
from loca.domains import Domain
from loca.figures.style import ERROR_COLOR, INK, INPUT_COLOR, MISSING, OUTLINE, OUTPUT_COLOR, style, typeset, with_unit
from loca.typing import Measurements, values_of

SLICES = 2  # the most values of a leading coordinate, such as time, that are drawn, each in a column of its own
FEWEST = 4  # smallest number of locations at exactly one time that counts as a slice

GEOGRAPHIC = {"lat", "latitude", "degrees_north"}, {"lon", "longitude", "degrees_east"}
"""Names and units of the two coordinates of maps."""

MAPS = {"plain": "viridis", "log": "viridis", "size": "viridis", "signed": "RdBu_r", "error": "PuOr"}
"""The color map of each kind of scale. Errors have colors of their own: purple and orange around white at 0."""

ONE_SIDED = 0.25  # A field counts as signed if its smaller extreme is at least this fraction of its larger one
DECADES = 100.0  # ratio of the 99 % to the 1 % quantile from which positive values have a logarithmic scale
OUTLIER = 4.0  # Errors have the limits of 99 % of the values if the largest is this many times larger


def kind_of(values: Float[np.ndarray, " _"]) -> str:
    """The kind of scale that suits values: "signed", "log" or "plain"."""
    low, high = limits(values)
    if low < 0.0 < high and min(-low, high) > ONE_SIDED * max(-low, high):
        return "signed"
    if low <= 0.0:
        return "plain"
    first, last = np.quantile(values[np.isfinite(values)], [0.01, 0.99])
    return "log" if last > DECADES * first else "plain"


def norm_of(kind: str, values: Float[np.ndarray, "*shape"]) -> Normalize:
    """The limits of a scale: the range of the values, but around 0 for "signed" and "error" and from 0 for "size".

    Few large errors do not count, see `OUTLIER`; neither do values far below the others on a logarithmic scale.
    """
    low, high = limits(values)
    finite = values[np.isfinite(values)]
    largest = max(abs(low), abs(high)) or 1.0
    if kind == "error" and finite.size:
        most = float(np.quantile(np.abs(finite), 0.99))
        largest = most if 0.0 < OUTLIER * most < largest else largest
    if kind in ("error", "signed"):
        return Normalize(-largest, largest)
    if kind == "size":
        return Normalize(0.0, high or 1.0)
    if low == high:  # a constant field has no range
        return Normalize(low - 0.5 * (abs(low) or 1.0), high + 0.5 * (abs(high) or 1.0))
    if kind == "log":
        return LogNorm(max(low, float(np.quantile(finite, 0.01)) / 10.0), high, clip=True)
    return Normalize(low, high)


def limits(values: Float[np.ndarray, "*shape"]) -> tuple[float, float]:
    """The smallest and the largest finite value."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Quantity:
    """What a column of panels shows: one quantity of several functions, each over its last coordinates, a and b.

    By their labels, a panel of curves may have several `lines` instead of the functions, and `bands` behind them.
    """

    name: str
    unit: str
    heading: str  # what it is, such as "input"; written above the first of several columns
    caption: str  # the value of a leading coordinate, such as time
    functions: list[xarray.DataArray]  # for each row, along the grid of a and b or along `point`
    kind: str  # of the scale, see `MAPS`
    norms: list[Normalize]  # the limits of the scale in each row
    bounds: Float[np.ndarray, "2 _"]  # smallest and largest coordinates over all functions and slices
    domain: Domain | None  # of the locations, if it has no more coordinates than a panel
    coordinates: tuple[Variable, ...]  # a and b; numbers have none
    is_shared: bool  # whether all functions have the same locations
    lines: dict[str, list[xarray.DataArray]] = dataclasses.field(default_factory=dict)
    bands: dict[str, list[list[xarray.DataArray]]] = dataclasses.field(default_factory=dict)

    @property
    def dimension(self) -> int:
        """The number of coordinates of a panel; 0 for numbers."""
        return len(self.coordinates)

    @property
    def is_geographic(self) -> bool:
        """Whether locations are (latitude, longitude): latitude comes first and points upwards."""
        found = [known & {c.name.lower(), c.unit} for c, known in zip(self.coordinates, GEOGRAPHIC, strict=False)]
        return (len(found) == 2 and all(found)) or (self.domain is not None and self.domain.is_geographic)

    @property
    def is_isotropic(self) -> bool:
        """Whether lengths along the coordinates can be compared, so that panels keep their ratio."""
        return len({coordinate.unit for coordinate in self.coordinates}) == 1

    @property
    def is_framed(self) -> bool:
        """Whether panels have a fixed ratio of height and width, which the layout must keep."""
        return self.dimension == 0 or (self.dimension == 2 and (self.is_isotropic or self.is_geographic))

    @property
    def aspect(self) -> float:
        """The ratio of width and height of the panels."""
        if self.dimension == 0:  # as wide as the longest word above it
            return LETTER * max(8, len(self.unit), *map(len, self.name.split())) / SMALLEST
        if not self.is_framed:
            return 1.6 if self.dimension == 1 else 1.2
        across, up = np.ptp(self.bounds, axis=0).tolist()
        if self.is_geographic:
            across, up = up * math.cos(math.radians(self.bounds[:, 0].mean())), across
        return float(np.clip(across / up, 0.5, 2.0)) if up > 0.0 else 1.0


def inputs_of(samples: Samples, *, heading: str = "input", slices: int = 1, kind: str = "value") -> list[Quantity]:
    """The quantities of the input functions, field by field."""
    found = []
    for part in samples.parts:
        is_own = isinstance(part.u, Measurements)
        if isinstance(part.u, Measurements):
            kept = np.asarray(part.u.mask)
            x, u = ([np.asarray(a)[row] for a, row in zip(each, kept, strict=True)] for each in (part.u.x, part.u.u))
        else:
            u = list(np.asarray(values_of(part.u)[0]))
            x = [np.arange(float(len(u[0])))[:, None] if part.x is None else np.asarray(part.x)] * len(u)
        domain = samples.domain if x[0].shape[1] == samples.domain.dimension else None
        coordinates = coordinates_of(part.sensor_coordinates, domain, "x", x[0].shape[1])
        if not is_own and (len(x[0]) == 1 or part.x is None):
            coordinates = () if len(x[0]) == 1 else (Variable("sensor"),)
        found += quantities(
            x, u, part.inputs, coordinates, domain, heading, kind=kind, slices=slices, is_shared=not is_own
        )
    return found


def outputs_of(
    samples: Samples,
    s: Float[Array | np.ndarray, "N P d_s"] | None = None,
    *,
    heading: str = "output",
    slices: int = 1,
    kind: str = "value",
) -> list[Quantity]:
    """The quantities of the output functions, or of other values `s` at the same queries."""
    y = list(np.asarray(samples.y.take(jnp.arange(len(samples))).locations(len(samples))))
    coordinates = coordinates_of(samples.query_coordinates, samples.domain, "y", samples.domain.dimension)
    values, is_shared = list(np.asarray(samples.s if s is None else s)), isinstance(samples.y, Shared)
    return quantities(
        y, values, samples.outputs, coordinates, samples.domain, heading, kind=kind, slices=slices, is_shared=is_shared
    )


def quantities(
    points: list[Float[np.ndarray, "_ _"]],
    values: list[Float[np.ndarray, "_ _"]],
    variables: Sequence[Variable],
    coordinates: tuple[Variable, ...],
    domain: Domain | None,
    heading: str,
    *,
    kind: str = "plain",
    slices: int = 1,
    is_shared: bool = True,
) -> list[Quantity]:
    """The quantities of these channels, slice by slice; slices of one quantity have the same colors.

    Functions of three coordinates are drawn at `slices` values of the first one; a single slice is the last value.
    """
    if len(coordinates) > 3:
        raise ValueError(f"only functions of one to three coordinates can be drawn, got {len(coordinates)}")
    here = np.concatenate(points)[:, -min(len(coordinates), 2) :]
    sliced = list(slices_of(points, coordinates, slices))
    kinds = [kind_of(np.concatenate(values)[:, c]) if kind == "value" else kind for c in range(len(variables))]
    norms = [
        [norm_of(chosen, np.concatenate([s[rows[i], c] for _, rows in sliced])) for i, s in enumerate(values)]
        for c, chosen in enumerate(kinds)
    ]
    return [
        Quantity(
            name=variable.name.replace("_", " "),
            unit=variable.unit,
            heading=heading,
            caption=caption,
            functions=[
                array_of(x[row], s[row, c], coordinates[-2:]) for x, s, row in zip(points, values, rows, strict=True)
            ],
            kind=kinds[c],
            norms=norms[c],
            bounds=np.stack([here.min(axis=0), here.max(axis=0)]),
            domain=domain if len(coordinates) <= 2 else None,
            coordinates=coordinates[-2:],
            is_shared=is_shared,
        )
        for caption, rows in sliced
        for c, variable in enumerate(variables)
    ]


def array_of(
    points: Float[np.ndarray, "K _"], values: Float[np.ndarray, " K"], coordinates: tuple[Variable, ...]
) -> xarray.DataArray:
    """One function over the coordinates a and b, which have the labels of the axes."""
    if not coordinates:
        return xarray.DataArray(values[0])
    points = points[:, -len(coordinates) :]
    shape = grid_shape(points) if len(coordinates) == 2 else None
    if shape is None:
        axes, dims = points.T, ["a"] if len(coordinates) == 1 else ["point", "point"]
    else:
        grid = points.reshape(*shape, 2)
        axes, dims = (grid[:, 0, 0], grid[0, :, 1]), ["a", "b"]
    units = ("" if "degrees" in coordinate.unit else coordinate.unit for coordinate in coordinates)
    labels = [{"long_name": with_unit(symbol(c.name), unit)} for c, unit in zip(coordinates, units, strict=True)]
    coords = {name: (dim, axis, label) for name, dim, axis, label in zip("ab", dims, axes, labels, strict=False)}
    found = xarray.DataArray(values.reshape(shape or -1), coords, list(dict.fromkeys(dims)))
    return found.sortby(list(found.indexes))


def coordinates_of(
    given: tuple[Variable, ...], domain: Domain | None, letter: str, dimension: int
) -> tuple[Variable, ...]:
    """Names and units of coordinates: those of the data, those of the domain, or x1, x2, … for the letter x."""
    if given:
        return given
    if domain is not None and domain.coordinate_names != tuple(f"y{i + 1}" for i in range(dimension)):
        return tuple(map(Variable, domain.coordinate_names, domain.coordinate_units))
    return tuple(Variable(letter if dimension == 1 else f"{letter}{i + 1}") for i in range(dimension))


def symbol(name: str) -> str:
    """A name for a label: a letter with a number or without, such as t or x1, as a symbol, and words as they are."""
    parts = re.fullmatch(r"([^\W\d_])_?(\d*)", name)
    if parts is None:
        return {"lat": "latitude", "lon": "longitude"}.get(name, name.replace("_", " "))
    return f"${parts[1]}_{{{parts[2]}}}$" if parts[2] else f"${parts[1]}$"


def slices_of(
    points: list[Float[np.ndarray, "_ _"]], coordinates: tuple[Variable, ...], count: int
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The caption of every slice, and the indices of the locations of every function that belong to it.

    Functions of one or two coordinates have a single slice with all locations. If times hardly ever repeat within a
    function, a slice holds all locations whose time is near its own.
    """
    if len(coordinates) < 3:
        yield "", [np.arange(len(each)) for each in points]
        return
    levels = np.unique(np.concatenate([each[:, 0] for each in points]))
    repeats = all(
        np.array_equal(np.unique(each[:, 0]), levels) and FEWEST * len(levels) <= len(each) for each in points
    )
    near = 0.0 if repeats else float(np.ptp(levels)) / (2 * SLICES)
    name, unit = symbol(coordinates[0].name), typeset(coordinates[0].unit)
    for level in levels[np.unique(np.linspace(len(levels) - 1, 0, count).round().astype(int))]:
        value = f"{level:.3g}".replace("-", "−")
        caption = f"{name} {'=' if repeats else '≈'} {value} {unit}".rstrip()
        yield caption, [np.flatnonzero(np.abs(each[:, 0] - level) <= near) for each in points]


PRINT_WIDTH = 7.0  # width of the text on a printed page, in inches
SMALLEST, LARGEST = 0.8, 1.5  # smallest and largest height of a panel, in inches
BAR = 0.3  # height of a color bar with its labels, in inches
LETTER = 0.062  # average width of a letter in a title, in inches
CROWDED = 100  # number of values from which a curve is drawn as a line; fewer labels are drawn as separate points


def draw(quantities: list[Quantity], captions: Sequence[str] | None = None) -> Figure:
    """Draw functions, one per row, with one panel per quantity and a color bar below every field.

    `captions` are written to the left of the rows, rotated.
    """
    count = len(quantities[0].functions)
    aspects = [each.aspect for each in quantities]
    headings = ["", *(each.heading for each in quantities)]
    starts = [j == 0 or (headings[j] == "input" != headings[j + 1]) for j in range(len(quantities))]
    height = float(np.clip(PRINT_WIDTH / sum(aspects), SMALLEST, LARGEST))
    bar = BAR if any(each.dimension == 2 for each in quantities) else 0.07
    gaps = [0.42 if start or each.dimension == 1 else 0.1 for start, each in zip(starts, quantities, strict=True)]
    size = height * sum(aspects) + sum(gaps) + 0.3 * (captions is not None), (height + bar) * count + 0.7
    legend: dict[str, Any] = {}
    with style():
        layout = "compressed" if all(each.is_framed for each in quantities) else "constrained"
        figure = Figure(figsize=size, layout=layout)
        grid = figure.add_gridspec(count, len(quantities), width_ratios=aspects)
        for j, quantity in enumerate(quantities):
            for row in range(count):
                ax = figure.add_subplot(grid[row, j])
                (draw_number, draw_curve, draw_field)[quantity.dimension](ax, quantity, row)
                ax.tick_params(labelleft=starts[j] or quantity.dimension == 1, labelbottom=row == count - 1)
                label = ax.get_ylabel() if starts[j] and quantity.dimension == 2 else ""
                if captions is not None and j == 0:
                    label = f"{captions[row]}\n{label}".rstrip()
                title = title_of(quantity, height * aspects[j], headings[j] != quantity.heading)
                ax.set(
                    title=title if row == 0 else "", xlabel=ax.get_xlabel() if row == count - 1 else "", ylabel=label
                )
                legend |= {name: handle for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
        if legend:
            columns = 2 * len(quantities)
            figure.legend(list(legend.values()), list(legend), loc="outside upper center", ncols=columns, fontsize=6.0)
        figure.draw_without_rendering()  # computes the layout now, in this style
    return figure


def title_of(quantity: Quantity, width: float, is_first: bool) -> str:
    """The heading, the slice, and the wrapped name with its unit, for a panel of this width in inches."""
    above = ", ".join(filter(None, (quantity.heading if is_first else "", quantity.caption)))
    if len(above) * LETTER > width:
        above = above.replace(", ", "\n")
    unit = quantity.unit.replace(" ", "\N{NO-BREAK SPACE}")
    name = f"{quantity.name} ({unit})" if unit else quantity.name
    lines = textwrap.wrap(name, max(8, int(width / LETTER)), break_long_words=False, break_on_hyphens=False)
    return "\n".join(filter(None, (above, *lines))).replace(f"({unit})", f"({typeset(quantity.unit)})")


def draw_number(ax: Axes, quantity: Quantity, row: int) -> None:
    """Write a single number into the middle of a panel without a frame."""
    value = f"{float(quantity.functions[row]):.4g}".replace("-", "−")
    ax.text(0.5, 0.5, value, transform=ax.transAxes, ha="center", va="center")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


def draw_curve(ax: Axes, quantity: Quantity, row: int) -> None:
    """Draw values over one coordinate: lines, or points if locations are few and differ between functions."""
    size = quantity.functions[row].size
    few = size < 2 or (not quantity.is_shared and size < CROWDED)
    color = ERROR_COLOR if quantity.kind == "error" else INPUT_COLOR if quantity.heading == "input" else OUTPUT_COLOR
    for label, ends in quantity.bands.items():
        lower, upper = (each[row] for each in ends)
        ax.fill_between(lower.a, lower, upper, color=color, alpha=0.2, linewidth=0, label=label)
    for label, functions in (quantity.lines or {"_": quantity.functions}).items():
        dash = "-" if label in ("_", "truth") or label.endswith("draw") else "--"
        mark = {"-": ".", "--": "x"}[dash] if few else dash
        shade, width = INK if label == "truth" else color, 0.4 if label.endswith("draw") else 0.9
        functions[row].plot.line(mark, ax=ax, color=shade, linewidth=width, label=label)
    if quantity.kind == "error":
        ax.axhline(0.0, color=OUTLINE, linewidth=0.5, zorder=0)
    ax.margins(x=0.02 if few else 0.0)
    ax.update_datalim(np.pad(quantity.bounds, ((0, 0), (0, 1))), updatey=False)  # rows have the same limits
    ax.autoscale_view()
    ax.locator_params(axis="y", nbins=4)
    ax.locator_params(axis="x", nbins=5)


def draw_field(ax: Axes, quantity: Quantity, row: int) -> None:
    """Draw values over two coordinates as colors with a color bar below."""
    function = quantity.functions[row]
    across, up = ("b", "a") if quantity.is_geographic else ("a", "b")
    cmap = mpl.colormaps[MAPS[quantity.kind]].with_extremes(bad=MISSING)
    look = {"cmap": cmap, "norm": quantity.norms[row], "rasterized": True}
    if "point" not in function.dims:
        drawn = function.plot.pcolormesh(x=across, y=up, ax=ax, add_colorbar=False, **look)
    else:
        points = np.stack([function[across], function[up]], axis=-1)
        values, known = function.to_numpy(), np.isfinite(function.to_numpy())
        triangles = None if quantity.domain is None else quantity.domain.triangles(points)
        if triangles is not None and known.all():
            mesh = Triangulation(points[:, 0], points[:, 1], triangles)
            drawn = ax.tripcolor(mesh, values, shading="gouraud", **look)
        else:  # one dot per location, as large as possible without hiding its neighbors; outlines show white dots
            size = float(np.clip(2500.0 / len(points), 2.0, 16.0))  # in square points; a panel of an inch has 5184
            line = {"linewidth": 0.2 if size > 4.0 else 0.0, "edgecolor": OUTLINE}
            drawn = ax.scatter(*points[known].T, s=size, c=values[known], **look, **line)
            ax.scatter(*points[~known].T, s=size, color=MISSING, marker="x", linewidth=0.4)
    add_colorbar(ax, drawn, quantity, limits(function.to_numpy()))
    ax.update_datalim(quantity.bounds[:, ::-1] if quantity.is_geographic else quantity.bounds)
    ax.autoscale_view()
    ax.set(xlabel=function[across].attrs["long_name"], ylabel=function[up].attrs["long_name"])
    ax.locator_params(nbins=3)
    ax.spines[:].set_visible(True)
    width, height = np.ptp(quantity.bounds, axis=0)
    if quantity.is_geographic:
        ax.set_aspect(1.0 / math.cos(math.radians(quantity.bounds[:, 0].mean())))
    elif quantity.is_isotropic and width < 4.0 * height and height < 4.0 * width:  # else it would be too narrow to read
        ax.set_aspect("equal")


def add_colorbar(ax: Axes, drawn: ScalarMappable, quantity: Quantity, ends: tuple[float, float]) -> None:
    """Add a horizontal color bar below a panel; arrows at its ends mark values beyond them."""
    norm: Any = drawn.norm
    low, high = norm.vmin or 0.0, norm.vmax or 0.0
    slack = 1e-6 * (high - low)
    beyond = (ends[0] < low - slack) + 2 * (ends[1] > high + slack)
    extend = ("neither", "min", "max", "both")[beyond]
    bar = ax.figure.colorbar(drawn, ax=ax, location="bottom", aspect=14 * quantity.aspect, pad=0.02, extend=extend)
    bar.outline.set_linewidth(0.5)  # pyright: ignore[reportCallIssue]
    if isinstance(drawn.norm, LogNorm):
        bar.minorticks_off()
    else:
        bar.locator = MaxNLocator(nbins=3, steps=[1, 2, 4, 5, 10])
