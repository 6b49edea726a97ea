"""Labels of functions as a linear map of the coefficients, for every form of queries."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

from loca.data import Free, Indexed, Queries, Shared
from loca.gaussian.features import GridFeatures, LocationFeatures, Numbers
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
    """h at M locations, as numbers of NumPy or JAX."""

    h: Float[Numbers, "M r_y"]

    def __call__(self, index: Int[Array, " P"]) -> Float[Array, "P r_y"]:
        """h at some of the locations."""
        return self.h[index]

    def values(self, v: Float[Numbers, "S N r_y"]) -> Float[Numbers, "S N M"]:
        """vₙᵀ h at all locations."""
        return v @ self.h.T

    def adjoint(self, values: Float[Numbers, "S N M"]) -> Float[Numbers, "S N r_y"]:
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

    axes: tuple[Float[Numbers, "n n"], ...]
    products: Int[Numbers, " r_y"]

    def __call__(self, index: Int[Array, " P"]) -> Float[Array, "P r_y"]:
        shape = tuple(map(len, self.axes))
        points, vectors = (jnp.unravel_index(each, shape) for each in (index, self.products))
        every = zip(self.axes, points, vectors, strict=True)
        return functools.reduce(operator.mul, (axis[point][:, vector] for axis, point, vector in every))

    def values(self, v: Float[Numbers, "S N r_y"]) -> Float[Numbers, "S N M"]:
        if isinstance(v, np.ndarray):
            every = np.zeros((*v.shape[:2], self.locations), v.dtype)
            every[..., self.products] = v
            return _along_axes(every, self.axes)
        features = jnp.arange(len(self.products))
        of_products = jnp.full(self.locations, len(features)).at[self.products].set(features)
        return _along_axes(jnp.take(v, of_products, axis=2, mode="fill", fill_value=0.0), self.axes)

    def adjoint(self, values: Float[Numbers, "S N M"]) -> Float[Numbers, "S N r_y"]:
        return _along_axes(values, [axis.T for axis in self.axes])[..., self.products]

    def squares(self, counts: Float[Array, "N M"]) -> Float[Array, "N r_y"]:
        return _along_axes(counts, [axis.T**2 for axis in self.axes])[..., self.products]

    @property
    def locations(self) -> int:
        return math.prod(map(len, self.axes))


def _along_axes(t: Float[Numbers, "*S n"], matrices: Sequence[Float[Numbers, "m k"]]) -> Float[Numbers, "*S p"]:
    """Multiply by a matrix along each axis of a grid, whose points are numbered by the last axis of t."""
    xp = np if isinstance(t, np.ndarray) else jnp
    grid = t.reshape(-1, *(matrix.shape[1] for matrix in matrices))
    for matrix in matrices:
        grid = xp.tensordot(grid, matrix, axes=(1, 1))  # this axis becomes the last one, and the next one the first
    return grid.reshape(*t.shape[:-1], -1)


# ---- labels ----------------------------------------------------------------------------------------------------------


class LabelMap(eqx.Module):
    """C ↦ f(uₙ)ᵀ C h(yₙₚ) for the labels of N functions, with its adjoint; S channels or right-hand sides at once.

    If functions have an error of their own, which is correlated over locations, the labels of each function are
    multiplied by W = L⁻¹ for the covariance L Lᵀ of their noise. The noise of the products is independent.

    `places` are for each function the numbers of its locations in a table, its locations, or h there. They are None if
    all functions are labeled at all locations of the table. If `gathers`, h is gathered at the locations of some
    functions at a time. Otherwise values are computed at all locations, and those of each function are chosen.
    """

    f: Float[Array, "N r_u"]
    features: Table | GridTable | LocationFeatures | None  # h as a function of a row of `places`, unless these are h
    places: Array | None
    gathers: bool = eqx.field(static=True)
    whitening: Float[Array, "K P P"] | None = None  # W of each function, or of all if they share locations

    def __call__(self, c: Coefficients) -> Values:
        """The values at the labels."""
        return self.whiten(self._at_queries(jnp.einsum("na,sab->snb", self.f, c)))

    def adjoint(self, values: Values) -> Coefficients:
        """Fᵀ (…) H: coefficients from values at the labels."""
        if self.whitening is not None:
            values = multiply(jnp.swapaxes(self.whitening, 1, 2), values)
        return jnp.einsum("na,snb->sab", self.f, self._from_queries(values))

    def normal(self, c: Coefficients) -> Coefficients:
        """Fᵀ (F C Hᵀ) H: the values at the labels, and coefficients from them. Gathers h once, not twice."""
        if not self.gathers:
            return self.adjoint(self(c))
        v = jnp.einsum("na,sab->nsb", self.f, c)
        if self.whitening is None:
            v = self.map(lambda h, v: (v @ h.T) @ h, v)
        else:
            v = self.map(lambda h, v, w: ((v @ h.T) @ w.T) @ w @ h, v, self.whitening)
        return jnp.einsum("na,nsb->sab", self.f, v)

    def whiten(self, values: Values) -> Values:
        """The values of labels, transformed so that their noise is independent."""
        return values if self.whitening is None else multiply(self.whitening, values)

    def squares(self) -> Float[Array, "N r_y"]:
        """Σₚ h_b(yₙₚ)² for each function, of W h in place of h if there is W."""
        functions, W = len(self.f), self.whitening
        if self.places is None:
            h = self._table(jnp.arange(self._table.locations))
            return jnp.tile(jnp.sum((h if W is None else W[0] @ h) ** 2, axis=0), (functions, 1))
        if W is not None:
            return self.map(lambda h, w: jnp.sum((w @ h) ** 2, axis=0), W)
        if self.gathers:
            return self.map(lambda h: jnp.sum(h**2, axis=0))
        rows = jnp.arange(functions)[:, None]
        return self._table.squares(jnp.zeros((functions, self._table.locations)).at[rows, self.places].add(1.0))

    def _at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        """vₙᵀ h(yₙₚ)."""
        if self.gathers:
            return jnp.moveaxis(self.map(lambda h, v: v @ h.T, jnp.moveaxis(v, 1, 0)), 0, 1)
        values = self._table.values(v)
        return values if self.places is None else jnp.take_along_axis(values, self.places[None], axis=2)

    def _from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        """Σₚ values h(yₙₚ), the adjoint of `_at_queries`."""
        if self.gathers:
            return jnp.moveaxis(self.map(lambda h, s: s @ h, jnp.moveaxis(values, 1, 0)), 0, 1)
        if self.places is not None:
            every = jnp.zeros((*values.shape[:2], self._table.locations), values.dtype)
            values = every.at[:, jnp.arange(len(self.f))[:, None], self.places].add(values)
        return self._table.adjoint(values)

    @property
    def rows(self) -> tuple[PyTree, ...]:
        """All arrays with one row per function."""
        own = () if self.places is None else (self.places, self.whitening)
        return tuple(each for each in (self.f, *own) if each is not None)

    def with_rows(self, *rows: PyTree) -> LabelMap:
        """The same with other rows, such as those of other functions."""
        return eqx.tree_at(lambda labels: labels.rows, self, rows)

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
        if isinstance(features, Table) and self.places is None:
            return function(features.h @ features.h.T)[None]
        if isinstance(features, Table) and self.places is not None:
            functions, labels = self.places.shape
            if features.locations**2 <= min(functions * labels**2 // 2, TABLE):  # else a table would cost too much
                covariance = features.h @ features.h.T
                return jax.lax.map(lambda place: function(covariance[place][:, place]), self.places)
        return self.map(lambda h: function(h @ h.T))

    @property
    def _table(self) -> Table | GridTable:
        assert isinstance(self.features, Table | GridTable)
        return self.features

    def _for_gathering(self) -> Table | GridTable | LocationFeatures | None:
        """The features, as numbers for all points of a grid if these are not too many."""
        if isinstance(grid := self.features, GridTable) and grid.locations * len(grid.products) <= TABLE:
            return Table(grid(jnp.arange(grid.locations)))
        return self.features


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


def label_map(f: Float[Numbers, "N r_u"], features: LocationFeatures, queries: Queries, keep: int = KEPT) -> LabelMap:
    """The labels of functions with features f at some queries, in the form that costs least.

    Features of free locations are kept if they are no more than `keep` numbers.
    """
    f, features = jax.tree.map(jnp.asarray, (f, features))
    match queries:
        case Shared(y):
            return LabelMap(f, Table(features(y)), None, gathers=False)
        case Free(y):
            labels = LabelMap(f, features, y, gathers=True)
            return _keep_features(labels) if y.shape[0] * y.shape[1] * features.rank <= keep else labels
        case Indexed(y, index):
            grid = features if isinstance(features, GridFeatures) else None
            cells = None if grid is None else grid.cells(y)
            axes = [] if grid is None or cells is None else [len(axis) for axis in grid.axes]
            costs = label_costs(index.shape[1], len(y), features.rank, axes)
            form = min(costs, key=lambda form: costs[form])
            if form == "grid" and grid is not None and cells is not None:
                return LabelMap(f, GridTable(grid.on_axes(), grid.products), cells[index], gathers=False)
            return LabelMap(f, Table(features(y)), index, gathers=form == "gathered")
    raise TypeError(f"expected Shared, Indexed or Free queries, got {type(queries).__name__}")


@eqx.filter_jit
def _keep_features(labels: LabelMap) -> LabelMap:
    """The same labels with features that are computed now."""
    return LabelMap(labels.f, None, labels.map(lambda h: h), gathers=True)


def label_costs(labels: int, locations: int | None, rank: int, axes: Sequence[int] = ()) -> dict[str, float]:
    """What the labels of one function cost in each form, as operations of a large matrix product.

    From the number of its labels, that of all locations (None if every function has its own), the number of features of
    a location, and the number of points along each axis if the locations are points of a grid.
    """
    if locations is None:
        return {"gathered": labels * rank * (SMALL + rank / ITERATIONS)}
    on_grid = {"grid": TRANSPOSED * math.prod(axes) * sum(axes)} if axes else {}
    if axes and locations * rank > TABLE:
        return on_grid
    return on_grid | {"table": 1.0 * locations * rank, "gathered": SMALL * labels * rank}
