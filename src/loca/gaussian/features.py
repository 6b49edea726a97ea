"""The kernels k_U on encoded input functions and k_Y on locations, and their features."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.domains import Domain, embed
from loca.kernels import Matern
from loca.parameters import Fixed, Held

NEGLIGIBLE = {"float32": 1e-8, "float64": 1e-12}
"""Features with eigenvalues below this fraction of the largest are zero. In single precision a kernel has errors of
about 1e-7, which λ^(−1/2) would amplify to the size of such a feature."""


class InputKernel(Fixed):
    """k_U(z, z′) = α + β x·x′ + k(‖x − x′‖/l) with x = ρ ⊙ z, and k the Matérn kernel of order 5/2.

    The constant α lets all functions share a mean field, β gives weight to linear operators, and the Matérn term learns
    what is left.
    """

    bias: Float[Array, ""]  # α ≥ 0
    linear: Float[Array, ""]  # β ≥ 0
    length: Float[Array, ""]  # l > 0
    scales: Float[Array, " d"]  # ρ, the weight of every component of a code

    @eqx.filter_jit
    def matrix(self, z: Float[Array, "N d"], z_: Float[Array, "R d"]) -> Float[Array, "N R"]:
        """k_U for every pair of codes."""
        x, x_ = z * self.scales, z_ * self.scales
        return self.bias + self.linear * (x @ x_.T) + matern(x / self.length, x_ / self.length)

    def diagonal(self, z: Float[Array, "N d"]) -> Float[Array, " N"]:
        """k_U(z, z)."""
        return self.bias + self.linear * jnp.sum((z * self.scales) ** 2, axis=-1) + 1.0


class InputFeatures(Fixed):
    """f(z) = Wᵀ k_U(Z, z), so that f(z)·f(z′) ≈ k_U(z, z′): exact if z or z′ is one of the landmarks Z."""

    kernel: InputKernel
    landmarks: Float[Array, "R d"]
    projection: Float[Array, "R r"]

    @classmethod
    def fit(
        cls, kernel: InputKernel, landmarks: Float[Array, "R d"], rank: int, precision: str = "float32"
    ) -> InputFeatures:
        """The features with the `rank` largest eigenvalues of k_U on the landmarks, for use in some precision."""
        _, projection = _leading(np.asarray(kernel.matrix(landmarks, landmarks)), rank, precision)
        return cls(kernel, landmarks, jnp.asarray(projection, landmarks.dtype))

    def __call__(self, z: Float[Array, "N d"]) -> Float[Array, "N r"]:
        return self.kernel.matrix(z, self.landmarks) @ self.projection

    def turned(self, rotation: Float[Array, "r r"]) -> InputFeatures:
        """The features f R for an orthogonal matrix R, which have the same kernel."""
        return InputFeatures(self.kernel, self.landmarks, self.projection @ rotation)


def _leading(
    matrix: Float[np.ndarray, "n n"], rank: int, precision: str = "float32"
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "n r"]]:
    """The largest eigenvalues λ of a symmetric matrix, in decreasing order, and the eigenvectors times λ^(−1/2).

    Features are a kernel times these. Eigenvalues that are negligible in the precision of the features give zero: the
    number of features is fixed, so programs for them are compiled once.
    """
    values, vectors = np.linalg.eigh(np.asarray(matrix, np.float64))
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    kept = values > NEGLIGIBLE[precision] * values[0]
    return np.where(kept, values, 0.0), vectors * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)


LANDMARKS = 2
"""Landmarks per feature where locations form no grid."""

FILLED = 2.0
"""Locations are points of a grid, in any order, if that grid has at most this number of points for each of them."""


class LocationFeatures(Fixed):
    """h : Y → ℝʳ with h(y)·h(y′) ≈ k_Y(y, y′), a Matérn kernel of order 5/2 on the domain; k_Y(y, y) = 1."""

    @abc.abstractmethod
    def __call__(self, y: Float[Array, "P d_y"]) -> Float[Array, "P r"]:
        """h(y)."""

    @property
    @abc.abstractmethod
    def rank(self) -> int:
        """r, the number of features."""


class GridFeatures(LocationFeatures):
    """k_Y(y, y′) = Πᵢ k(ρᵢ|yᵢ − y′ᵢ|) on a grid: products of the eigenvectors of each axis, exact on the grid.

    A periodic coordinate enters by the chord of its circle.
    """

    rates: Float[Array, " d_y"]
    axes: tuple[Float[Array, " n"], ...]
    projections: tuple[Float[Array, "n k"], ...]
    index: Int[Array, "d_y r"]
    periods: tuple[float | None, ...] = eqx.field(static=True)

    @classmethod
    def fit(
        cls, axes: Sequence[Float[np.ndarray, " n"]], rates: Float[np.ndarray, " d_y"],
        periods: tuple[float | None, ...], rank: int,
    ) -> GridFeatures:  # fmt: skip
        """The `rank` products with the largest eigenvalues."""
        products, projections = np.ones(()), []
        for axis, rate, period in zip(axes, rates, periods, strict=True):
            points = jnp.asarray(axis, float)
            values, projection = _leading(np.asarray(_along_axis(points, points, float(rate), period)), len(axis))
            products = np.multiply.outer(products, values)
            projections.append(jnp.asarray(projection, float))
        chosen = np.argsort(-products, axis=None, kind="stable")[:rank]
        index = np.stack(np.unravel_index(chosen, products.shape))
        return cls(jnp.asarray(rates, float), tuple(jnp.asarray(a, float) for a in axes), tuple(projections),
                   jnp.asarray(index, jnp.int32), periods)  # fmt: skip

    @property
    def rank(self) -> int:
        return self.index.shape[1]

    @property
    def products(self) -> Int[Array, " r"]:
        """The numbers of the features among all products of eigenvectors."""
        return jnp.ravel_multi_index(tuple(self.index), tuple(map(len, self.axes)), mode="clip")

    def on_axes(self) -> tuple[Float[Array, "n n"], ...]:
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

    def __call__(self, y: Float[Array, "P d_y"]) -> Float[Array, "P r"]:
        h = jnp.ones((y.shape[0], self.rank), y.dtype)
        for i, (axis, projection, period) in enumerate(zip(self.axes, self.projections, self.periods, strict=True)):
            h = h * (_along_axis(y[:, i], axis, self.rates[i], period) @ projection)[:, self.index[i]]
        return h


class PointFeatures(LocationFeatures):
    """k_Y(y, y′) = k(‖ρ ⊙ (e(y) − e(y′))‖) from landmarks among the locations; e places Y in a Euclidean space.

    On a sphere distances are chords; a periodic coordinate becomes a circle.
    """

    rates: Float[Array, " l"]
    landmarks: Float[Array, "R l"]
    projection: Float[Array, "R r"]
    periods: tuple[float | None, ...] = eqx.field(static=True)
    is_geographic: bool = eqx.field(static=True)

    @classmethod
    def fit(
        cls, domain: Domain, landmarks: Float[np.ndarray, "R d_y"], rates: Float[np.ndarray, " _"], rank: int
    ) -> PointFeatures:
        """The features with the `rank` largest eigenvalues on the landmarks."""
        periods, is_geographic = tuple(domain.periods), domain.is_geographic
        repeats = [3] if is_geographic else [1 if period is None else 2 for period in periods]
        scales = jnp.asarray(np.repeat(rates, repeats), float)
        points = embed(jnp.asarray(landmarks, float), periods, is_geographic) * scales
        _, projection = _leading(np.asarray(matern(points, points)), rank)
        return cls(scales, points, jnp.asarray(projection, float), periods, is_geographic)

    @property
    def rank(self) -> int:
        return self.projection.shape[1]

    def __call__(self, y: Float[Array, "P d_y"]) -> Float[Array, "P r"]:
        return matern(embed(y, self.periods, self.is_geographic) * self.rates, self.landmarks) @ self.projection

    def turned(self, y: Float[Array, "M d_y"], counts: Float[np.ndarray, " M"]) -> PointFeatures:
        """Features with the same kernel that are orthogonal over locations y, which occur `counts` times."""
        h = np.asarray(self(y), np.float64)
        _, rotation = np.linalg.eigh(h.T @ (counts[:, None] * h))
        return eqx.tree_at(lambda f: f.projection, self, self.projection @ rotation)


def location_features(
    domain: Domain, y: Float[Array, "M d_y"], lengths: Sequence[float], rank: int
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
    chosen = np.sort(np.random.default_rng(0).permutation(len(points))[: LANDMARKS * rank])
    return PointFeatures.fit(domain, points[chosen], rates, min(rank, len(chosen)))


def grid_axes(domain: Domain, points: Float[np.ndarray, "M d_y"]) -> list[Float[np.ndarray, " n"]]:
    """The coordinates along each axis of the grid that locations are points of; none if they form no grid."""
    axes = [np.unique(column) for column in points.T]
    return axes if domain.is_flat and math.prod(map(len, axes)) <= FILLED * len(points) else []


@jax.jit
def matern(a: Float[Array, "P l"], b: Float[Array, "R l"]) -> Float[Array, "P R"]:
    """The Matérn kernel of order 5/2 and rate 1."""
    return Matern(2.5, Held(1.0)).matrix(a, b)


@functools.partial(jax.jit, static_argnames="period")
def _along_axis(
    a: Float[Array, " P"], b: Float[Array, " n"], rate: Float[Array, ""] | float, period: float | None
) -> Float[Array, "P n"]:
    """The Matérn kernel of one coordinate; of the chord, if it is periodic."""
    difference = a[:, None] - b[None, :]
    if period is not None:
        difference = period / math.pi * jnp.sin(math.pi * difference / period)
    t = math.sqrt(5.0) * rate * jnp.abs(difference)
    return (1.0 + t + t**2 / 3.0) * jnp.exp(-t)
