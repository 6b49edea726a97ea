"""Pairs of input and output functions in memory, and the order in which training visits them."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, UInt32

from loca.data.queries import Queries, as_input, as_numbers, as_queries, check_locations, random_columns, take_rows
from loca.domains import Box, Domain
from loca.typing import (
    Field,
    Input,
    Key,
    Keys,
    Measurements,
    MultiInput,
    Numbers,
    SensorLocations,
    values_of,
    with_values,
)

ROUNDS = 6
"""Rounds of the Feistel network in `_shuffle`. Four make a pseudorandom permutation (Luby & Rackoff 1988); two more are
a margin."""


class Variable(NamedTuple):
    """The name and unit of one channel of values."""

    name: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def attributes(self) -> dict[str, str]:
        """The unit as metadata of a variable in a file; empty if it has none."""
        return {"units": self.unit} if self.unit else {}


VariableNames = str | Sequence[str | tuple[str, ...]]
"""One name or several; each may be a pair of a name and a unit, such as a `Variable`."""


def coordinates_of(domain: Domain) -> tuple[Variable, ...]:
    """Names and units of the coordinates of a domain."""
    return tuple(map(Variable, domain.coordinate_names, domain.coordinate_units))


def as_variables(given: VariableNames) -> tuple[Variable, ...]:
    """Variables, from a name, several names, or pairs of a name and a unit."""
    names = [given] if isinstance(given, str) else given
    return tuple(Variable(each) if isinstance(each, str) else Variable(*each) for each in names)


class Samples(eqx.Module):
    """N pairs (u, s): input functions at their sensors, output functions at their queries.

    **Arguments:**

    - `u`: values at the sensors `x`, shape (N, m, d_u); `Measurements`, if every function has its own sensors; or
      `MultiInput`, if there are fields on different sensors, or numbers beside fields.
    - `y`: query locations: an array (P, d_y) shared by all functions, an array (N, P, d_y), or any `Queries`.
    - `s`: values at the queries, shape (N, P, d_s).
    - `x`: sensor locations, shape (m, d_x); None with `Measurements`, which carry their own; with `MultiInput` a tuple
      with the locations of each field.

    Arrays may be lists or have any precision. The last axis may be missing for one channel or one coordinate: u of
    shape (N, m), s of shape (N, P), y of shape (P,).

    - `domain`: Y; by default the smallest box that contains all queries.
    - `inputs`, `outputs`: names of the channels, or names and units as `Variable`.
    - `sensor_coordinates`, `query_coordinates`: names and units of the columns of x and y; empty if unknown.

    Arrays of other libraries, such as PyTorch and CuPy, are shared by DLPack and not copied, where JAX has their
    precision and layout.
    """

    u: Input
    y: Queries
    s: Float[Array, "N P d_s"]
    x: SensorLocations
    domain: Domain
    inputs: tuple[Variable, ...] = eqx.field(static=True)
    outputs: tuple[Variable, ...] = eqx.field(static=True)
    sensor_coordinates: tuple[Variable, ...] = eqx.field(static=True)
    query_coordinates: tuple[Variable, ...] = eqx.field(static=True)

    def __init__(
        self,
        u: Numbers | Measurements | MultiInput,
        y: Queries | Numbers,
        s: Numbers,
        *,
        x: Numbers | Sequence[Numbers | None] | None = None,
        domain: Domain | None = None,
        inputs: VariableNames | None = None,
        outputs: VariableNames | None = None,
        sensor_coordinates: VariableNames = (),
        query_coordinates: VariableNames = (),
    ):
        self.u = as_input(u, many=True)
        self.y = as_queries(y)
        self.s = s = as_numbers(s, "s", "(N, P, d_s)", "(N, P)")
        self.x = _as_sensors(self.u, x)
        if domain is None:
            low, high = np.min(self.y.points, axis=0), np.max(self.y.points, axis=0)
            domain = Box(low.tolist(), high.tolist())
        self.domain = domain
        channels = sum(values.shape[-1] for values in values_of(self.u))
        self.inputs = as_variables(inputs or [f"u{i + 1}" for i in range(channels)])
        self.outputs = as_variables(outputs or [f"s{i + 1}" for i in range(s.shape[-1])])
        self.sensor_coordinates = as_variables(sensor_coordinates)
        self.query_coordinates = as_variables(query_coordinates)
        self._check(channels)

    def _check(self, channels: int) -> None:
        P = self.y.count
        for values in values_of(self.u):
            if values.shape[0] != self.s.shape[0]:
                raise ValueError(f"u holds {len(values)} functions but s holds {len(self)}; pass one output per input")
        if self.s.shape[1] != P:
            raise ValueError(
                f"s has {self.s.shape[1]} values per function but y has {P} locations; pass one value per location"
                f"{_flattening(self.s, P, 's')}"
            )
        for field, x in self.fields:
            (values,) = values_of(field)
            if x is not None and x.shape[0] != values.shape[1]:
                raise ValueError(
                    f"x has {x.shape[0]} sensors but u has {values.shape[1]} values per function; pass one value "
                    f"per sensor{_flattening(values, x.shape[0], 'u')}"
                )
        if len(self.inputs) != channels or len(self.outputs) != self.s.shape[-1]:
            raise ValueError(
                f"{len(self.inputs)} input and {len(self.outputs)} output names were given for "
                f"{channels} input and {self.s.shape[-1]} output channels; pass one name per channel"
            )
        self.domain.check(self.y.points)
        for name, columns, coordinates in (
            ("x", sum(self._columns), self.sensor_coordinates),
            ("y", self.domain.dimension, self.query_coordinates),
        ):
            if coordinates and len(coordinates) != columns:
                raise ValueError(f"{len(coordinates)} coordinates were named for the {columns} columns of {name}")

    def __len__(self) -> int:
        return self.s.shape[0]

    @property
    def input_size(self) -> int:
        """d_u."""
        return len(self.inputs)

    @property
    def output_size(self) -> int:
        """d_s."""
        return len(self.outputs)

    @property
    def fields(self) -> tuple[tuple[Field, Float[Array, "_ _"] | None], ...]:
        """The fields of u and their sensors; u alone if it is a single field."""
        if isinstance(self.u, MultiInput):
            assert isinstance(self.x, tuple)
            return tuple(zip(self.u.fields, self.x, strict=True))
        assert not isinstance(self.x, tuple)
        return ((self.u, self.x),)

    @property
    def parts(self) -> tuple["Samples", ...]:
        """The same pairs with one kind of input each: every field of a `MultiInput`, then the scalars at one sensor."""
        if not isinstance(self.u, MultiInput):
            return (self,)
        scalars = [] if self.u.scalars is None else [(self.u.scalars[:, None], None)]
        names, coordinates, parts = iter(self.inputs), iter(self.sensor_coordinates), []
        for (u, x), columns in zip((*self.fields, *scalars), (*self._columns, 0), strict=False):
            own = list(itertools.islice(names, values_of(u)[0].shape[-1]))
            placed = list(itertools.islice(coordinates, columns))
            parts.append(dataclasses.replace(self, u=u, x=x, inputs=own, sensor_coordinates=placed))
        return tuple(parts)

    @property
    def _columns(self) -> tuple[int, ...]:
        """d_x of each field; 0 if its sensors are unknown."""
        places = (field.x if isinstance(field, Measurements) else x for field, x in self.fields)
        return tuple(0 if x is None else x.shape[-1] for x in places)

    def take(self, rows: Int[Array, " B"]) -> "Samples":
        """The functions with these numbers, in the order given."""
        if not isinstance(rows, Tracer):
            rows = jnp.asarray(np.arange(len(self))[rows])  # JAX would take the last function for a number too large
        u, s = take_rows((self.u, self.s), rows)
        return dataclasses.replace(self, u=u, y=self.y.take(rows), s=s)

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> "Samples":
        """The batch of one training step: a pure function of (seed, step) that visits every function once per epoch."""
        return self.take(batch_rows(seed, step, size, len(self)))

    def observe(self, key: Key | Keys, count: int) -> "Samples":
        """Keep `count` (P) randomly drawn labels of every function, without replacement.

        Pass one key, or one key per function.
        """
        total = self.y.count
        if not 0 < count <= total:
            raise ValueError(f"cannot keep {count} labels per function: there are {total}; pass 1 to {total}")
        columns = random_columns(key if key.ndim else jax.random.split(key, len(self)), total, count)
        s = jnp.take_along_axis(self.s, columns[:, :, None], axis=1)
        return dataclasses.replace(self, y=self.y.choose(columns), s=s)

    def corrupt(self, key: Key, noise_std: float) -> "Samples":
        """Add Gaussian noise to every input value; its standard deviation `noise_std` has the units of u."""
        values = values_of(self.u)
        keys = [key] if len(values) == 1 else jax.random.split(key, len(values))
        noisy = [u + noise_std * jax.random.normal(k, u.shape, u.dtype) for k, u in zip(keys, values, strict=True)]
        return dataclasses.replace(self, u=with_values(self.u, noisy))

    def split(self, key: Key, *counts: int) -> tuple["Samples", ...]:
        """Disjoint random subsets with the given numbers of functions."""
        if sum(counts) > len(self) or min(counts) < 1:
            raise ValueError(f"cannot split {len(self)} functions into parts of {counts}; pass positive counts")
        order = jax.random.permutation(key, len(self))
        return tuple(self.take(order[end - n : end]) for end, n in zip(np.cumsum(counts), counts, strict=True))


def _as_sensors(u: Input, x: Any) -> SensorLocations:
    """Locations of sensors as arrays: one, or for a `MultiInput` one for each field."""
    if not isinstance(u, MultiInput):
        return None if x is None else check_locations(as_numbers(x, "x", "(m, d_x)", "(m,)"), "x")
    places = [None] * len(u.fields) if x is None else list(x) if isinstance(x, tuple | list) else [x]
    if len(places) != len(u.fields):
        raise ValueError(f"x has sensors of {len(places)} fields but u has {len(u.fields)}; pass one array per field")
    return tuple(_as_sensors(field, each) for field, each in zip(u.fields, places, strict=True))  # pyright: ignore[reportReturnType]


def _flattening(values: Float[Array, "N m d"], count: int, name: str) -> str:
    """Advice for fields on a two-dimensional grid that were passed as they are: N images of one channel."""
    N, *shape = values.shape
    return f". Fields on a grid are flattened: {name}.reshape({N}, {count})" if np.prod(shape) == count else ""


def batch_rows(seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int, count: int) -> Int[Array, " size"]:
    """The numbers of the functions, out of `count`, that make up the batch of a step.

    Steps read an endless sequence, step i its positions i·size … i·size + size − 1. The sequence consists of epochs of
    `count` positions; each epoch contains every function exactly once, in an order of its own. Nothing is stored or
    sorted: a batch out of 10⁶ functions costs as much as one out of 10³, and resuming at a step needs only its number.
    """
    if count * size >= 2**32:
        raise ValueError(f"{count} functions in batches of {size} need positions beyond 32 bits; use smaller batches")
    # step·size could overflow, so the epoch and the position in it are computed without it
    step = jnp.asarray(step, jnp.uint32)
    whole, part = step // count, step % count
    offset = part * size + jnp.arange(size, dtype=jnp.uint32)
    epoch = whole * size + offset // count
    return _shuffle(offset % count, epoch, jnp.asarray(seed).astype(jnp.uint32), count).astype(jnp.int32)


@functools.partial(jax.jit, static_argnames="count")
def _shuffle(
    place: UInt32[Array, " B"], epoch: UInt32[Array, " B"], seed: UInt32[Array, ""], count: int
) -> UInt32[Array, " B"]:
    """The functions at these positions of an epoch: a permutation of 0 … count − 1, evaluated elementwise.

    A Feistel network permutes 0 … 4ᵏ − 1 for the smallest 4ᵏ ≥ `count`. Following a cycle of this permutation until a
    value falls below `count` restricts it to a permutation of 0 … count − 1 (Black & Rogaway 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = jnp.uint32((1 << half) - 1)
    key = _mix(epoch ^ _mix(seed))

    def permute(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        left, right = value >> half, value & mask
        for i in range(ROUNDS):
            left, right = right, left ^ (_mix(right ^ _mix(key + jnp.uint32(i))) & mask)
        return (left << half) | right

    def walk(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        return jnp.where(value < count, value, permute(value))

    return jax.lax.while_loop(lambda value: jnp.any(value >= count), walk, permute(place))


def _mix(h: UInt32[Array, "*B"]) -> UInt32[Array, "*B"]:
    """A bijective 32-bit hash: multiplications and shifts with constants of low measured bias (Wellons 2018)."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * jnp.uint32(0x846CA68B)
    return h ^ (h >> 16)
