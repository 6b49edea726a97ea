"""Pairs of input and output functions in memory, and the order in which training visits them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from loca.data.dlpack import shared_array
from loca.data.queries import Free, Queries, Shared, random_columns
from loca.domains import Box, Domain
from loca.typing import Input, Key, Keys, Measurements, SupportsDLPack

ROUNDS = 6
"""Rounds of the Feistel network in `shuffle`. Four make a pseudorandom permutation (Luby & Rackoff 1988); two more are
a margin."""


class Variable(NamedTuple):
    """The name and unit of one channel of values."""

    name: str
    unit: str = ""


class Samples(eqx.Module):
    """N pairs (u, s): input functions at their sensors, output functions at their queries.

    **Arguments:**

    - `u`: values at the sensors `x`, shape (N, m, d_u); or `Measurements`, if every function has its own sensors.
    - `y`: query locations: an array (P, d_y) shared by all functions, an array (N, P, d_y), or any `Queries`.
    - `s`: values at the queries, shape (N, P, d_s).
    - `x`: sensor locations, shape (m, d_x); None with `Measurements`, which carry their own.
    - `domain`: Y; by default the smallest box that contains all queries.
    - `inputs`, `outputs`: names and units of the channels.
    - `sensor_coordinates`, `query_coordinates`: names and units of the columns of x and y; empty if unknown.

    Arrays of other libraries, such as PyTorch and CuPy, are shared by DLPack and not copied, where JAX has their
    precision and layout.
    """

    u: Input
    y: Queries
    s: Float[Array, "N P d_s"]
    x: Float[Array, "m d_x"] | None
    domain: Domain
    inputs: tuple[Variable, ...] = eqx.field(static=True)
    outputs: tuple[Variable, ...] = eqx.field(static=True)
    sensor_coordinates: tuple[Variable, ...] = eqx.field(static=True)
    query_coordinates: tuple[Variable, ...] = eqx.field(static=True)

    def __init__(
        self,
        u: Input | SupportsDLPack,
        y: Queries | Float[Array, "_ d_y"] | Float[Array, "_ _ d_y"] | SupportsDLPack,
        s: Float[Array, "_ _ d_s"] | SupportsDLPack,
        *,
        x: Float[Array, "_ d_x"] | SupportsDLPack | None = None,
        domain: Domain | None = None,
        inputs: Sequence[Variable] | None = None,
        outputs: Sequence[Variable] | None = None,
        sensor_coordinates: Sequence[Variable] = (),
        query_coordinates: Sequence[Variable] = (),
    ):
        self.u, where, self.s, self.x = jax.tree.map(shared_array, (u, y, s, x))
        self.y = where if isinstance(where, Queries) else Shared(where) if where.ndim == 2 else Free(where)
        self.domain = domain if domain is not None else bounding_box(self.y.points)
        values = self.u.u if isinstance(self.u, Measurements) else self.u
        self.inputs = tuple(inputs) if inputs else tuple(Variable(f"u{i + 1}") for i in range(values.shape[-1]))
        self.outputs = tuple(outputs) if outputs else tuple(Variable(f"s{i + 1}") for i in range(self.s.shape[-1]))
        self.sensor_coordinates, self.query_coordinates = tuple(sensor_coordinates), tuple(query_coordinates)
        self._check(values)

    def _check(self, values: Array) -> None:
        P = self.y.count
        if values.shape[0] != self.s.shape[0]:
            raise ValueError(
                f"u holds {values.shape[0]} functions but s holds {self.s.shape[0]}; pass one output for each input"
            )
        if self.s.shape[1] != P:
            raise ValueError(
                f"s has {self.s.shape[1]} values per function but y has {P} locations; pass one value per location"
            )
        if self.x is not None and self.x.shape[0] != values.shape[1]:
            raise ValueError(
                f"x has {self.x.shape[0]} sensors but u has {values.shape[1]} values per function; pass one value "
                "per sensor"
            )
        if len(self.inputs) != values.shape[-1] or len(self.outputs) != self.s.shape[-1]:
            raise ValueError(
                f"{len(self.inputs)} input and {len(self.outputs)} output names were given for "
                f"{values.shape[-1]} input and {self.s.shape[-1]} output channels; pass one name per channel"
            )
        self.domain.check(self.y.points)
        sensors = self.u.x if isinstance(self.u, Measurements) else self.x
        for name, columns, coordinates in (
            ("x", 0 if sensors is None else sensors.shape[-1], self.sensor_coordinates),
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

    def take(self, rows: Int[Array, " B"]) -> Samples:
        """The functions with these numbers, in the order given."""
        u = jax.tree.map(lambda a: a[rows], self.u)
        return dataclasses.replace(self, u=u, y=self.y.take(rows), s=self.s[rows])

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Samples:
        """The batch of one training step: a pure function of (seed, step) that visits every function once per epoch."""
        return self.take(batch_rows(seed, step, size, len(self)))

    def observe(self, key: Key | Keys, count: int) -> Samples:
        """Keep `count` (P) randomly drawn labels of every function, without replacement.

        Pass one key, or one key per function.
        """
        total = self.y.count
        if not 0 < count <= total:
            raise ValueError(f"cannot keep {count} labels per function: there are {total}; pass 1 to {total}")
        columns = random_columns(key if key.ndim else jax.random.split(key, len(self)), total, count)
        s = jnp.take_along_axis(self.s, columns[:, :, None], axis=1)
        return dataclasses.replace(self, y=self.y.choose(columns), s=s)

    def corrupt(self, key: Key, noise_std: float) -> Samples:
        """Add Gaussian noise to every input value; its standard deviation `noise_std` has the units of u."""

        def noisy(u: Array) -> Array:
            return u + noise_std * jax.random.normal(key, u.shape, u.dtype)

        u = dataclasses.replace(self.u, u=noisy(self.u.u)) if isinstance(self.u, Measurements) else noisy(self.u)
        return dataclasses.replace(self, u=u)

    def split(self, key: Key, *counts: int) -> tuple[Samples, ...]:
        """Disjoint random subsets with the given numbers of functions."""
        if sum(counts) > len(self) or min(counts) < 1:
            raise ValueError(
                f"cannot split {len(self)} functions into parts of {counts}; pass positive counts whose sum is at "
                f"most {len(self)}"
            )
        order = jax.random.permutation(key, len(self))
        ends = np.cumsum(counts)
        return tuple(self.take(order[end - part : end]) for end, part in zip(ends, counts, strict=True))


def bounding_box(y: Float[Array, "M d_y"]) -> Box:
    """The smallest box that contains all locations."""
    low, high = np.min(y, axis=0), np.max(y, axis=0)
    return Box(low.tolist(), high.tolist())


def grid_shape(x: Float[Array | np.ndarray, "m d_x"]) -> tuple[int, ...] | None:
    """The shape of the rectangular grid whose points in row-major order are the rows of x; None if x is no grid."""
    points = np.asarray(x)
    axes = [np.unique(column) for column in points.T]
    shape = tuple(len(axis) for axis in axes)
    if np.prod(shape) != len(points):
        return None
    # np.unique sorts, but a decreasing axis, such as latitude from north to south, also makes a grid
    grid = points.reshape(*shape, -1)
    for i, axis in enumerate(axes):
        along = np.moveaxis(grid[..., i], i, 0)
        first = along.reshape(len(axis), -1)[:, 0]
        if not (np.array_equal(np.sort(first), axis) and (along == first.reshape(-1, *[1] * (along.ndim - 1))).all()):
            return None
    return shape


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
    return shuffle(offset % count, epoch, jnp.asarray(seed).astype(jnp.uint32), count).astype(jnp.int32)


@functools.partial(jax.jit, static_argnames="count")
def shuffle(
    place: UInt32[Array, " B"], epoch: UInt32[Array, " B"], seed: UInt32[Array, ""], count: int
) -> UInt32[Array, " B"]:
    """The functions at these positions of an epoch: a permutation of 0 … count − 1, evaluated elementwise.

    A Feistel network permutes 0 … 4ᵏ − 1 for the smallest 4ᵏ ≥ `count`. Following a cycle of this permutation until a
    value falls below `count` restricts it to a permutation of 0 … count − 1 (Black & Rogaway 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = jnp.uint32((1 << half) - 1)
    key = mix(epoch ^ mix(seed))

    def permute(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        left, right = value >> half, value & mask
        for i in range(ROUNDS):
            left, right = right, left ^ (mix(right ^ mix(key + jnp.uint32(i))) & mask)
        return (left << half) | right

    def walk(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        return jnp.where(value < count, value, permute(value))

    return jax.lax.while_loop(lambda value: jnp.any(value >= count), walk, permute(place))


def mix(h: UInt32[Array, "*B"]) -> UInt32[Array, "*B"]:
    """A bijective 32-bit hash: multiplications and shifts with constants of low measured bias (Wellons 2018)."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * jnp.uint32(0x846CA68B)
    return h ^ (h >> 16)
