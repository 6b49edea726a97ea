"""Labels of functions as a linear map of the coefficients, for every form of queries."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from loca.data import Free, Indexed, Queries, Shared
from loca.gaussian.locations import GridFeatures, LocationFeatures
from loca.typing import PyTree

BLOCK = 2**24
"""Numbers of a block of gathered features: 64 MB in single precision."""

GATHER = 32
"""Features are gathered where at most one location in so many is labeled; elsewhere all locations are computed, since
one large matrix product is faster than many small ones."""

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


class ManyLabels(Labels):
    """Every function is labeled at many of M common locations: all M are computed."""

    h: Float[Array, "M r_y"]
    index: Int[Array, "N P"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        return self.f, self.index

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        return jnp.take_along_axis(v @ self.h.T, self.index[None], axis=2)

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        rows = jnp.arange(len(self.index))[:, None]
        table = jnp.zeros((*values.shape[:2], len(self.h)), values.dtype)
        return table.at[:, rows, self.index].add(values) @ self.h

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        return label_counts(self.index, len(self.h)) @ self.h**2


class FewLabels(Labels):
    """Every function is labeled at few of M common locations: their features are gathered, in blocks of functions."""

    h: Float[Array, "M r_y"]
    index: Int[Array, "N P"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        return self.f, self.index

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        one = lambda row: self.h[row[0]] @ row[1].T  # noqa: E731
        return jnp.moveaxis(self._map(one, (self.index, jnp.moveaxis(v, 1, 0))), (1, 2), (2, 0))

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        one = lambda row: row[1] @ self.h[row[0]]  # noqa: E731
        return jnp.moveaxis(self._map(one, (self.index, jnp.moveaxis(values, 1, 0))), 0, 1)

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        return self._map(lambda row: jnp.sum(self.h[row[0]] ** 2, axis=0), (self.index,))

    def _map(self, one, rows):
        size = max(1, BLOCK // (self.index.shape[1] * self.h.shape[1]))
        return jax.lax.map(one, rows, batch_size=min(size, len(self.index)))


class GridLabels(Labels):
    """Every function is labeled at some points of a grid, whose features are products: one axis after the other.

    This costs Σ nᵢ operations for each of Π nᵢ points of the grid, whatever the number of features.
    """

    axes: tuple[Float[Array, "n n"], ...]
    products: Int[Array, " r_y"]
    index: Int[Array, "N P"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        return self.f, self.index

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


class OwnLabels(Labels):
    """Every function has locations of its own: their features are computed when they are needed, in blocks."""

    features: LocationFeatures
    y: Float[Array, "N P d_y"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        return self.f, self.y

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        one = lambda row: self.features(row[0]) @ row[1].T  # noqa: E731
        return jnp.moveaxis(self._map(one, (self.y, jnp.moveaxis(v, 1, 0))), (1, 2), (2, 0))

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        one = lambda row: row[1] @ self.features(row[0])  # noqa: E731
        return jnp.moveaxis(self._map(one, (self.y, jnp.moveaxis(values, 1, 0))), 0, 1)

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        return self._map(lambda row: jnp.sum(self.features(row[0]) ** 2, axis=0), (self.y,))

    def _map(self, one, rows):
        size = max(1, BLOCK // (self.y.shape[1] * self.features.rank))
        return jax.lax.map(one, rows, batch_size=min(size, len(self.y)))


class CorrelatedLabels(Labels):
    """Labels whose noise is correlated within each function, multiplied by W = L⁻¹ for its covariance L Lᵀ.

    The noise of the products is independent.

    **Arguments:**

    - `labels`: the labels themselves.
    - `whitening`: W of each function, or of all together.
    - `powers`: Σₚ (W h)ₚ² of each function, or of all together.
    """

    labels: Labels
    whitening: Float[Array, "K P P"]
    powers: Float[Array, "K r_y"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        own = () if isinstance(self.labels, AllLabels) else (self.whitening, self.powers)
        return self.f, *self.labels.rows, *own

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        return self.whiten(self.labels.at_queries(v))

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        return self.labels.from_queries(multiply(jnp.swapaxes(self.whitening, 1, 2), values))

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        return jnp.broadcast_to(self.powers, (len(self.f), self.powers.shape[1]))

    def whiten(self, values: Values) -> Values:
        return multiply(self.whitening, values)


def multiply(matrices: Float[Array, "K P P"], values: Values) -> Values:
    """Multiply the values of each function by its matrix, or by the only one."""
    if len(matrices) == 1:
        return values @ matrices[0].T
    return jnp.einsum("npq,snq->snp", matrices, values)


def correlated(labels: Labels, features: LocationFeatures, queries: Queries, ratio: float) -> CorrelatedLabels:
    """Labels of functions that have an error of their own, with covariance ratio·λ·k_Y, beside noise of variance λ."""

    def of_function(y: Float[Array, "P d_y"]) -> tuple[Float[Array, "P P"], Float[Array, " r_y"]]:
        h, one = features(y), jnp.eye(len(y), dtype=y.dtype)
        whitening = solve_triangular(jnp.linalg.cholesky(one + ratio * h @ h.T), one, lower=True)
        return whitening, jnp.sum((whitening @ h) ** 2, axis=0)

    y = queries.y[None] if isinstance(queries, Shared) else queries.locations(len(labels.f))
    size = max(1, BLOCK // (y.shape[1] * max(y.shape[1], features.rank)))
    return CorrelatedLabels(labels.f, labels, *jax.lax.map(of_function, y, batch_size=min(size, len(y))))


def labels_at(f: Float[Array, "N r_u"], features: LocationFeatures, queries: Queries) -> Labels:
    """The labels of functions with features f at some queries, in the form that costs least."""
    match queries:
        case Shared(y):
            return AllLabels(f, features(y))
        case Indexed(y, index):
            if isinstance(features, GridFeatures) and (cells := features.cells(y)) is not None:
                return GridLabels(f, features.on_axes(), features.products, cells[index])
            kind = FewLabels if GATHER * index.shape[1] <= len(y) else ManyLabels
            return kind(f, features(y), index)
        case Free(y):
            return OwnLabels(f, features, y)
    raise TypeError(f"expected Shared, Indexed or Free queries, got {type(queries).__name__}")


def along_axes(t: Float[Array, "*S n"], matrices: Sequence[Float[Array, "m k"]]) -> Float[Array, "*S p"]:
    """Multiply by a matrix along each axis of a grid, whose points are numbered by the last axis of t."""
    grid = t.reshape(-1, *(matrix.shape[1] for matrix in matrices))
    for matrix in matrices:
        grid = jnp.tensordot(grid, matrix, axes=(1, 1))  # this axis becomes the last one, and the next one the first
    return grid.reshape(*t.shape[:-1], -1)


def label_counts(index: Int[Array, "N P"], locations: int) -> Float[Array, "N M"]:
    """The number of labels of each function at each location."""
    return jnp.zeros((len(index), locations)).at[jnp.arange(len(index))[:, None], index].add(1.0)
