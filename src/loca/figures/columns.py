"""The columns of a figure with one function per row: which quantity each column shows, read from the data."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Samples, Shared, Variable
from loca.domains import Domain
from loca.figures.style import typeset, with_unit
from loca.typing import Measurements, MultiInput, values_of

SLICES = 3
"""Number of values of a leading coordinate, such as time, that are drawn in separate columns."""

FEWEST = 4
"""Smallest number of locations at exactly one time that counts as a slice."""

COMPONENTS = (r"[_ ]?(x?[1₁]|x)$", r"[_ ]?(x?[2₂]|y)$")
"""Endings of the names of the two components of a vector, such as v1, v_x1, v_x or vx for the first."""

TIMES = ("t", "time")
"""Names of coordinates that are times."""

GEOGRAPHIC = {"lat", "latitude", "degrees_north"}, {"lon", "longitude", "degrees_east"}
"""Names and units of the two coordinates of maps."""


@dataclasses.dataclass(frozen=True)
class Column:
    """One quantity of several functions: its locations, its values and its labels.

    `points` and `values` hold one array per function: (P, d) locations, and (P,) values, or (P, 2) for a vector.
    """

    name: str
    unit: str
    caption: str
    coordinates: tuple[Variable, ...]  # the last two, which span a panel
    points: list[Float[np.ndarray, "_ _"]]
    bounds: Float[np.ndarray, "2 _"]  # smallest and largest coordinates over all functions and times
    values: list[np.ndarray]
    is_output: bool
    is_shared: bool
    domain: Domain | None
    heading: str
    """Title above the first of several adjacent columns with the same heading."""

    scale: str
    """Columns with the same key share one color scale."""

    is_displacement: bool = False
    is_error: bool = False
    is_prediction: bool = False
    is_number: bool = False
    """Whether every function is a single number, shown as text."""

    has_time: bool = False
    """Whether the first coordinate is time although its name does not say so."""

    is_linear: bool = False
    """Whether colors are never on a logarithmic scale."""

    overlay: list[np.ndarray] | None = None
    """Other values of the same quantity, drawn dashed over the curves."""

    @property
    def is_vector(self) -> bool:
        """Whether values are vectors with two components."""
        return self.values[0].ndim == 2

    @property
    def axes(self) -> tuple[str, ...]:
        """Labels of the coordinates."""
        return tuple(with_unit(symbol(coordinate.name), coordinate.unit) for coordinate in self.coordinates)

    @property
    def is_geographic(self) -> bool:
        """Whether locations are (latitude, longitude): latitude comes first and points upwards."""
        found = [known & {c.name.lower(), c.unit} for c, known in zip(self.coordinates, GEOGRAPHIC, strict=False)]
        return (len(found) == 2 and all(found)) or (self.domain is not None and self.domain.is_geographic)

    @property
    def is_isotropic(self) -> bool:
        """Whether lengths along the coordinates can be compared, so that panels keep their ratio."""
        has_time = self.has_time or any(coordinate.name.lower() in TIMES for coordinate in self.coordinates)
        return not has_time and len({coordinate.unit for coordinate in self.coordinates}) == 1

    @property
    def dimension(self) -> int:
        """Number of coordinates of a location; 0 for numbers."""
        return 0 if self.is_number else self.points[0].shape[1]

    @property
    def colors(self) -> list[Float[np.ndarray, " _"]]:
        """Values to map to colors: the values themselves, or the lengths of vectors."""
        return [np.linalg.norm(each, axis=-1) for each in self.values] if self.is_vector else self.values


def columns_of(samples: Samples, rows: int, levels: int = SLICES) -> list[Column]:
    """The columns for the first `rows` functions: input channels, then output channels, slice by slice.

    Functions of three coordinates are drawn at `levels` values of the first one; a single level is the last value.
    """
    if isinstance(samples.u, MultiInput):
        inputs = [c for part in samples.parts for c in columns_of(part, rows, levels) if not c.is_output]
        return [*inputs, *(c for c in columns_of(samples.parts[0], rows, levels) if c.is_output)]
    count = min(rows, len(samples))
    if isinstance(samples.u, Measurements):
        keep = np.asarray(samples.u.mask[:count])
        x = [np.asarray(each)[kept] for each, kept in zip(samples.u.x[:count], keep, strict=True)]
        u = [np.asarray(each)[kept] for each, kept in zip(samples.u.u[:count], keep, strict=True)]
    else:
        u = list(np.asarray(values_of(samples.u)[0][:count]))
        m = len(u[0])
        x = [np.asarray(samples.x) if samples.x is not None else np.arange(float(m))[:, None]] * count
    y = list(np.asarray(samples.y.take(jnp.arange(count)).locations(count)))
    s = list(np.asarray(samples.s[:count]))
    d_x, d_y = x[0].shape[1], y[0].shape[1]
    if not (d_x <= 3 and d_y <= 3):
        raise ValueError(
            f"only functions of one to three coordinates can be drawn, but the sensors have {d_x} and the queries "
            f"{d_y}; select a slice of the data along the other coordinates first"
        )
    own_sensors, own_queries = isinstance(samples.u, Measurements), not isinstance(samples.y, Shared)
    sensor_domain = samples.domain if d_x == d_y else None
    sensor_coordinates = coordinates_of(samples.sensor_coordinates, sensor_domain, "x", d_x)
    is_number = not own_sensors and len(x[0]) == 1
    if is_number or (samples.x is None and not own_sensors):
        sensor_coordinates = (Variable("sensor"),)
    query_coordinates = coordinates_of(samples.query_coordinates, samples.domain, "y", d_y)
    # Without names, a coordinate that only the queries have is probably time, but a mesh is a shape in space.
    has_time = not (samples.query_coordinates or is_number or samples.domain.is_meshed) and (d_x, d_y) == (1, 2)
    inputs = channel_columns(u, x, samples.inputs, sensor_coordinates, False, not own_sensors, sensor_domain, levels)
    outputs = channel_columns(s, y, samples.outputs, query_coordinates, True, not own_queries, samples.domain, levels)
    return [
        *(dataclasses.replace(column, is_number=is_number) for column in inputs),
        *(dataclasses.replace(column, has_time=has_time) for column in outputs),
    ]


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
        return name.replace("_", " ")
    return f"${parts[1]}_{{{parts[2]}}}$" if parts[2] else f"${parts[1]}$"


def channel_columns(
    values: list[Float[np.ndarray, "_ _"]],
    points: list[Float[np.ndarray, "_ _"]],
    variables: Sequence[Variable],
    coordinates: tuple[Variable, ...],
    is_output: bool,
    is_shared: bool,
    domain: Domain | None,
    levels: int,
) -> Iterator[Column]:
    """The columns of all input channels, or of all output channels."""
    drawn = coordinates[-min(2, len(coordinates)) :]
    everywhere = np.concatenate(points)[:, -len(drawn) :]
    bounds = np.stack([everywhere.min(axis=0), everywhere.max(axis=0)])
    for caption, rows in slices(points, coordinates, levels):
        here = [location[row][:, -len(drawn) :] for location, row in zip(points, rows, strict=True)]
        for channels, variable, vector in quantities(variables, len(coordinates)):
            yield Column(
                name=variable.name.replace("_", " "),
                unit=variable.unit,
                caption=caption,
                coordinates=drawn,
                points=here,
                bounds=bounds,
                values=[
                    each[row][:, channels] if vector else each[row][:, channels[0]]
                    for each, row in zip(values, rows, strict=True)
                ],
                is_output=is_output,
                is_shared=is_shared,
                domain=domain if len(coordinates) <= 2 else None,
                heading="output" if is_output else "input",
                scale=f"{variable.name} {'out' if is_output else 'in'}",
                is_displacement="displacement" in variable.name.lower(),
            )


def slices(
    points: list[Float[np.ndarray, "_ _"]], coordinates: tuple[Variable, ...], count: int
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The caption of every slice, and the indices of the locations of every function that belong to it.

    Functions of one or two coordinates have a single slice with all locations.
    """
    if len(coordinates) < 3:
        yield "", [np.arange(len(each)) for each in points]
        return
    leading = np.concatenate([each[:, 0] for each in points])
    levels = np.unique(leading)
    wanted = levels[np.unique(np.linspace(len(levels) - 1, 0, count).round().astype(int))]
    # If times hardly ever repeat within a function, a slice holds all locations whose time is near its level.
    repeats = all(
        np.array_equal(np.unique(each[:, 0]), levels) and FEWEST * len(levels) <= len(each) for each in points
    )
    near = 0.0 if repeats else float(np.ptp(levels)) / (2 * SLICES)
    for level in wanted:
        sign = "=" if near == 0.0 else "≈"
        name, unit = symbol(coordinates[0].name), typeset(coordinates[0].unit)
        value = f"{level:.3g}".replace("-", "−")
        yield (
            f"{name} {sign} {value} {unit}".rstrip(),
            [np.flatnonzero(np.abs(each[:, 0] - level) <= near) for each in points],
        )


def quantities(variables: Sequence[Variable], dimension: int) -> Iterator[tuple[list[int], Variable, bool]]:
    """(channels, name and unit, whether they form a vector); adjacent components of a vector are merged."""
    i = 0
    while i < len(variables):
        stem = vector_stem(variables[i : i + 2]) if dimension > 1 else None
        if stem is None:
            yield [i], variables[i], False
            i += 1
        else:
            yield [i, i + 1], Variable(stem, variables[i].unit), True
            i += 2


def vector_stem(pair: Sequence[Variable]) -> str | None:
    """`v` for the channels v1 and v2, or v_x and v_y, of the same unit; None if they are not components of a vector.

    u1, u2 and s1, s2 without a unit are the default names of unnamed channels, which are not taken for vectors.
    """
    if len(pair) < 2 or pair[0].unit != pair[1].unit:
        return None
    endings = [re.search(end, variable.name) for variable, end in zip(pair, COMPONENTS, strict=True)]
    if endings[0] is None or endings[1] is None:
        return None
    stem, other = (variable.name[: end.start()] for variable, end in zip(pair, endings, strict=True) if end)
    unnamed = stem in ("u", "s") and not pair[0].unit
    return stem if stem and stem == other and not unnamed else None


def covers_globe(points: Float[np.ndarray, "P 2"]) -> bool:
    """Whether locations in degrees of latitude and longitude span too much of the sphere for a flat map."""
    return bool(np.ptp(points[:, 1]) > 180.0 or np.ptp(points[:, 0]) > 90.0)


def extent(column: Column) -> tuple[float, float]:
    """Width and height of a panel, in the units of its coordinates or of the map projection."""
    if not column.is_geographic:
        return float(np.ptp(column.bounds[:, 0])), float(np.ptp(column.bounds[:, 1]))
    if covers_globe(column.bounds):
        return 2.0, 1.0
    latitude, longitude = column.bounds.T
    return float(np.ptp(longitude) * np.cos(np.radians(latitude.mean()))), float(np.ptp(latitude))
