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
from loca.typing import Measurements, values_of

SLICES = 3
"""Number of values of a leading coordinate, such as time, that are drawn in separate columns."""

FEWEST = 4
"""Smallest number of locations at exactly one time that counts as a slice."""

COMPONENTS = (r"[_ ]?(x?[1₁]|x)$", r"[_ ]?(x?[2₂]|y)$")
"""Endings of the names of the two components of a vector, such as v1, v_x1, v_x or vx for the first."""


@dataclasses.dataclass(frozen=True)
class Column:
    """One quantity of several functions: its locations, its values and its labels.

    `points` and `values` hold one array per function: (P, d) locations, and (P,) values, or (P, 2) for a vector.
    """

    name: str
    unit: str
    caption: str
    axes: tuple[str, ...]
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
    overlay: list[np.ndarray] | None = None
    """Other values of the same quantity, drawn dashed over the curves."""

    @property
    def is_vector(self) -> bool:
        """Whether values are vectors with two components."""
        return self.values[0].ndim == 2

    @property
    def is_geographic(self) -> bool:
        """Whether locations are (latitude, longitude): latitude comes first and points upwards."""
        return self.domain is not None and self.domain.is_geographic

    @property
    def dimension(self) -> int:
        """Number of coordinates of a location."""
        return self.points[0].shape[1]

    @property
    def colors(self) -> list[Float[np.ndarray, " _"]]:
        """Values to map to colors: the values themselves, or the lengths of vectors."""
        return [np.linalg.norm(each, axis=-1) for each in self.values] if self.is_vector else self.values


def columns_of(samples: Samples, rows: int, levels: int = SLICES) -> list[Column]:
    """The columns for the first `rows` functions: input channels, then output channels, slice by slice.

    Functions of three coordinates are drawn at `levels` values of the first one; a single level is the last value.
    """
    if len(samples.parts) > 1:
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
    has_time = d_y == d_x + 1
    sensor_names = (
        ("sensor",) if samples.x is None and not isinstance(samples.u, Measurements) else axis_names("x", d_x)
    )
    query_names = ("$t$", *axis_names("y", d_y - 1)) if has_time else axis_names("y", d_y)
    own_sensors = isinstance(samples.u, Measurements)
    own_queries = not isinstance(samples.y, Shared)
    sensor_domain = samples.domain if d_x == d_y else None
    return [
        *channel_columns(u, x, samples.inputs, sensor_names, False, not own_sensors, sensor_domain, levels),
        *channel_columns(s, y, samples.outputs, query_names, True, not own_queries, samples.domain, levels),
    ]


def axis_names(letter: str, dimension: int) -> tuple[str, ...]:
    """Axis labels: x, or x₁, x₂, … in several dimensions."""
    return (f"${letter}$",) if dimension == 1 else tuple(f"${letter}_{i + 1}$" for i in range(dimension))


def channel_columns(
    values: list[Float[np.ndarray, "_ _"]],
    points: list[Float[np.ndarray, "_ _"]],
    variables: Sequence[Variable],
    axes: tuple[str, ...],
    is_output: bool,
    is_shared: bool,
    domain: Domain | None,
    levels: int,
) -> Iterator[Column]:
    """The columns of all input channels, or of all output channels."""
    everywhere = np.concatenate(points)[:, -min(2, len(axes)) :]
    bounds = np.stack([everywhere.min(axis=0), everywhere.max(axis=0)])
    for caption, rows in slices(points, axes, levels):
        here = [location[row][:, -min(2, location.shape[1]) :] for location, row in zip(points, rows, strict=True)]
        for channels, variable, vector in quantities(variables, len(axes)):
            yield Column(
                name=variable.name.replace("_", " "),
                unit=variable.unit,
                caption=caption,
                axes=axes[-min(2, len(axes)) :],
                points=here,
                bounds=bounds,
                values=[
                    each[row][:, channels] if vector else each[row][:, channels[0]]
                    for each, row in zip(values, rows, strict=True)
                ],
                is_output=is_output,
                is_shared=is_shared,
                domain=domain if len(axes) <= 2 else None,
                heading="output" if is_output else "input",
                scale=f"{variable.name} {'out' if is_output else 'in'}",
                is_displacement="displacement" in variable.name.lower(),
            )


def slices(
    points: list[Float[np.ndarray, "_ _"]], axes: tuple[str, ...], count: int
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """The caption of every slice, and the indices of the locations of every function that belong to it.

    Functions of one or two coordinates have a single slice with all locations.
    """
    if len(axes) < 3:
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
        yield (
            f"${axes[0].strip('$')} {sign} {level:.3g}$",
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


def extent(domain: Domain | None, points: Float[np.ndarray, "P 2"]) -> tuple[float, float]:
    """Width and height of a panel, in the units of its coordinates or of the map projection."""
    if domain is None or not domain.is_geographic:
        return float(np.ptp(points[:, 0])), float(np.ptp(points[:, 1]))
    if covers_globe(points):
        return 2.0, 1.0
    latitude, longitude = points.T
    return float(np.ptp(longitude) * np.cos(np.radians(latitude.mean()))), float(np.ptp(latitude))
