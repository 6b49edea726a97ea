"""The equation of the coefficients in NumPy, for functions that share their locations: there is nothing to compile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from loca.data import Indexed, Queries
from loca.gaussian.features import diagonalized
from loca.gaussian.labels import GridTable, Table
from loca.gaussian.system import IterationCallback, conjugate_gradients

Matrix = Float[np.ndarray, "_ _"]
Values = Float[np.ndarray, "S N _"]
Coefficients = Float[np.ndarray, "S a b"]
Weights = Float[np.ndarray, "N P P"] | None


class DenseSolution(NamedTuple):
    """As `Solution`; also the diagonal of the equation without λ, Σ (s − f(u)ᵀ C h(y))² over all labels, and F C Hᵀ."""

    x: Coefficients
    iterations: int
    residual: float
    power: Float[np.ndarray, "a b"]
    misfit: Float[np.ndarray, " S"]
    labels: int
    fitted: Values

    def variance(self, noise: float) -> Float[np.ndarray, " S"]:
        """As `System.variance`."""
        return (self.misfit / noise + np.sum(np.square(self.x, dtype=np.float64), axis=(1, 2))) / self.labels


class DenseLabels:
    """The labels of N functions as arrays over all M locations: what `System` is, without programs of JAX.

    With a nugget, labels are weighted by the inverse covariance of their noise.
    """

    def __init__(self, queries: Queries, values: Values):
        self.values, self.locations = values, len(queries.points)
        self.index = np.asarray(queries.index) if isinstance(queries, Indexed) else None
        if self.index is not None:
            self.sums, self.counts = self._at_locations(values), self._at_locations(np.ones_like(values[:1]))[0]

    def solve(
        self, f: Matrix, h: Matrix, noise: float, nugget: float,
        accuracy: tuple[float, int], *, table: Table | GridTable | None = None, start: Values | None = None,
        report: IterationCallback | None = None,
    ) -> DenseSolution:  # fmt: skip
        """The coefficients for features f of the functions and h of the locations, which a table may multiply faster.

        The iteration may start from values at all locations, such as `fitted` for other features: where there are no
        labels they stand for them, and the equation with all labels is solved by a division.
        """
        if self.index is None:
            return self._solve_all(f, h, noise, nugget)
        weights = self._weights(h, nugget / noise) if nugget else None
        power, table = self._power(f, h, weights), table or Table(h)
        at_locations, adjoint = table.values, table.adjoint  # from a module they are made anew each time

        def normal(c: Coefficients) -> Coefficients:
            values = at_locations(f @ c)
            values = values * self.counts if weights is None else self._weighted(self._at_labels(values), weights)
            return f.T @ adjoint(values) + noise * c

        right = self.sums if weights is None else self._weighted(self.values, weights)
        first = None
        if start is not None and np.isfinite(start).all():
            sizes = np.multiply.outer(np.sum(f**2, axis=0), np.sum(h**2, axis=0))
            first = f.T @ self.completed(start) @ h / (sizes + noise)
        right, preconditioner = f.T @ (right @ h), 1.0 / (power + noise)
        c, count, residual = conjugate_gradients(normal, right, preconditioner, first, accuracy, report)
        fitted = f @ c @ h.T
        left = self.values - self._at_labels(fitted)
        squares = left * (left if weights is None else _times(weights, left))
        misfit = np.sum(squares, axis=(1, 2), dtype=np.float64)
        return DenseSolution(c, count, residual, power, np.asarray(misfit), self.values[0].size, fitted)

    def completed(self, values: Values) -> Values:
        """The labels at all locations, and other values where there are none."""
        if self.index is None:
            return self.values
        return np.where(self.counts > 0.0, self.sums / np.maximum(self.counts, 1.0), values)

    def _solve_all(self, f: Matrix, h: Matrix, noise: float, nugget: float) -> DenseSolution:
        """The same for labels at all locations: in orthogonal features it is a division."""
        (of_f, turn_f), (of_h, turn_h) = diagonalized(f.T @ f), diagonalized(h.T @ h)
        shrunk, g = 1.0 / (1.0 + nugget / noise * of_h), h @ turn_h
        c = ((f @ turn_f).T @ self.values @ g * shrunk) / (np.multiply.outer(of_f, of_h * shrunk) + noise)
        c = turn_f @ c
        fitted = f @ c @ g.T
        left = self.values - fitted
        along = left @ g
        squares = np.sum(left**2, axis=(1, 2), dtype=np.float64)
        squares -= np.sum(along**2 * (nugget / noise * shrunk), axis=(1, 2), dtype=np.float64)
        power = np.multiply.outer(np.sum(f**2, axis=0), turn_h**2 @ (of_h * shrunk))
        return DenseSolution(c @ turn_h.T, 1, 0.0, power, np.asarray(squares), self.values[0].size, fitted)

    def _weights(self, h: Matrix, ratio: float) -> Weights:
        """(1 + ratio h hᵀ)⁻¹ for the labels of each function, the inverse covariance of their noise."""
        assert self.index is not None
        covariance, one = ratio * (h @ h.T), np.eye(self.index.shape[1], dtype=h.dtype)
        return np.stack([np.linalg.inv(one + covariance[np.ix_(index, index)]) for index in self.index])

    def _power(self, f: Matrix, h: Matrix, weights: Weights) -> Float[np.ndarray, "a b"]:
        """Σ f_a(u)² h_b(y)² over all labels."""
        assert self.index is not None
        if weights is None:
            return (f**2).T @ (self.counts @ h**2)
        each = zip(weights, (h[index] for index in self.index), strict=True)
        return (f**2).T @ np.stack([np.sum((weight @ own) * own, axis=0) for weight, own in each])

    def _weighted(self, values: Values, weights: Weights) -> Values:
        return self._at_locations(_times(weights, values))

    def _at_labels(self, values: Values) -> Values:
        assert self.index is not None
        return np.take_along_axis(values, self.index[None], axis=2)

    def _at_locations(self, values: Values) -> Values:
        """The sum of the labels of each function at each location."""
        S, N, _ = values.shape
        cells = (np.arange(N)[:, None] * self.locations + self.index).ravel()
        sums = [np.bincount(cells, each.ravel(), N * self.locations) for each in values]
        return np.stack(sums).reshape(S, N, -1).astype(values.dtype)


def _times(weights: Weights, values: Values) -> Values:
    """The labels of each function, multiplied by its matrix."""
    assert weights is not None
    return np.matmul(weights, values[..., None])[..., 0]
