"""Labels of functions as a linear map of the coefficients, for every form of queries."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
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


# ---- features at all locations ---------------------------------------------------------------------------------------


class Table(eqx.Module):
    """h at M locations, as numbers."""

    h: Float[Array, "M r_y"]

    def __call__(self, index: Int[Array, " P"]) -> Float[Array, "P r_y"]:
        """h at some of the locations."""
        return self.h[index]

    def values(self, v: Float[Array, "S N r_y"]) -> Float[Array, "S N M"]:
        """vₙᵀ h at all locations."""
        return v @ self.h.T

    def adjoint(self, values: Float[Array, "S N M"]) -> Float[Array, "S N r_y"]:
        """Σ values h over all locations."""
        return values @ self.h

    def squares(self, counts: Float[Array, "N M"]) -> Float[Array, "N r_y"]:
        """Σ counts h_b² over all locations."""
        return counts @ self.h**2

    @property
    def locations(self) -> int:
        """M."""
        return len(self.h)


class GridTable(eqx.Module):
    """h at the points of a grid, as products of numbers for each axis: one axis is multiplied after the other.

    This costs Σ nᵢ operations for each of Π nᵢ points of the grid, whatever the number of features. The methods are
    those of `Table`.
    """

    axes: tuple[Float[Array, "n n"], ...]
    products: Int[Array, " r_y"]

    def __call__(self, index: Int[Array, " P"]) -> Float[Array, "P r_y"]:
        points, vectors = (jnp.unravel_index(each, self.shape) for each in (index, self.products))
        every = zip(self.axes, points, vectors, strict=True)
        return functools.reduce(operator.mul, (axis[point][:, vector] for axis, point, vector in every))

    def values(self, v: Float[Array, "S N r_y"]) -> Float[Array, "S N M"]:
        features = jnp.arange(len(self.products))
        of_products = jnp.full(self.locations, len(features)).at[self.products].set(features)
        return along_axes(jnp.take(v, of_products, axis=2, mode="fill", fill_value=0.0), self.axes)

    def adjoint(self, values: Float[Array, "S N M"]) -> Float[Array, "S N r_y"]:
        return along_axes(values, [axis.T for axis in self.axes])[..., self.products]

    def squares(self, counts: Float[Array, "N M"]) -> Float[Array, "N r_y"]:
        return along_axes(counts, [axis.T**2 for axis in self.axes])[..., self.products]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of points along each axis."""
        return tuple(map(len, self.axes))

    @property
    def locations(self) -> int:
        return math.prod(self.shape)

    @property
    def is_large(self) -> bool:
        """Whether the numbers of a `Table` would be too many."""
        return self.locations * len(self.products) > TABLE


def along_axes(t: Float[Array, "*S n"], matrices: Sequence[Float[Array, "m k"]]) -> Float[Array, "*S p"]:
    """Multiply by a matrix along each axis of a grid, whose points are numbered by the last axis of t."""
    grid = t.reshape(-1, *(matrix.shape[1] for matrix in matrices))
    for matrix in matrices:
        grid = jnp.tensordot(grid, matrix, axes=(1, 1))  # this axis becomes the last one, and the next one the first
    return grid.reshape(*t.shape[:-1], -1)


# ---- labels ----------------------------------------------------------------------------------------------------------


class LabelMap(eqx.Module):
    """C ↦ f(uₙ)ᵀ C h(yₙₚ) for the labels of N functions, with its adjoint; S channels or right-hand sides at once.

    If functions have an error of their own, which is correlated over locations, the labels of each function are
    multiplied by W = L⁻¹ for the covariance L Lᵀ of their noise. The noise of the products is independent.

    **Arguments:**

    - `f`: f(uₙ).
    - `features`: h as a function of a row of `places`; None if these are h themselves.
    - `places`: for each function the numbers of its locations in a table, its locations, or h there. None if all
      functions are labeled at all locations of the table.
    - `whitening`: W of each function, or of all together if they share locations; None if the noise is independent.
    """

    f: Float[Array, "N r_u"]
    features: Table | GridTable | LocationFeatures | None
    places: Array | None
    whitening: Float[Array, "K P P"] | None = None

    @abc.abstractmethod
    def normal(self, c: Coefficients) -> Coefficients:
        """Fᵀ (F C Hᵀ) H: the values at the labels, and coefficients from them."""

    @abc.abstractmethod
    def _at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        """vₙᵀ h(yₙₚ)."""

    @abc.abstractmethod
    def _from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        """Σₚ values h(yₙₚ), the adjoint of `_at_queries`."""

    @abc.abstractmethod
    def _squares(self) -> Float[Array, "N r_y"]:
        """Σₚ h_b(yₙₚ)² for each function."""

    def __call__(self, c: Coefficients) -> Values:
        return self.whiten(self._at_queries(jnp.einsum("na,sab->snb", self.f, c)))

    def adjoint(self, values: Values) -> Coefficients:
        """Fᵀ (…) H: coefficients from values at the labels."""
        if self.whitening is not None:
            values = multiply(jnp.swapaxes(self.whitening, 1, 2), values)
        return jnp.einsum("na,snb->sab", self.f, self._from_queries(values))

    def whiten(self, values: Values) -> Values:
        """The values of labels, transformed so that their noise is independent."""
        return values if self.whitening is None else multiply(self.whitening, values)

    def squares(self) -> Float[Array, "N r_y"]:
        """Σₚ h_b(yₙₚ)² for each function, with the rows of W h in place of h if there is W."""
        if self.whitening is None:
            return self._squares()

        def powers(h: Float[Array, "P r_y"], w: Float[Array, "P P"]) -> Float[Array, " r_y"]:
            return jnp.sum((w @ h) ** 2, axis=0)

        if self.places is None:
            assert isinstance(self.features, Table)
            return jnp.tile(powers(self.features.h, self.whitening[0]), (len(self.f), 1))
        return self.map(powers, self.whitening)

    @property
    def rows(self) -> tuple[PyTree, ...]:
        """All arrays with one row per function; of a tree whose leaves are not arrays, their places."""
        own = () if self.places is None else (self.places, self.whitening)
        return tuple(each for each in (self.f, *own) if each is not None)

    def map(self, function: Callable[..., PyTree], *rows: Array) -> PyTree:
        """Apply something to h at the labels of every function, and to its part of other rows."""
        assert self.places is not None
        features = self._for_gathering()
        gather = features if features is not None else lambda place: place
        size = GATHERED // jax.eval_shape(gather, self.places[0]).size
        one = lambda row: function(gather(row[0]), *row[1:])  # noqa: E731
        return jax.lax.map(one, (self.places, *rows), batch_size=min(size, len(self.f)) if size > 1 else None)

    def map_covariance(self, function: Callable[[Float[Array, "P P"]], Float[Array, "P P"]]) -> Float[Array, "K P P"]:
        """Apply something to h hᵀ, the covariance of the labels of every function; of all if they share locations."""
        features = self._for_gathering()
        if not isinstance(features, Table):
            return self.map(lambda h: function(h @ h.T))
        if self.places is None:
            return function(features.h @ features.h.T)[None]
        functions, labels = self.places.shape
        if features.locations**2 > min(functions * labels**2 // 2, TABLE):  # a table would cost more than it saves
            return self.map(lambda h: function(h @ h.T))
        covariance = features.h @ features.h.T
        return jax.lax.map(lambda place: function(covariance[place][:, place]), self.places)

    def _for_gathering(self) -> Table | GridTable | LocationFeatures | None:
        """The features, as numbers for all points of a grid if they are not too many."""
        if isinstance(self.features, GridTable) and not self.features.is_large:
            return Table(self.features(jnp.arange(self.features.locations)))
        return self.features


class TableLabels(LabelMap):
    """Values are computed at all locations of a table; those of each function are chosen from them."""

    def normal(self, c: Coefficients) -> Coefficients:
        return self.adjoint(self(c))

    def _at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        values = self._table.values(v)
        return values if self.places is None else jnp.take_along_axis(values, self.places[None], axis=2)

    def _from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        if self.places is not None:
            every = jnp.zeros((*values.shape[:2], self._table.locations), values.dtype)
            values = every.at[:, jnp.arange(len(self.f))[:, None], self.places].add(values)
        return self._table.adjoint(values)

    def _squares(self) -> Float[Array, "N r_y"]:
        functions, locations = len(self.f), self._table.locations
        if self.places is None:
            return jnp.repeat(self._table.squares(jnp.ones((1, locations))), functions, axis=0)
        counts = jnp.zeros((functions, locations)).at[jnp.arange(functions)[:, None], self.places].add(1.0)
        return self._table.squares(counts)

    @property
    def _table(self) -> Table | GridTable:
        assert isinstance(self.features, Table | GridTable)
        return self.features


class GatheredLabels(LabelMap):
    """h is gathered at the locations of a few functions at a time."""

    def normal(self, c: Coefficients) -> Coefficients:
        """The features of each function are gathered once, not twice."""
        v = jnp.einsum("na,sab->nsb", self.f, c)
        if self.whitening is None:
            v = self.map(lambda h, v: (v @ h.T) @ h, v)
        else:
            v = self.map(lambda h, v, w: ((v @ h.T) @ w.T) @ w @ h, v, self.whitening)
        return jnp.einsum("na,nsb->sab", self.f, v)

    def _at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        return jnp.moveaxis(self.map(lambda h, v: v @ h.T, jnp.moveaxis(v, 1, 0)), 0, 1)

    def _from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        return jnp.moveaxis(self.map(lambda h, s: s @ h, jnp.moveaxis(values, 1, 0)), 0, 1)

    def _squares(self) -> Float[Array, "N r_y"]:
        return self.map(lambda h: jnp.sum(h**2, axis=0))


def multiply(matrices: Float[Array, "K P P"], values: Values) -> Values:
    """Multiply the values of each function by its matrix, or by the only one."""
    if len(matrices) == 1:
        return values @ matrices[0].T
    return jnp.einsum("npq,snq->snp", matrices, values)


@eqx.filter_jit
def with_nugget(labels: LabelMap, ratio: Float[Array, ""]) -> LabelMap:
    """Labels of functions that have an error of their own, with covariance ratio·λ·k_Y, beside noise of variance λ."""

    def whitening(k: Float[Array, "P P"]) -> Float[Array, "P P"]:
        one = jnp.eye(len(k), dtype=k.dtype)
        return solve_triangular(jnp.linalg.cholesky(one + ratio * k), one, lower=True)

    return dataclasses.replace(labels, whitening=labels.map_covariance(whitening))


# ---- the form that costs least ---------------------------------------------------------------------------------------


def label_map(
    f: Float[Array, "N r_u"], features: LocationFeatures, queries: Queries, keep: int = KEPT
) -> TableLabels | GatheredLabels:
    """The labels of functions with features f at some queries, in the form that costs least.

    Features of free locations are kept if they are no more than `keep` numbers.
    """
    match queries:
        case Shared(y):
            return TableLabels(f, Table(features(y)), None)
        case Free(y):
            labels = GatheredLabels(f, features, y)
            return keep_features(labels) if y.shape[0] * y.shape[1] * features.rank <= keep else labels
        case Indexed(y, index):
            cells = features.cells(y) if isinstance(features, GridFeatures) else None
            axes = [len(axis) for axis in features.axes] if isinstance(features, GridFeatures) else []
            costs = label_costs(index.shape[1], len(y), features.rank, [] if cells is None else axes)
            form = min(costs, key=lambda form: costs[form])
            if form == "grid":
                assert isinstance(features, GridFeatures)
                assert cells is not None
                return TableLabels(f, GridTable(features.on_axes(), features.products), cells[index])
            return (TableLabels if form == "table" else GatheredLabels)(f, Table(features(y)), index)
    raise TypeError(f"expected Shared, Indexed or Free queries, got {type(queries).__name__}")


@eqx.filter_jit
def keep_features(labels: GatheredLabels) -> GatheredLabels:
    """The same labels with features that are computed now."""
    return GatheredLabels(labels.f, None, labels.map(lambda h: h))


def label_costs(labels: int, locations: int, rank: int, axes: Sequence[int] = ()) -> dict[str, float]:
    """What the labels of one function cost in each form, as operations of a large matrix product.

    **Arguments:**

    - `labels`: the number of labels of a function.
    - `locations`: the number of all locations.
    - `rank`: the number of features of a location.
    - `axes`: the number of points along each axis if the locations are points of a grid.
    """
    on_grid = {"grid": TRANSPOSED * math.prod(axes) * sum(axes)} if axes else {}
    if axes and locations * rank > TABLE:
        return on_grid
    return on_grid | {"table": 1.0 * locations * rank, "gathered": SMALL * labels * rank}


def free_cost(labels: int, rank: int) -> float:
    """What labels at locations of a function's own cost, as operations of a large matrix product."""
    return labels * rank * (SMALL + LANDMARKS * rank / ITERATIONS)
