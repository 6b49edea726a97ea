"""Gaussian operators: Gaussian processes over pairs (u, y), which are solved for instead of trained."""

from __future__ import annotations

import abc
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.attention import Channels
from loca.data import Normalization, grid_shape
from loca.domains import Domain, unit_vectors
from loca.encoders import Encoder
from loca.kernels import Matern
from loca.models.separable import Basis, SeparableOperator
from loca.parameters import Fixed, Held

NEGLIGIBLE = 1e-10
"""Eigenvalues below this fraction of the largest are round-off and are dropped."""


class InputKernel(Fixed):
    """k_U(z, z′) = α + β z·z′ + k(‖ρ ⊙ (z − z′)‖), with k the Matérn kernel of order 5/2.

    The constant α lets all functions share a mean field, β gives weight to linear operators, and the Matérn term learns
    what is left.

    **Arguments:**

    - `bias`: α ≥ 0.
    - `linear`: β ≥ 0.
    - `rates`: ρ, an inverse length for every component of a code.
    """

    bias: Float[Array, ""]
    linear: Float[Array, ""]
    rates: Float[Array, " d"]

    def matrix(self, z: Float[Array, "N d"], z_: Float[Array, "R d"]) -> Float[Array, "N R"]:
        """k_U for every pair of codes."""
        matern = Matern(2.5, Held(1.0)).matrix(z * self.rates, z_ * self.rates)
        return self.bias + self.linear * (z @ z_.T) + matern

    def diagonal(self, z: Float[Array, "N d"]) -> Float[Array, " N"]:
        """k_U(z, z)."""
        return self.bias + self.linear * jnp.sum(z**2, axis=-1) + 1.0


class InputFeatures(Fixed):
    """f(z) = Wᵀ k_U(Z, z), so that f(z)·f(z′) ≈ k_U(z, z′): exact if z or z′ is one of the landmarks Z.

    Build it with `InputFeatures.fit`.
    """

    kernel: InputKernel
    landmarks: Float[Array, "R d"]
    projection: Float[Array, "R r"]

    @classmethod
    def fit(cls, kernel: InputKernel, landmarks: Float[Array, "R d"], rank: int) -> InputFeatures:
        """The features with the `rank` largest eigenvalues of k_U on the landmarks."""
        values, vectors = leading(np.asarray(kernel.matrix(landmarks, landmarks)), rank)
        return cls(kernel, landmarks, jnp.asarray(vectors / np.sqrt(values), landmarks.dtype))

    def __call__(self, z: Float[Array, "N d"]) -> Float[Array, "N r"]:
        return self.kernel.matrix(z, self.landmarks) @ self.projection


class LocationFeatures(Fixed):
    """h : Y → ℝʳ with h(y)·h(y′) ≈ k_Y(y, y′), a Matérn kernel of order 5/2 on the domain."""

    @abc.abstractmethod
    def __call__(self, y: Float[Array, "P d_y"]) -> Float[Array, "P r"]:
        """h(y)."""


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
        cls, axes: list[Float[np.ndarray, " n"]], rates: Float[np.ndarray, " d_y"], periods: tuple[float | None, ...],
        rank: int,
    ) -> GridFeatures:  # fmt: skip
        """The `rank` products with the largest eigenvalues."""
        found = []
        for axis, rate, period in zip(axes, rates, periods, strict=True):
            points = jnp.asarray(axis, float)
            found.append(leading(np.asarray(along_axis(points, points, rate, period)), len(axis)))
        products = found[0][0]
        for values, _ in found[1:]:
            products = np.multiply.outer(products, values)
        chosen = np.argsort(-products, axis=None, kind="stable")[:rank]
        index = np.stack(np.unravel_index(chosen, products.shape))
        projections = tuple(jnp.asarray(vectors / np.sqrt(values), float) for values, vectors in found)
        return cls(jnp.asarray(rates, float), tuple(jnp.asarray(a, float) for a in axes), projections,
                   jnp.asarray(index, jnp.int32), periods)  # fmt: skip

    def __call__(self, y: Float[Array, "P d_y"]) -> Float[Array, "P r"]:
        h = jnp.ones((len(y), self.index.shape[1]), y.dtype)
        for i, (axis, projection, period) in enumerate(zip(self.axes, self.projections, self.periods, strict=True)):
            h = h * (along_axis(y[:, i], axis, self.rates[i], period) @ projection)[:, self.index[i]]
        return h


class PointFeatures(LocationFeatures):
    """k_Y(y, y′) = k(‖e(y) − e(y′)‖) from landmarks among the locations; e places Y in a Euclidean space.

    On a sphere distances are chords.
    """

    rates: Float[Array, " l"]
    landmarks: Float[Array, "R l"]
    projection: Float[Array, "R r"]
    domain: Domain

    @classmethod
    def fit(
        cls, domain: Domain, landmarks: Float[np.ndarray, "R d_y"], rates: Float[np.ndarray, " l"], rank: int
    ) -> PointFeatures:
        """The features with the `rank` largest eigenvalues on the landmarks."""
        points = embed(domain, jnp.asarray(landmarks, float)) * jnp.asarray(rates, float)
        values, vectors = leading(np.asarray(matern(points, points)), rank)
        return cls(jnp.asarray(rates, float), points, jnp.asarray(vectors / np.sqrt(values), float), domain)

    def __call__(self, y: Float[Array, "P d_y"]) -> Float[Array, "P r"]:
        return matern(embed(self.domain, y) * self.rates, self.landmarks) @ self.projection


class GaussianOperator(SeparableOperator, Fixed):
    """F(u)(y) = Σ_ab f_a(u) C_ab h_b(y): the posterior mean of a Gaussian process with covariance k_U(u, u′)·k_Y(y, y′).

    f are features of a kernel on encoded inputs, h features of a kernel on locations; C is found by `loca.solve`, one
    matrix for each output channel.
    """

    normalization: Normalization
    encoder: Encoder
    f: InputFeatures
    h: LocationFeatures
    coefficients: Float[Array, "d_s r_u r_y"]

    def basis(self, y: Float[Array, "P d_y"]) -> Basis:
        return self._basis

    def _basis(self, y: Float[Array, "P d_y"]) -> Channels:
        return (self.h(y),) * len(self.coefficients)

    def read(self, codes: Float[Array, "*N d"]) -> Float[Array, "*N d_s n"]:
        z = codes.reshape(-1, codes.shape[-1])
        v = jnp.einsum("na,sab->nsb", self.f(z), self.coefficients)
        return v.reshape(*codes.shape[:-1], *v.shape[1:])


def location_features(
    domain: Domain, y: Float[Array, "M d_y"], lengths: Float[np.ndarray, " d_y"] | float, rank: int
) -> LocationFeatures:
    """Features of the locations of some data: by axes if they form a grid of a flat domain, else by landmarks.

    **Arguments:**

    - `domain`: Y.
    - `y`: the locations of the data.
    - `lengths`: of the kernel, as fractions of the extent of each coordinate.
    - `rank`: the number of features.
    """
    extents = np.array([high - low for low, high in domain.bounds]) if domain.is_flat else np.ones(1)
    rates = 1.0 / (np.asarray(lengths) * extents)
    points = np.asarray(y, np.float64)
    shape = grid_shape(y)
    if domain.is_flat and shape is not None and math.prod(shape) == len(points):
        axes = [np.unique(column) for column in points.T]
        return GridFeatures.fit(axes, np.broadcast_to(rates, (domain.dimension,)), domain.periods, rank)
    chosen = np.sort(np.random.default_rng(0).permutation(len(points))[: 2 * rank])
    size = embed(domain, jnp.asarray(points[:1])).shape[-1]
    return PointFeatures.fit(domain, points[chosen], np.broadcast_to(rates, (size,)), rank)


def embed(domain: Domain, y: Float[Array, "P d_y"]) -> Float[Array, "P l"]:
    """Locations in a Euclidean space in which nearby locations are near: unit vectors on a sphere."""
    return unit_vectors(y) if domain.is_geographic else y


def matern(a: Float[Array, "P l"], b: Float[Array, "R l"]) -> Float[Array, "P R"]:
    """The Matérn kernel of order 5/2 and rate 1."""
    return Matern(2.5, Held(1.0)).matrix(a, b)


def along_axis(
    a: Float[Array, " P"], b: Float[Array, " n"], rate: Float[Array, ""] | float, period: float | None
) -> Float[Array, "P n"]:
    """The Matérn kernel of one coordinate; of the chord, if it is periodic."""
    difference = a[:, None] - b[None, :]
    if period is not None:
        difference = period / math.pi * jnp.sin(math.pi * difference / period)
    t = math.sqrt(5.0) * rate * jnp.abs(difference)
    return (1.0 + t + t**2 / 3.0) * jnp.exp(-t)


def leading(
    matrix: Float[np.ndarray, "n n"], rank: int
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "n r"]]:
    """The largest eigenvalues of a symmetric matrix in decreasing order, and their eigenvectors."""
    values, vectors = np.linalg.eigh(np.asarray(matrix, np.float64))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = min(rank, max(1, int(np.sum(values > NEGLIGIBLE * values[0]))))
    return values[:kept], vectors[:, :kept]
