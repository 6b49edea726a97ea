"""Labels of functions as a linear map of the coefficients, for every form of queries."""

from __future__ import annotations

import abc
import functools
import math
import operator
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from loca.data import Free, Indexed, Queries, Shared
from loca.gaussian.features import LANDMARKS, GridFeatures, LocationFeatures
from loca.typing import PyTree

GATHERED = 2**17
"""Numbers of gathered features at a time: they stay in the cache of a core."""

TABLE = 2**25
"""Numbers of a table of features at all points of a grid, at most: 128 MB in single precision."""

KEPT = 2**27
"""Numbers of features of free locations that are kept, at most, not computed again: 512 MB in single precision."""

ITERATIONS = 30
"""Of a solve, approximately: what is computed once costs so much less than in every iteration."""

SMALL, TRANSPOSED = 8.0, 4.0
"""How many times as long an operation takes as one of a large matrix product: with gathered features, and on grids."""

Coefficients = Float[Array, "S r_u r_y"]
Values = Float[Array, "S N P"]
"""Values of labels: S channels or right-hand sides, N functions, P labels each."""


class Labels(eqx.Module):
    """C ↦ f(uₙ)ᵀ C h(yₙₚ) for the labels of N functions, with its adjoint; S channels or right-hand sides at once."""

    f: Float[Array, "N r_u"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        """All arrays with one row per function; of a tree whose leaves are not arrays, their places."""
        return (self.f,)

    @abc.abstractmethod
    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        """vₙᵀ h(yₙₚ)."""

    @abc.abstractmethod
    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        """Σₚ values h(yₙₚ), the adjoint of `at_queries`."""

    @property
    @abc.abstractmethod
    def squares(self) -> Float[Array, "N r_y"]:
        """Σₚ h_b(yₙₚ)² for each function."""

    def __call__(self, c: Coefficients) -> Values:
        return self.at_queries(jnp.einsum("na,sab->snb", self.f, c))

    def adjoint(self, values: Values) -> Coefficients:
        """Fᵀ (…) H: coefficients from values at the labels."""
        return jnp.einsum("na,snb->sab", self.f, self.from_queries(values))

    def normal(self, c: Coefficients) -> Coefficients:
        """Fᵀ (F C Hᵀ) H: the values at the labels, and coefficients from them."""
        return self.adjoint(self(c))

    def whiten(self, values: Values) -> Values:
        """The values of labels, transformed so that their noise is independent."""
        return values


class AllLabels(Labels):
    """Every function is labeled at the same locations."""

    h: Float[Array, "P r_y"]

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        return v @ self.h.T

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        return values @ self.h

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        return jnp.broadcast_to(jnp.sum(self.h**2, axis=0), (len(self.f), self.h.shape[1]))


class SomeLabels(Labels):
    """Functions are labeled at different locations."""

    @property
    @abc.abstractmethod
    def places(self) -> PyTree:
        """Where each function is labeled, one row per function; of a tree whose leaves are not arrays, its leaf."""

    @abc.abstractmethod
    def gather(self, place: Array) -> Float[Array, "P r_y"]:
        """h at the labels of one function."""

    @property
    def rows(self) -> tuple[PyTree, ...]:
        return self.f, self.places

    def map(self, function: Callable[..., PyTree], *rows: Array) -> PyTree:
        """Apply something to h at the labels of every function, and to its part of other rows."""
        size = GATHERED // jax.eval_shape(self.gather, self.places[0]).size
        one = lambda row: function(self.gather(row[0]), *row[1:])  # noqa: E731
        return jax.lax.map(one, (self.places, *rows), batch_size=min(size, len(self.f)) if size > 1 else None)

    def map_covariance(self, function: Callable[[Float[Array, "P P"]], PyTree]) -> PyTree:
        """Apply something to h hᵀ, the covariance of the labels of every function."""
        return self.map(lambda h: function(h @ h.T))


class TableLabels(SomeLabels):
    """Every function is labeled at some of M common locations."""

    h: Float[Array, "M r_y"]
    index: Int[Array, "N P"]

    @property
    def places(self) -> PyTree:
        return self.index

    def gather(self, place: Int[Array, " P"]) -> Float[Array, "P r_y"]:
        return self.h[place]

    def map_covariance(self, function: Callable[[Float[Array, "P P"]], PyTree]) -> PyTree:
        functions, labels = self.index.shape
        if len(self.h) ** 2 > min(functions * labels**2 // 2, TABLE):  # a table would cost more than it saves
            return super().map_covariance(function)
        covariance = self.h @ self.h.T
        return jax.lax.map(lambda place: function(covariance[place][:, place]), self.index)


class ManyLabels(TableLabels):
    """Functions have labels at many of the locations: all M are computed."""

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        return jnp.take_along_axis(v @ self.h.T, self.index[None], axis=2)

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        rows = jnp.arange(len(self.index))[:, None]
        table = jnp.zeros((*values.shape[:2], len(self.h)), values.dtype)
        return table.at[:, rows, self.index].add(values) @ self.h

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        return label_counts(self.index, len(self.h)) @ self.h**2


class GatheredLabels(SomeLabels):
    """Labels whose features are gathered for a few functions at a time."""

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        return jnp.moveaxis(self.map(lambda h, v: v @ h.T, jnp.moveaxis(v, 1, 0)), 0, 1)

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        return jnp.moveaxis(self.map(lambda h, s: s @ h, jnp.moveaxis(values, 1, 0)), 0, 1)

    def normal(self, c: Coefficients) -> Coefficients:
        """The features of each function are gathered once, not twice."""
        return self.between(lambda values: values, c)

    def between(self, change: Callable[..., Array], c: Coefficients, *rows: Array) -> Coefficients:
        """Fᵀ (…) H of the values F C Hᵀ, after a change that may need other rows."""
        v = jnp.einsum("na,sab->nsb", self.f, c)
        v = self.map(lambda h, v, *row: change(v @ h.T, *row) @ h, v, *rows)
        return jnp.einsum("na,nsb->sab", self.f, v)

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        return self.map(lambda h: jnp.sum(h**2, axis=0))


class FewLabels(TableLabels, GatheredLabels):
    """Functions have labels at few of the locations."""


class OwnLabels(GatheredLabels):
    """Every function has locations of its own, whose features are computed when they are needed."""

    features: LocationFeatures
    y: Float[Array, "N P d_y"]

    @property
    def places(self) -> PyTree:
        return self.y

    def gather(self, place: Float[Array, "P d_y"]) -> Float[Array, "P r_y"]:
        return self.features(place)


class KeptLabels(GatheredLabels):
    """Every function has locations of its own, whose features are computed once and kept."""

    h: Float[Array, "N P r_y"]

    @property
    def places(self) -> PyTree:
        return self.h

    def gather(self, place: Float[Array, "P r_y"]) -> Float[Array, "P r_y"]:
        return place


class GridLabels(SomeLabels):
    """Every function is labeled at some points of a grid, whose features are products: one axis after the other.

    This costs Σ nᵢ operations for each of Π nᵢ points of the grid, whatever the number of features.
    """

    axes: tuple[Float[Array, "n n"], ...]
    products: Int[Array, " r_y"]
    index: Int[Array, "N P"]

    @property
    def places(self) -> PyTree:
        return self.index

    def gather(self, place: Int[Array, " P"]) -> Float[Array, "P r_y"]:
        shape = tuple(map(len, self.axes))
        every = zip(self.axes, jnp.unravel_index(place, shape), jnp.unravel_index(self.products, shape), strict=True)
        return functools.reduce(operator.mul, (axis[points][:, vectors] for axis, points, vectors in every))

    def map(self, function: Callable[..., PyTree], *rows: Array) -> PyTree:
        return super().map(function, *rows) if self.is_large else self.with_table().map(function, *rows)

    def map_covariance(self, function: Callable[[Float[Array, "P P"]], PyTree]) -> PyTree:
        return super().map_covariance(function) if self.is_large else self.with_table().map_covariance(function)

    @property
    def is_large(self) -> bool:
        """Whether a table for all points of the grid would be too large."""
        return math.prod(map(len, self.axes)) * len(self.products) > TABLE

    def with_table(self) -> FewLabels:
        """The same labels, with a table for all points of the grid."""
        return FewLabels(self.f, self.gather(jnp.arange(math.prod(map(len, self.axes)))), self.index)

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        features = jnp.arange(len(self.products))
        of_products = jnp.full(math.prod(map(len, self.axes)), len(features)).at[self.products].set(features)
        v = jnp.take(v, of_products, axis=2, mode="fill", fill_value=0.0)
        return jnp.take_along_axis(along_axes(v, self.axes), self.index[None], axis=2)

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        rows = jnp.arange(len(self.index))[:, None]
        table = jnp.zeros((*values.shape[:2], math.prod(map(len, self.axes))), values.dtype)
        table = table.at[:, rows, self.index].add(values)
        return along_axes(table, [axis.T for axis in self.axes])[..., self.products]

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        counts = label_counts(self.index, math.prod(map(len, self.axes)))
        return along_axes(counts, [axis.T**2 for axis in self.axes])[..., self.products]


def labels_at(
    f: Float[Array, "N r_u"], features: LocationFeatures, queries: Queries, keep: int = KEPT
) -> AllLabels | SomeLabels:
    """The labels of functions with features f at some queries, in the form that costs least.

    Features of free locations are kept if they are no more than `keep` numbers.
    """
    match queries:
        case Shared(y):
            return AllLabels(f, features(y))
        case Free(y):
            own = OwnLabels(f, features, y)
            is_kept = y.shape[0] * y.shape[1] * features.rank <= keep
            return keep_features(own) if is_kept else own
        case Indexed(y, index):
            labels, locations = index.shape[1], len(y)
            costs = label_costs(labels, locations, features.rank)
            if isinstance(features, GridFeatures) and (cells := features.cells(y)) is not None:
                costs = label_costs(labels, locations, features.rank, [len(axis) for axis in features.axes])
                if costs[GridLabels] <= min(costs.values()):
                    return GridLabels(f, features.on_axes(), features.products, cells[index])
            kind = FewLabels if costs[FewLabels] < costs[ManyLabels] else ManyLabels
            return kind(f, features(y), index)
    raise TypeError(f"expected Shared, Indexed or Free queries, got {type(queries).__name__}")


@eqx.filter_jit
def keep_features(labels: OwnLabels) -> KeptLabels:
    """The same labels with features that are computed now."""
    return KeptLabels(labels.f, labels.map(lambda h: h))


def free_cost(labels: int, rank: int) -> float:
    """What labels at locations of a function's own cost, as operations of a large matrix product."""
    return labels * rank * (SMALL + LANDMARKS * rank / ITERATIONS)


def label_costs(labels: int, locations: int, rank: int, axes: Sequence[int] = ()) -> dict[type[Labels], float]:
    """What the labels of one function cost in each form, as operations of a large matrix product.

    **Arguments:**

    - `labels`: the number of labels of a function.
    - `locations`: the number of all locations.
    - `rank`: the number of features of a location.
    - `axes`: the number of points along each axis if the locations are points of a grid.
    """
    on_grid: dict[type[Labels], float] = {GridLabels: TRANSPOSED * math.prod(axes) * sum(axes)} if axes else {}
    if axes and locations * rank > TABLE:
        return on_grid
    return {FewLabels: SMALL * labels * rank, ManyLabels: 1.0 * locations * rank} | on_grid


def along_axes(t: Float[Array, "*S n"], matrices: Sequence[Float[Array, "m k"]]) -> Float[Array, "*S p"]:
    """Multiply by a matrix along each axis of a grid, whose points are numbered by the last axis of t."""
    grid = t.reshape(-1, *(matrix.shape[1] for matrix in matrices))
    for matrix in matrices:
        grid = jnp.tensordot(grid, matrix, axes=(1, 1))  # this axis becomes the last one, and the next one the first
    return grid.reshape(*t.shape[:-1], -1)


def label_counts(index: Int[Array, "N P"], locations: int) -> Float[Array, "N M"]:
    """The number of labels of each function at each location."""
    return jnp.zeros((len(index), locations)).at[jnp.arange(len(index))[:, None], index].add(1.0)
