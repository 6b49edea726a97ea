"""Symmetries of a domain and of the values on it, their names, and the groups that they generate."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from loca.data import Samples, grid_axes
from loca.models import Signature, canonical_name, matching_order
from loca.parameters import Fixed
from loca.typing import Input, Measurements, MultiInput, values_of

SAME = 1e-4
"""Locations closer than this fraction of an extent are the same."""

ROUND_OFF = 1e-9
"""A shift by less than this fraction of an extent is none."""

MISSING = 0.3
"""The share of sensors whose image may lie one row outside of a grid, at most."""

LARGEST = 16
"""Elements of a group, at most: data grows by this factor."""

Turn = tuple[int, ...]
"""A signed permutation of channels: channel c of the result is channel |pᶜ| − 1, times the sign of pᶜ."""


def turned(values: Array, turn: Turn) -> Array:
    """The values with their channels, on the last axis, permuted and multiplied by signs."""
    if turn == tuple(range(1, len(turn) + 1)):
        return values
    return values[..., np.abs(turn) - 1] * jnp.asarray(np.sign(turn), values.dtype)


def after(second: Turn, first: Turn) -> Turn:
    """Both signed permutations, one after the other."""
    return tuple(int(np.sign(p)) * first[abs(p) - 1] for p in second)


def inverse(turn: Turn) -> Turn:
    """The signed permutation that undoes another."""
    return tuple(int(np.sign(turn[c]) * (c + 1)) for c in np.argsort(np.abs(turn)))


class Symmetry(Fixed):
    """A map g with F(g u)(g y) = g(F(u)(y)), where g y = A y + b and (g u)(x) = ρ(u(g⁻¹ x)).

    It is made from a name by `symmetry`. A is a permutation of coordinates with signs, ρ one of channels.

    **Arguments:**

    - `name`: such as "reflect x1".
    - `matrix`, `shift`: A and b.
    - `inputs`, `outputs`: ρ of each field, and of the scalars beside them, and ρ of the outputs.
    - `periods`, `region`: of each coordinate, its period and the range of the locations of the data.
    - `columns`: for each field, which coordinate of y each coordinate of its sensors is; −1 for none.
    - `sensors`: for each field, the number of the sensor at g⁻¹ x for each sensor x; None if values stay.
    """

    name: str = eqx.field(static=True)
    matrix: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    shift: tuple[float, ...] = eqx.field(static=True)
    inputs: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    outputs: tuple[int, ...] = eqx.field(static=True)
    periods: tuple[float | None, ...] = eqx.field(static=True)
    region: tuple[tuple[float, float], ...] = eqx.field(static=True)
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    sensors: tuple[Int[Array, " m"] | None, ...]

    def locations(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        """g y; periodic coordinates are brought into the range of the data and one period above."""
        if not self.moves:
            return y
        z = y @ jnp.asarray(self.matrix, y.dtype).T + jnp.asarray(self.shift, y.dtype)
        for i, period in enumerate(self.periods):
            if period is not None:
                z = z.at[..., i].set(self.region[i][0] + jnp.mod(z[..., i] - self.region[i][0], period))
        return z

    def counts(self, y: Float[Array, "*P d_y"], image: Float[Array, "*P d_y"]) -> Bool[Array, "*P"]:
        """Whether the image of a query is no further outside the range of the data than the query."""
        low, high = (jnp.asarray(each, y.dtype) for each in zip(*self.region, strict=True))
        bounded, extent = jnp.asarray([each is None for each in self.periods]), jnp.where(high > low, high - low, 1.0)

        def beyond(z: Array) -> Array:
            return jnp.max(jnp.where(bounded, jnp.maximum(low - z, z - high) / extent, 0.0), axis=-1)

        return beyond(image) <= jnp.maximum(beyond(y), 0.0) + SAME

    def input(self, u: Input) -> Input:
        """g u, for one input function or many."""
        if not isinstance(u, MultiInput):
            return self._field(u, 0)
        fields = tuple(self._field(field, i) for i, field in enumerate(u.fields))
        return MultiInput(fields, None if u.scalars is None else turned(u.scalars, self.inputs[-1]))

    def output(self, s: Float[Array, "*N d_s"]) -> Float[Array, "*N d_s"]:
        """ρ(s): values, without their locations."""
        return turned(s, self.outputs)

    def undo_output(self, s: Float[Array, "*N d_s"]) -> Float[Array, "*N d_s"]:
        """ρ⁻¹(s)."""
        return turned(s, inverse(self.outputs))

    @property
    def moves(self) -> bool:
        """Whether any location changes."""
        return any(self.shift) or bool(np.any(np.asarray(self.matrix) != np.eye(len(self.shift))))

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes."""
        turns = (*self.inputs, self.outputs)
        return not self.moves and all(turn == tuple(range(1, len(turn) + 1)) for turn in turns)

    @property
    def key(self) -> tuple[object, ...]:
        """What determines the symmetry, up to round-off."""
        shift = []
        for b, period, (low, high) in zip(self.shift, self.periods, self.region, strict=True):
            part = round(b / (period or (high - low) or 1.0), 4)
            shift.append(part if period is None else part % 1.0)
        return self.matrix, tuple(shift), self.inputs, self.outputs

    def _field(self, field: Array | Measurements, i: int) -> Array | Measurements:
        if not isinstance(field, Measurements):
            moved = field if self.sensors[i] is None else field[..., self.sensors[i], :]
            return turned(moved, self.inputs[i])
        columns = np.asarray(self.columns[i])
        full = jnp.zeros((*field.x.shape[:-1], len(self.shift)), field.x.dtype)
        full = self.locations(full.at[..., columns[columns >= 0]].set(field.x[..., columns >= 0]))
        x = jnp.where(jnp.asarray(columns >= 0), full[..., columns], field.x)
        return Measurements(turned(field.u, self.inputs[i]), x, field.mask)


# ---- what an operator knows ------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """What symmetries are made from: the domain, sensors and channels of data."""

    known: Signature
    counts: tuple[int, ...]  # of the sensors of each field
    names: tuple[str, ...]  # of the coordinates
    bounds: tuple[tuple[float, float], ...]  # of the domain
    region: tuple[tuple[float, float], ...]  # the range of the queries
    columns: tuple[tuple[int, ...], ...]  # which coordinate of y each coordinate of the sensors of a field is

    @classmethod
    def of(cls, data: Samples) -> Frame:
        """The frame of some data."""
        known, counts = Signature.of(data), tuple(values_of(field)[0].shape[1] for field, _ in data.fields)
        bounds = tuple((float(low), float(high)) for low, high in known.domain.bounds)
        y = None if known.y is None else np.asarray(known.y, np.float64)
        region = bounds if y is None else tuple(zip(y.min(axis=0).tolist(), y.max(axis=0).tolist(), strict=True))
        names = tuple(canonical_name(variable.name) for variable in known.query_coordinates)
        columns = tuple(_columns(known, i, names, region) for i in range(len(known.fields)))
        return cls(known, counts, names, bounds, region, columns)

    @property
    def periods(self) -> tuple[float | None, ...]:
        """Of each coordinate."""
        return tuple(self.known.domain.periods)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of channels of each field, and of scalars."""
        fields = [field.channels for field in self.known.fields]
        scalars = len(self.known.input_names) - sum(fields)
        return (*fields, scalars) if scalars else tuple(fields)

    def spacing(self, axis: int) -> float | None:
        """Of the queries along a coordinate; None if they form no grid."""
        axes = None if self.known.y is None else grid_axes(np.asarray(self.known.y))
        if axes is None or len(axes[axis]) < 2:
            return None
        return (self.region[axis][1] - self.region[axis][0]) / (len(axes[axis]) - 1)


def _columns(known: Signature, i: int, names: Sequence[str], region: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Which coordinate of y each coordinate of the sensors of a field is: by name, by number, or by range."""
    field = known.fields[i]
    if field.x is None and not (field.has_own_sensors and field.coordinate_names):
        return tuple(range(len(names))) if field.has_own_sensors else ()
    if field.coordinate_names and known.query_coordinate_names:
        own = [canonical_name(name) for name in field.coordinate_names]
        return tuple(names.index(name) if name in names else -1 for name in own)
    if field.x is None or field.x.shape[1] == len(names):
        return tuple(range(len(names)))
    x, found = np.asarray(field.x, np.float64), list[int]()
    for low, high in zip(x.min(axis=0), x.max(axis=0), strict=True):
        same = [c for c, each in enumerate(region) if np.allclose(each, (low, high)) and c not in found]
        found.append(same[0] if len(same) == 1 else -1)
    return tuple(found)


def build(
    frame: Frame, name: str, A: Int[np.ndarray, "d d"], b: Float[np.ndarray, " d"], inputs: Sequence[Turn],
    outputs: Turn,
) -> Symmetry:  # fmt: skip
    """The symmetry with its sensors; raise `ValueError` if these are not closed under it."""
    b, extents = np.array(b, float), [high - low for low, high in frame.bounds]
    for i, period in enumerate(frame.periods):
        if period is not None:
            b[i] = np.mod(b[i] + SAME * period, period) - SAME * period
    b = np.where(np.abs(b) < ROUND_OFF * np.asarray(extents), 0.0, b)
    sensors = tuple(_sensors(A, b, frame, i) for i in range(len(frame.known.fields)))
    matrix, shift = tuple(tuple(map(int, row)) for row in A), tuple(map(float, b))
    return Symmetry(
        name, matrix, shift, tuple(inputs), outputs, frame.periods, frame.region, frame.columns, sensors
    )  # fmt: skip


def _sensors(A: Int[np.ndarray, "d d"], b: Float[np.ndarray, " d"], frame: Frame, i: int) -> Int[Array, " m"] | None:
    """The number of the sensor at g⁻¹ x for each sensor x of a field."""
    field, columns = frame.known.fields[i], np.asarray(frame.columns[i], int)
    moved = np.flatnonzero(np.any(A != np.eye(len(b)), axis=1) | (b != 0.0))
    here = np.isin(moved, columns)
    coupled = any(np.isin(np.flatnonzero(A[i]), columns).all() != (i in columns) for i in moved)
    if not len(moved) or frame.counts[i] == 1 or (field.x is not None and not here.any()):
        return None
    if coupled:
        raise ValueError("it exchanges coordinates of which the sensors have one only")
    if field.has_own_sensors:
        return None
    if field.x is None:
        raise ValueError("the sensors have no known locations; pass them as x")
    x = np.asarray(field.x, np.float64)
    full = np.zeros((len(x), len(b)))
    full[:, columns[columns >= 0]] = x[:, columns >= 0]
    z = np.where(columns >= 0, ((full - b) @ A)[:, columns], x)
    found, outside = preimages(x, z, [frame.periods[c] if c >= 0 else None for c in columns])
    if found is None or outside.mean() > MISSING:
        raise ValueError("the sensors are not closed under it")
    return jnp.asarray(found, jnp.int32)


def preimages(
    x: Float[np.ndarray, "m d"], z: Float[np.ndarray, "m_ d"], periods: Sequence[float | None]
) -> tuple[Int[np.ndarray, " m_"] | None, Bool[np.ndarray, " m_"]]:
    """The number of the location x at each z, and where z lies outside, such as one row beyond a half-open grid.

    There it is that of the nearest location; None if some z inside are at no location.
    """
    from scipy.spatial import KDTree

    if x.shape == z.shape and (order := matching_order(x, z, periods)) is not None:
        return order, np.zeros(len(z), bool)
    low, high = x.min(axis=0), x.max(axis=0)
    extent = np.where(high > low, high - low, 1.0)
    z = z.copy()
    for i, period in enumerate(periods):
        if period is not None:
            z[:, i] = low[i] - SAME * period + np.mod(z[:, i] - low[i] + SAME * period, period)
    clipped = np.clip(z, low, high)
    distance, order = KDTree(x / extent).query(clipped / extent)
    outside = np.any(np.abs(z - clipped) > SAME * extent, axis=1)
    return (np.asarray(order) if np.all(distance <= SAME) else None), outside


# ---- groups ----------------------------------------------------------------------------------------------------------


def group(symmetries: Sequence[Symmetry], frame: Frame) -> tuple[Symmetry, ...]:
    """All products of some symmetries, the identity first; raise `ValueError` if there are more than 16."""
    d, sizes = len(frame.names), frame.sizes
    plain = [tuple(range(1, size + 1)) for size in (*sizes, len(frame.known.output_names))]
    found = [build(frame, "identity", np.eye(d, dtype=int), np.zeros(d), plain[:-1], plain[-1])]
    keys = {found[0].key}
    for element in found:  # which grows
        for g in symmetries:
            A, b = np.asarray(g.matrix), np.asarray(g.shift)
            name = g.name if element.is_identity else f"{element.name}; {g.name}"
            inputs = [after(second, first) for second, first in zip(g.inputs, element.inputs, strict=True)]
            new = build(
                frame, name, A @ np.asarray(element.matrix), A @ np.asarray(element.shift) + b, inputs,
                after(g.outputs, element.outputs),
            )  # fmt: skip
            if new.key not in keys:
                found.append(new)
                keys.add(new.key)
            if len(found) > LARGEST:
                names = ", ".join(f"{each.name!r}" for each in symmetries)
                raise ValueError(f"the symmetries {names} have more than {LARGEST} products; name fewer of them")
    return tuple(found)


# ---- names -----------------------------------------------------------------------------------------------------------

CHANGE = r"(?:(input|output)\s+)?(?:-(\S+)|\(([^)]*)\))"
"""The change of a channel, or of the components of a vector."""

KINDS = "reflect NAME, reflect NAME at VALUE, transpose NAME NAME, rotate NAME NAME, shift NAME, odd, even, scale"


def symmetry(name: str, frame: Frame) -> Symmetry:
    """The symmetry with a name.

    - "reflect x": about the middle of the domain; "reflect x at 0.5" about another place.
    - "transpose x y" and "rotate x y": exchange two coordinates, and turn by a quarter around the middle.
    - "shift x": by a quarter of the period, or by half of it if the sensors are not closed under that.
    - "odd" and "even": F(−u) = −F(u) and F(−u) = F(u).

    A colon is followed by channels that change, too: "-vorticity" changes its sign, "(u v)" are the components of a
    vector. If both sides have channels of a name, it stands for both unless it follows "input" or "output", such as in
    "reflect x: (u v) output -pressure".
    """
    move, _, changes = (part.strip() for part in name.partition(":"))
    kind, *words = move.split()
    d = len(frame.names)
    A, b = np.eye(d, dtype=int), np.zeros(d)
    match kind, words:
        case "reflect", [axis, *at] if not at or (len(at) == 2 and at[0] == "at"):
            i = _axis(axis, frame, name)
            A[i, i], b[i] = -1, 2.0 * float(at[1]) if at else sum(frame.bounds[i])
        case (("transpose" | "rotate"), [one, other]):
            i, j = _axis(one, frame, name), _axis(other, frame, name)
            middle = [0.5 * sum(each) for each in frame.bounds]
            extent = [high - low for low, high in frame.bounds]
            if i == j or not np.isclose(extent[i], extent[j], rtol=SAME):
                raise ValueError(
                    f"{name!r} needs two coordinates of the same extent, got {extent[i]:g} and {extent[j]:g}"
                )
            A[[i, j]] = A[[j, i]]
            A[i] *= 1 if kind == "transpose" else -1
            b[[i, j]] = np.asarray(middle)[[i, j]] - (A @ np.asarray(middle))[[i, j]]
        case "shift", [axis]:
            return _shifted(name, _axis(axis, frame, name), changes, frame)
        case (("odd" | "even"), []) if not changes:
            inputs = [tuple(-c for c in range(1, field.channels + 1)) for field in frame.known.fields]
            inputs += [tuple(range(1, size + 1)) for size in frame.sizes[len(inputs) :]]
            sign, outputs = 1 if kind == "even" else -1, range(1, len(frame.known.output_names) + 1)
            return build(frame, name, A, b, inputs, tuple(sign * c for c in outputs))
        case _:
            raise ValueError(f"expected a symmetry such as {KINDS}, got {name!r}")
    return build(frame, name, A, b, *turns(changes, A, frame))


def _shifted(name: str, axis: int, changes: str, frame: Frame) -> Symmetry:
    period = frame.periods[axis]
    if period is None:
        raise ValueError(
            f"{name!r}: {frame.names[axis]} is not periodic; pass data with a periodic domain, such as Torus"
        )
    A = np.eye(len(frame.names), dtype=int)
    for parts in (4, 2):
        try:
            return build(frame, name, A, period / parts * A[axis], *turns(changes, A, frame))
        except ValueError:
            if parts == 2:
                raise
    raise AssertionError


def _axis(name: str, frame: Frame, whole: str) -> int:
    known = canonical_name(name)
    if known in frame.names:
        return frame.names.index(known)
    if known in ("x", "y", "z") and "xyz".index(known) < len(frame.names):
        return "xyz".index(known)
    raise ValueError(f"{whole!r} names the coordinate {name!r}; the coordinates are {', '.join(frame.names)}")


def turns(changes: str, matrix: Int[np.ndarray, "d d"], frame: Frame) -> tuple[list[Turn], Turn]:
    """What becomes of the channels of inputs and outputs under a map of locations; see `symmetry` for the text."""
    sides = {"input": list(frame.known.input_names), "output": list(frame.known.output_names)}
    found = {side: list(range(1, len(names) + 1)) for side, names in sides.items()}
    axes = [i for i, name in enumerate(frame.names) if name not in ("t", "time")]
    if re.sub(CHANGE, "", changes).strip():
        raise ValueError(f"expected changes of channels such as '-vorticity' or '(u v)', got {changes!r}")
    for side, flipped, vector in re.findall(CHANGE, changes):
        change = f"-{flipped}" if flipped else f"({vector})"
        names = [flipped] if flipped else vector.split()
        here = [each for each in ([side] if side else sides) if set(names) <= set(sides[each])]
        if not here or len(names) > len(axes):
            known = "; ".join(f"{each}s {', '.join(channels)}" for each, channels in sides.items())
            raise ValueError(f"{change!r} names channels that do not exist, or too many of them: there are {known}")
        for each in here:
            places = [sides[each].index(name) for name in names]
            if flipped:
                found[each][places[0]] *= -1
                continue
            for place, i in zip(places, axes, strict=False):
                (j,) = np.flatnonzero(matrix[i])
                if j not in axes[: len(places)]:
                    raise ValueError(f"{change!r} has too few components for this map")
                found[each][place] = int(matrix[i, j]) * (places[axes.index(int(j))] + 1)
    ends = np.cumsum([0, *frame.sizes])
    inputs = [tuple(found["input"][start:end]) for start, end in itertools.pairwise(ends)]
    own = [
        tuple(int(np.sign(p)) * (abs(p) - int(start)) for p in part) for part, start in zip(inputs, ends, strict=False)
    ]
    if any(not 1 <= abs(p) <= len(part) for part in own for p in part):
        raise ValueError("the components of a vector must be channels of one field")
    return own, tuple(found["output"])
