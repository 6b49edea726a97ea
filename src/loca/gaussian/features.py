"""The kernels k_U on encoded input functions and k_Y on locations, and their features."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf  # pyright: ignore[reportAttributeAccessIssue]

from loca.domains import Domain, embed
from loca.kernels import Matern
from loca.parameters import Fixed, Held

NEGLIGIBLE = {"float32": 1e-8, "float64": 1e-12}
"""Features with eigenvalues below this fraction of the largest are zero. In single precision a kernel has errors of
about 1e-7, which λ^(−1/2) would amplify to the size of such a feature."""

Numbers = Any


def of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is compiled for arrays of JAX. For those of NumPy, of any size, it is evaluated as it is."""
    program = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        of_jax = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(arguments))
        return (program if of_jax else function)(*arguments)

    return call


class InputKernel(Fixed):
    """k_U(z, z′) = α + β x·x′ + k(‖x − x′‖/l) with x = ρ ⊙ z, and k the Matérn kernel of order 5/2.

    The constant α lets all functions share a mean field, β gives weight to linear operators, and the Matérn term learns
    what is left.
    """

    bias: Float[Numbers, ""]  # α ≥ 0
    linear: Float[Numbers, ""]  # β ≥ 0
    length: Float[Numbers, ""]  # l > 0
    scales: Float[Numbers, " d"]  # ρ, the weight of every component of a code

    @of_arrays
    def matrix(self, z: Float[Numbers, "N d"], z_: Float[Numbers, "R d"]) -> Float[Numbers, "N R"]:
        """k_U for every pair of codes."""
        x, x_ = z * self.scales, z_ * self.scales
        return self.bias + self.linear * (x @ x_.T) + matern(x / self.length, x_ / self.length)

    def diagonal(self, z: Float[Numbers, "N d"]) -> Float[Numbers, " N"]:
        """k_U(z, z)."""
        return self.bias + self.linear * ((z * self.scales) ** 2).sum(axis=-1) + 1.0


class InputFeatures(Fixed):
    """f(z) = Wᵀ k_U(Z, z), so that f(z)·f(z′) ≈ k_U(z, z′): exact if z or z′ is one of the landmarks Z."""

    kernel: InputKernel
    landmarks: Float[Numbers, "R d"]
    projection: Float[Numbers, "R r"]

    @classmethod
    def fit(
        cls, kernel: InputKernel, landmarks: Float[np.ndarray, "R d"], rank: int, precision: str = "float32"
    ) -> InputFeatures:
        """The features with the `rank` largest eigenvalues of k_U on the landmarks, for use in some precision."""
        return cls(kernel, landmarks, _leading(kernel.matrix(landmarks, landmarks), rank, precision)[1])

    def __call__(self, z: Float[Numbers, "N d"]) -> Float[Numbers, "N r"]:
        return self.kernel.matrix(z, self.landmarks) @ self.projection

    def turned(self, rotation: Float[np.ndarray, "r r"]) -> InputFeatures:
        """The features f R for an orthogonal matrix R, which have the same kernel."""
        return InputFeatures(self.kernel, self.landmarks, self.projection @ rotation)


def _leading(
    matrix: Float[np.ndarray, "n n"], rank: int, precision: str = "float32"
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "n r"]]:
    """The largest eigenvalues λ of a symmetric matrix, in decreasing order, and the eigenvectors times λ^(−1/2).

    Features are a kernel times these. Eigenvalues that are negligible in the precision of the features give zero: the
    number of features is fixed, so programs for them are compiled once.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    kept = values > NEGLIGIBLE[precision] * values[0]
    return np.where(kept, values, 0.0), vectors * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)


def diagonalized(matrix: Float[np.ndarray, "r r"]) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "r r"]]:
    """Eigenvalues and eigenvectors of a symmetric matrix; the unit vectors if it is diagonal."""
    diagonal = np.diag(matrix)
    sizes = np.sqrt(diagonal)
    if np.all(np.abs(matrix - np.diag(diagonal)) <= DIAGONAL[str(matrix.dtype)] * np.multiply.outer(sizes, sizes)):
        return diagonal, np.eye(len(matrix), dtype=matrix.dtype)
    return np.linalg.eigh(matrix)


DIAGONAL = {"float32": 1e-5, "float64": 1e-12}
"""Products of vectors below this fraction of their lengths are round-off."""

CANDIDATES = 2
"""Locations per feature, at most, among which landmarks are chosen where locations form no grid."""

SMALLEST = 1e-9
"""Landmarks end when the kernel given those before is this small everywhere."""

FILLED = 2.0
"""Locations are points of a grid, in any order, if that grid has at most this number of points for each of them."""


class LocationFeatures(Fixed):
    """h : Y → ℝʳ with h(y)·h(y′) ≈ k_Y(y, y′), a Matérn kernel of order 5/2 on the domain; k_Y(y, y) = 1."""

    @abc.abstractmethod
    def __call__(self, y: Float[Numbers, "P d_y"]) -> Float[Numbers, "P r"]:
        """h(y)."""

    @property
    @abc.abstractmethod
    def rank(self) -> int:
        """r, the number of features."""


class GridFeatures(LocationFeatures):
    """k_Y(y, y′) = Πᵢ k(ρᵢ|yᵢ − y′ᵢ|) on a grid: products of the eigenvectors of each axis, exact on the grid.

    A periodic coordinate enters by the chord of its circle.
    """

    rates: Float[Numbers, " d_y"]
    axes: tuple[Float[Numbers, " n"], ...]
    projections: tuple[Float[Numbers, "n k"], ...]
    index: Int[Numbers, "d_y r"]
    periods: tuple[float | None, ...] = eqx.field(static=True)

    @classmethod
    def fit(
        cls, axes: Sequence[Float[np.ndarray, " n"]], rates: Float[np.ndarray, " d_y"],
        periods: tuple[float | None, ...], rank: int,
    ) -> GridFeatures:  # fmt: skip
        """The `rank` products with the largest eigenvalues."""
        products, projections = np.ones(()), []
        for axis, rate, period in zip(axes, rates, periods, strict=True):
            values, projection = _leading(_along_axis(axis, axis, rate, period), len(axis))
            products = np.multiply.outer(products, values)
            projections.append(projection)
        chosen = np.argsort(-products, axis=None, kind="stable")[:rank]
        index = np.stack(np.unravel_index(chosen, products.shape))
        return cls(np.asarray(rates), tuple(axes), tuple(projections), index.astype(np.int32), periods)

    @property
    def rank(self) -> int:
        return self.index.shape[1]

    @property
    def products(self) -> Int[Array, " r"]:
        """The numbers of the features among all products of eigenvectors."""
        return jnp.ravel_multi_index(tuple(self.index), tuple(map(len, self.axes)), mode="clip")

    def on_axes(self) -> tuple[Float[Numbers, "n n"], ...]:
        """The factors of the features at the points of each axis."""
        every = zip(self.rates, self.axes, self.projections, self.periods, strict=True)
        return tuple(_along_axis(axis, axis, rate, period) @ projection for rate, axis, projection, period in every)

    def cells(self, y: Float[Array, "M d_y"]) -> Int[Array, " M"] | None:
        """The numbers of locations among all points of the grid; None if one of them is not such a point."""
        places = []
        for values, axis in zip(np.asarray(y, np.float64).T, map(np.asarray, self.axes), strict=True):
            place = np.minimum(np.searchsorted(axis, values), len(axis) - 1)
            if not np.array_equal(axis[place], values):
                return None
            places.append(place)
        return jnp.asarray(np.ravel_multi_index(places, [len(axis) for axis in self.axes]), jnp.int32)

    def __call__(self, y: Float[Numbers, "P d_y"]) -> Float[Numbers, "P r"]:
        every = enumerate(zip(self.axes, self.projections, self.periods, strict=True))
        factors = [_along_axis(y[:, i], axis, self.rates[i], period) @ matrix for i, (axis, matrix, period) in every]
        return math.prod(factor[:, columns] for factor, columns in zip(factors, self.index, strict=True))


class PointFeatures(LocationFeatures):
    """k_Y(y, y′) = k(‖ρ ⊙ (e(y) − e(y′))‖), exact at landmarks among the locations; e places Y in a Euclidean space.

    On a sphere distances are chords; a periodic coordinate becomes a circle.
    """

    rates: Float[Numbers, " l"]
    landmarks: Float[Numbers, "R l"]
    projection: Float[Numbers, "R r"]
    periods: tuple[float | None, ...] = eqx.field(static=True)
    is_geographic: bool = eqx.field(static=True)

    @classmethod
    def fit(
        cls, domain: Domain, locations: Float[np.ndarray, "M d_y"], rates: Float[np.ndarray, " _"], rank: int
    ) -> PointFeatures:
        """The features of the landmarks that a Cholesky factorization with pivots chooses, one after the other.

        It takes the location that those before it tell the least about. The number of features is fixed, so programs
        for them are compiled once: those after the last landmark are zero.
        """
        periods, is_geographic = tuple(domain.periods), domain.is_geographic
        repeats = [3] if is_geographic else [1 if period is None else 2 for period in periods]
        scales = np.repeat(rates, repeats)
        points = _embedded(locations, periods, is_geographic) * scales
        factor, order, count, _ = dpstrf(matern(points, points), tol=SMALLEST, lower=1)
        count, projection = min(count, rank), np.zeros((rank, rank))
        projection[:count, :count] = solve_triangular(factor[:count, :count], np.eye(count), lower=True).T
        return cls(scales, points[order[:rank] - 1], projection, periods, is_geographic)

    @property
    def rank(self) -> int:
        return self.projection.shape[1]

    def __call__(self, y: Float[Numbers, "P d_y"]) -> Float[Numbers, "P r"]:
        return matern(_embedded(y, self.periods, self.is_geographic) * self.rates, self.landmarks) @ self.projection

    def turned(self, y: Float[np.ndarray, "M d_y"], counts: Float[np.ndarray, " M"]) -> PointFeatures:
        """Features with the same kernel that are orthogonal over locations y, which occur `counts` times."""
        h = self(y)
        _, rotation = np.linalg.eigh(h.T @ (counts[:, None] * h))
        return eqx.tree_at(lambda f: f.projection, self, self.projection @ rotation)


def _embedded(
    y: Float[Numbers, "P d_y"], periods: tuple[float | None, ...], is_geographic: bool
) -> Float[Numbers, "P l"]:
    """Locations in a Euclidean space, as an array of the same kind."""
    if isinstance(y, jax.Array):
        return embed(y, periods, is_geographic)
    if not is_geographic and not any(periods):
        return y
    with jax.enable_x64(True):
        return np.asarray(embed(jnp.asarray(y), periods, is_geographic))


def location_features(
    domain: Domain, y: Float[np.ndarray, "M d_y"], lengths: Sequence[float], rank: int
) -> LocationFeatures:
    """At most `rank` features of locations y: by axes if these form a grid of a flat domain, else by landmarks.

    Lengths of the kernel are fractions of the extent of each coordinate; on a sphere there is one, in units of its
    radius.
    """
    points = np.asarray(y, np.float64)
    if domain.is_geographic:
        rates = 1.0 / np.asarray(lengths[:1])
    else:
        rates = 1.0 / (np.asarray(lengths) * np.array([high - low for low, high in domain.bounds]))
    if axes := grid_axes(domain, points):
        return GridFeatures.fit(axes, rates, tuple(domain.periods), rank)
    candidates = np.sort(np.random.default_rng(0).permutation(len(points))[: CANDIDATES * rank])
    return PointFeatures.fit(domain, points[candidates], rates, min(rank, len(candidates)))


def grid_axes(domain: Domain, points: Float[np.ndarray, "M d_y"]) -> list[Float[np.ndarray, " n"]]:
    """The coordinates along each axis of the grid that locations are points of; none if they form no grid."""
    axes = [np.unique(column) for column in points.T]
    return axes if domain.is_flat and math.prod(map(len, axes)) <= FILLED * len(points) else []


@of_arrays
def matern(a: Float[Numbers, "P l"], b: Float[Numbers, "R l"]) -> Float[Numbers, "P R"]:
    """The Matérn kernel of order 5/2 and rate 1."""
    if isinstance(a, jax.Array) or isinstance(b, jax.Array):
        return Matern(2.5, Held(1.0)).matrix(jnp.asarray(a), jnp.asarray(b))
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2.0 * (a @ b.T)
    t = np.sqrt(5.0 * np.maximum(squares, 0.0))
    return (1.0 + t + t**2 / 3.0) * np.exp(-t)


@of_arrays
def _along_axis(
    a: Float[Numbers, " P"], b: Float[Numbers, " n"], rate: Float[Numbers, ""] | float, period: float | None
) -> Float[Numbers, "P n"]:
    """The Matérn kernel of one coordinate; of the chord, if it is periodic."""
    xp = jnp if isinstance(a, jax.Array) else np
    difference = a[:, None] - b[None, :]
    if period is not None:
        difference = period / math.pi * xp.sin(math.pi * difference / period)
    t = math.sqrt(5.0) * rate * xp.abs(difference)
    return (1.0 + t + t**2 / 3.0) * xp.exp(-t)
