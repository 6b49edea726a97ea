"""Where output functions are queried: three forms, each kept as given and never expanded."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from loca.data.arrays import as_numbers, shared_array
from loca.typing import Key, Keys, Numbers, PyTree


class Queries(eqx.Module):
    """The query locations of N output functions, P for each function."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """P, the number of queries per function."""

    @property
    @abc.abstractmethod
    def points(self) -> Float[Array, "M d_y"]:
        """All stored locations, one per row."""

    @abc.abstractmethod
    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        """The locations of each of N = `functions` functions, written out."""

    @abc.abstractmethod
    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        """The values at the queries, given one value for each of the `points`.

        The result has one row per function, or a single row if all functions share their queries.
        """

    @abc.abstractmethod
    def each(self, change: Callable[[Array], Array]) -> Queries:
        """Apply `change` to every array that has one row per function."""

    def take(self, rows: Int[Array, " B"]) -> Queries:
        """The queries of the functions with these numbers."""
        return self.each(lambda array: take_rows(array, rows))

    @abc.abstractmethod
    def choose(self, columns: Int[Array, "N count"]) -> Queries:
        """For every function, the queries with the numbers in its row of `columns`."""


class Shared(Queries):
    """The same locations for all functions, such as a grid."""

    y: Float[Array, "P d_y"]

    @property
    def count(self) -> int:
        return self.y.shape[0]

    @property
    def points(self) -> Float[Array, "M d_y"]:
        return self.y

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return jnp.broadcast_to(self.y, (functions, *self.y.shape))

    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values

    def each(self, change: Callable[[Array], Array]) -> Shared:
        return self

    def choose(self, columns: Int[Array, "N count"]) -> Indexed:
        return Indexed(self.y, columns)


class Indexed(Queries):
    """For every function, P of M shared locations: yᵢₚ = y[index[i, p]]."""

    y: Float[Array, "M d_y"]
    index: Int[Array, "N P"]

    @property
    def count(self) -> int:
        return self.index.shape[1]

    @property
    def points(self) -> Float[Array, "M d_y"]:
        return self.y

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return self.y[self.index]

    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values[self.index]

    def each(self, change: Callable[[Array], Array]) -> Indexed:
        return Indexed(self.y, change(self.index))

    def choose(self, columns: Int[Array, "N count"]) -> Indexed:
        return Indexed(self.y, jnp.take_along_axis(self.index, columns, axis=1))


class Free(Queries):
    """Different locations for every function."""

    y: Float[Array, "N P d_y"]

    @property
    def count(self) -> int:
        return self.y.shape[1]

    @property
    def points(self) -> Float[Array, "M d_y"]:
        return self.y.reshape(-1, self.y.shape[-1])

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return self.y

    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values.reshape(self.y.shape[:2])

    def each(self, change: Callable[[Array], Array]) -> Free:
        return Free(change(self.y))

    def choose(self, columns: Int[Array, "N count"]) -> Free:
        return Free(jnp.take_along_axis(self.y, columns[:, :, None], axis=1))


@jax.jit
def take_rows(tree: PyTree, rows: Int[Array, " B"]) -> PyTree:
    """The rows with these numbers of every array, by one program."""
    return jax.tree.map(lambda array: array[rows], tree)


def as_queries(y: Queries | Numbers) -> Queries:
    """Queries, from an array (P, d_y) that all functions share, an array (N, P, d_y), or P numbers if d_y = 1."""
    if isinstance(y, Queries):
        return jax.tree.map(shared_array, y)
    if np.ndim(y) == 3:  # pyright: ignore[reportArgumentType]
        return Free(as_numbers(y, "y", "(N, P, d_y)"))
    return Shared(as_numbers(y, "y", "(P, d_y)", "(P,)"))


@functools.partial(jax.jit, static_argnames=("total", "count"))
def random_columns(keys: Keys, total: int, count: int) -> Int[Array, "N count"]:
    """For every key, `count` of `total` column numbers, drawn without replacement and sorted."""

    def draw(key: Key) -> Int[Array, " count"]:
        return jnp.sort(jax.random.permutation(key, total)[:count])

    return jax.lax.map(draw, keys, batch_size=256)
