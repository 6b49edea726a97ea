"""What a sheet shows: the columns of its panels, read off the data."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Samples, Shared, Variable
from loca.domains import Domain
from loca.typing import Measurements

SLICES = 3
"""Values of a leading coordinate, such as time, that get a column of their own."""

FEWEST = 4
"""Locations that make a slice of their own."""

COMPONENTS = (r"[_ ]?(x?[1₁]|x)$", r"[_ ]?(x?[2₂]|y)$")
"""How the names of the two components of a vector may end: v1, v_x1, v_x, vx; and the same for the other one."""


@dataclasses.dataclass(frozen=True)
class Column:
    """One quantity of some functions: where it is known, its values, and what to write beside them.

    `points` and `values` hold one array per function: (P, d) locations, and (P,) values, or (P, 2) for a vector.
    """

    name: str
    unit: str
    caption: str
    axes: tuple[str, ...]
    points: list[Float[np.ndarray, "_ _"]]
    bounds: Float[np.ndarray, "2 _"]  # the smallest and the largest coordinates of all functions, at all times
    values: list[np.ndarray]
    is_output: bool
    is_shared: bool
    domain: Domain | None
    heading: str
    """What to write over the first of several columns with the same."""

    scale: str
    """Columns that say the same share their colors."""

    is_displacement: bool = False
    is_error: bool = False
    is_prediction: bool = False
    overlay: list[np.ndarray] | None = None
    """Other values of the same quantity, drawn into the same curves with dashes."""

    @property
    def is_vector(self) -> bool:
        """Whether every value has two components."""
        return self.values[0].ndim == 2

    @property
    def is_geographic(self) -> bool:
        """Whether locations are (latitude, longitude): latitude comes first and points upwards."""
        return self.domain is not None and self.domain.is_geographic

    @property
    def dimension(self) -> int:
        """Coordinates of a location."""
        return self.points[0].shape[1]

    @property
    def colors(self) -> list[Float[np.ndarray, " _"]]:
        """What colors show: the values, or the sizes of vectors."""
        return [np.linalg.norm(each, axis=-1) for each in self.values] if self.is_vector else self.values


def columns_of(samples: Samples, rows: int, levels: int = SLICES) -> list[Column]:
    """All columns for the first functions: input channels, then output channels, slice by slice.

    With one more coordinate than can be shown, there are so many `levels` of it; if only one, it is the last.
    """
    count = min(rows, len(samples))
    if isinstance(samples.u, Measurements):
        keep = np.asarray(samples.u.mask[:count])
        x = [np.asarray(each)[kept] for each, kept in zip(samples.u.x[:count], keep, strict=True)]
        u = [np.asarray(each)[kept] for each, kept in zip(samples.u.u[:count], keep, strict=True)]
    else:
        u = list(np.asarray(samples.u[:count]))
        m = samples.u.shape[1]
        x = [np.asarray(samples.x) if samples.x is not None else np.arange(float(m))[:, None]] * count
    y = list(np.asarray(samples.y.take(jnp.arange(count)).locations(count)))
    s = list(np.asarray(samples.s[:count]))
    d_x, d_y = x[0].shape[1], y[0].shape[1]
    if not (d_x <= 3 and d_y <= 3):
        raise ValueError(
            f"a sheet shows functions of one to three coordinates, but the sensors have {d_x} and the queries {d_y}; "
            "fix the other coordinates first and show that part of the data"
        )
    has_time = d_y == d_x + 1
    sensor_names = ("sensor",) if samples.x is None and not isinstance(samples.u, Measurements) else names("x", d_x)
    query_names = ("$t$", *names("y", d_y - 1)) if has_time else names("y", d_y)
    own_sensors = isinstance(samples.u, Measurements)
    own_queries = not isinstance(samples.y, Shared)
    sensor_domain = samples.domain if d_x == d_y else None
    return [
        *side(u, x, samples.inputs, sensor_names, False, not own_sensors, sensor_domain, levels),
        *side(s, y, samples.outputs, query_names, True, not own_queries, samples.domain, levels),
    ]


def names(letter: str, dimension: int) -> tuple[str, ...]:
    """x, or x₁, x₂, …"""
    return (f"${letter}$",) if dimension == 1 else tuple(f"${letter}_{i + 1}$" for i in range(dimension))


def side(
    values: list[Float[np.ndarray, "_ _"]],
    points: list[Float[np.ndarray, "_ _"]],
    variables: Sequence[Variable],
    axes: tuple[str, ...],
    is_output: bool,
    is_shared: bool,
    domain: Domain | None,
    levels: int,
) -> Iterator[Column]:
    """The columns of all inputs, or of all outputs."""
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
    """What to write, and which locations of every function belong to it: all, or those near one leading coordinate."""
    if len(axes) < 3:
        yield "", [np.arange(len(each)) for each in points]
        return
    leading = np.concatenate([each[:, 0] for each in points])
    levels = np.unique(leading)
    wanted = levels[np.unique(np.linspace(len(levels) - 1, 0, count).round().astype(int))]
    # Where leading coordinates hardly ever repeat within a function, a slice is all that lies near one.
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
    """(channels, name and unit, whether they are one vector): neighbors that are components of one go together."""
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
    """`v` for v1 and v2, or v_x and v_y, of one unit; None when two channels are not the components of a vector.

    u1, u2 and s1, s2 without a unit are the names of channels that nobody named, and say nothing.
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
    """Whether locations in degrees of latitude and longitude reach so far that a flat map would mislead."""
    return bool(np.ptp(points[:, 1]) > 180.0 or np.ptp(points[:, 0]) > 90.0)


def extent(domain: Domain | None, points: Float[np.ndarray, "P 2"]) -> tuple[float, float]:
    """Width and height of a panel: in the units of its coordinates, or of a map."""
    if domain is None or not domain.is_geographic:
        return float(np.ptp(points[:, 0])), float(np.ptp(points[:, 1]))
    if covers_globe(points):
        return 2.0, 1.0
    latitude, longitude = points.T
    return float(np.ptp(longitude) * np.cos(np.radians(latitude.mean()))), float(np.ptp(latitude))
