"""Where output functions are asked: three forms, kept as they come and never expanded."""

from __future__ import annotations

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num

from loca.typing import Key, Keys


class Queries(eqx.Module):
    """The query locations of N output functions, P for each."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """P, the number of locations per function."""

    @property
    @abc.abstractmethod
    def points(self) -> Float[Array, "M d_y"]:
        """All locations that occur, one row each."""

    @abc.abstractmethod
    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        """The locations of each of `functions` functions, written out."""

    @abc.abstractmethod
    def spread(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        """Numbers given at `points`, brought to the queries: of each function, or of all where they share them."""

    @abc.abstractmethod
    def each(self, change: Callable[[Array], Array]) -> Queries:
        """With a change made to whatever has a row for each function."""

    def take(self, rows: Int[Array, " B"]) -> Queries:
        """The queries of some of the functions."""
        return self.each(lambda array: array[rows])

    @abc.abstractmethod
    def choose(self, columns: Int[Array, "N count"]) -> Queries:
        """For every function its own few of its locations."""


class Shared(Queries):
    """One set of locations for all functions, such as a grid."""

    y: Float[Array, "P d_y"]

    @property
    def count(self) -> int:
        return self.y.shape[0]

    @property
    def points(self) -> Float[Array, "M d_y"]:
        return self.y

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return jnp.broadcast_to(self.y, (functions, *self.y.shape))

    def spread(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values

    def each(self, change: Callable[[Array], Array]) -> Shared:
        return self

    def choose(self, columns: Int[Array, "N count"]) -> Indexed:
        return Indexed(self.y, columns)


class Indexed(Queries):
    """Every function its own P of M shared locations: yᵢₚ = y[index[i, p]]."""

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

    def spread(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values[self.index]

    def each(self, change: Callable[[Array], Array]) -> Indexed:
        return Indexed(self.y, change(self.index))

    def choose(self, columns: Int[Array, "N count"]) -> Indexed:
        return Indexed(self.y, jnp.take_along_axis(self.index, columns, axis=1))


class Free(Queries):
    """Every function its own locations."""

    y: Float[Array, "N P d_y"]

    @property
    def count(self) -> int:
        return self.y.shape[1]

    @property
    def points(self) -> Float[Array, "M d_y"]:
        return self.y.reshape(-1, self.y.shape[-1])

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return self.y

    def spread(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values.reshape(self.y.shape[:2])

    def each(self, change: Callable[[Array], Array]) -> Free:
        return Free(change(self.y))

    def choose(self, columns: Int[Array, "N count"]) -> Free:
        return Free(jnp.take_along_axis(self.y, columns[:, :, None], axis=1))


def random_columns(keys: Keys, total: int, count: int) -> Int[Array, "N count"]:
    """For every function, each with its own key, `count` of `total` columns, without replacement and in order."""

    def draw(key: Key) -> Int[Array, " count"]:
        return jnp.sort(jax.random.permutation(key, total)[:count])

    return jax.lax.map(draw, keys, batch_size=256)
