"""Pairs of input and output functions in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.data.order import batch_rows
from loca.data.queries import Free, Queries, Shared, random_columns
from loca.domains import Box, Domain
from loca.typing import Input, Key, Keys, Measurements


class Variable(NamedTuple):
    """What one channel of values is called and measured in."""

    name: str
    unit: str = ""


class Samples(eqx.Module):
    """N pairs (u, s): input functions at their sensors, output functions at their queries.

    **Arguments:**

    - `u`: values at the sensors `x`, shape (N, m, d_u); or `Measurements`, when each function has sensors of its own.
    - `y`: query locations: an array (P, d_y) shared by all functions, an array (N, P, d_y), or any `Queries`.
    - `s`: values at the queries, shape (N, P, d_s).
    - `x`: sensor locations, shape (m, d_x); None with `Measurements`, which carry their own.
    - `domain`: Y; by default the smallest box around all queries.
    - `inputs`, `outputs`: names and units of the channels.
    """

    u: Input
    y: Queries
    s: Float[Array, "N P d_s"]
    x: Float[Array, "m d_x"] | None
    domain: Domain
    inputs: tuple[Variable, ...] = eqx.field(static=True)
    outputs: tuple[Variable, ...] = eqx.field(static=True)

    def __init__(
        self,
        u: Input,
        y: Queries | Float[Array, "_ d_y"] | Float[Array, "_ _ d_y"],
        s: Float[Array, "_ _ d_s"],
        *,
        x: Float[Array, "_ d_x"] | None = None,
        domain: Domain | None = None,
        inputs: Sequence[Variable] | None = None,
        outputs: Sequence[Variable] | None = None,
    ):
        queries = y if isinstance(y, Queries) else Shared(y) if y.ndim == 2 else Free(y)
        self.u, self.y, self.s, self.x = u, queries, s, x
        self.domain = domain if domain is not None else bounding_box(queries.points)
        values = u.u if isinstance(u, Measurements) else u
        self.inputs = tuple(inputs) if inputs else tuple(Variable(f"u{i + 1}") for i in range(values.shape[-1]))
        self.outputs = tuple(outputs) if outputs else tuple(Variable(f"s{i + 1}") for i in range(s.shape[-1]))
        self._check(values)

    def _check(self, values: Array) -> None:
        asked = self.y.count
        if values.shape[0] != self.s.shape[0]:
            raise ValueError(f"u holds {values.shape[0]} functions but s holds {self.s.shape[0]}; pair them up")
        if self.s.shape[1] != asked:
            raise ValueError(f"s has {self.s.shape[1]} values per function but y has {asked} locations")
        if self.x is not None and self.x.shape[0] != values.shape[1]:
            raise ValueError(f"x has {self.x.shape[0]} sensors but u has {values.shape[1]} values per function")
        if len(self.inputs) != values.shape[-1] or len(self.outputs) != self.s.shape[-1]:
            raise ValueError(
                f"{len(self.inputs)} input and {len(self.outputs)} output names were given for "
                f"{values.shape[-1]} input and {self.s.shape[-1]} output channels"
            )
        self.domain.check(self.y.points)

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
        """Some of the functions, in the order given."""
        u = jax.tree.map(lambda a: a[rows], self.u)
        return dataclasses.replace(self, u=u, y=self.y.take(rows), s=self.s[rows])

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Samples:
        """The functions of one training step: a pure function of (seed, step), every function once per epoch."""
        return self.take(batch_rows(seed, step, size, len(self)))

    def observe(self, key: Key | Keys, count: int) -> Samples:
        """Keep `count` (P) labels of every function, drawn for each without replacement; a key, or one per function."""
        total = self.y.count
        if not 0 < count <= total:
            raise ValueError(f"asked for {count} labels per function, but there are {total}; pass 1 to {total}")
        columns = random_columns(key if key.ndim else jax.random.split(key, len(self)), total, count)
        s = jnp.take_along_axis(self.s, columns[:, :, None], axis=1)
        return dataclasses.replace(self, y=self.y.choose(columns), s=s)

    def corrupt(self, key: Key, noise_std: float) -> Samples:
        """Add Gaussian noise of this standard deviation, in the units of u, to every input value."""

        def noisy(u: Array) -> Array:
            return u + noise_std * jax.random.normal(key, u.shape, u.dtype)

        u = dataclasses.replace(self.u, u=noisy(self.u.u)) if isinstance(self.u, Measurements) else noisy(self.u)
        return dataclasses.replace(self, u=u)

    def split(self, key: Key, *counts: int) -> tuple[Samples, ...]:
        """Random disjoint parts with the given numbers of functions."""
        if sum(counts) > len(self) or min(counts) < 1:
            raise ValueError(f"cannot split {len(self)} functions into parts of {counts}; their sum must not exceed it")
        order = jax.random.permutation(key, len(self))
        ends = np.cumsum(counts)
        return tuple(self.take(order[end - part : end]) for end, part in zip(ends, counts, strict=True))


def bounding_box(y: Float[Array, "M d_y"]) -> Box:
    """The smallest box that holds all locations."""
    low, high = np.min(y, axis=0), np.max(y, axis=0)
    return Box(low.tolist(), high.tolist())
