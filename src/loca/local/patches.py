"""Polynomials of the values around every point of a grid, which is extended to a torus where its ends do not meet."""

from __future__ import annotations

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.parameters import Fixed

HIGHEST = jax.lax.Precision.HIGHEST

DIRECT = 64
"""Points of a linear part, at most, that are added one by one; with more the Fourier transform is faster."""


class Axis(Fixed):
    """How fields go on beyond the ends of an axis.

    **Arguments:**

    - `count`: the number of points.
    - `kind`: `"periodic"`; or the place around which fields are reflected: a `"point"`, the last one, or a `"face"`,
      half a spacing beyond it.
    - `odd`: the numbers of the channels that change their sign there.
    """

    count: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    odd: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def source(self) -> Int[np.ndarray, " n"]:
        """The points with the values of all points of the torus."""
        there = np.arange(self.count)
        back = {"periodic": there[:0], "point": there[-2:0:-1], "face": there[::-1]}[self.kind]
        return np.concatenate([there, back])


class Torus(Fixed):
    """A grid whose axes are extended so that all of them are periodic."""

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the grid."""
        return tuple(axis.count for axis in self.axes)

    @property
    def whole(self) -> tuple[int, ...]:
        """That of the torus."""
        return tuple(len(axis.source) for axis in self.axes)

    @property
    def dims(self) -> tuple[int, ...]:
        """The axes of the grid in an array where they are the last."""
        return tuple(range(-len(self.axes), 0))

    def extend(self, u: Float[Array, "*B c m"], first: int = 0) -> Float[Array, "*B c *torus"]:
        """Fields on the torus; the first of them is the channel of this number."""
        channels = range(first, first + u.shape[-2])
        u = u.reshape(*u.shape[:-1], *self.shape)
        for dim, axis in zip(self.dims, self.axes, strict=True):
            if axis.kind != "periodic":
                signs = np.ones((len(channels), len(axis.source)))
                signs[[c in axis.odd for c in channels], axis.count :] = -1.0
                signs = signs.reshape(len(signs), *(-1 if i == dim else 1 for i in self.dims))
                u = jnp.take(u, axis.source, axis=dim) * jnp.asarray(signs, u.dtype)
        return u

    def crop(self, u: Float[Array, "*B *torus"]) -> Float[Array, "*B m"]:
        """The part of the torus that is the grid."""
        u = u[(..., *(slice(n) for n in self.shape))]
        return u.reshape(*u.shape[: u.ndim - len(self.axes)], -1)

    def spectrum(self, u: Float[Array, "*B c m"], first: int = 0) -> Array:
        """Fourier coefficients of fields on the torus; the first of them is the channel of this number."""
        return jnp.fft.rfftn(self.extend(u, first), axes=self.dims)

    def field(self, h: Array) -> Float[Array, "*B c m"]:
        """The fields that have these coefficients."""
        return self.crop(jnp.fft.irfftn(h, s=self.whole, axes=self.dims))


class Patch(Fixed):
    """Monomials of values in balls around a point: of degree p in the p-th ball.

    **Arguments:**

    - `reaches`: the radii of the balls in cells, which do not grow; below 0 there are none of this degree.
    - `channels`: of the fields.
    - `uniform`: numbers of the channels that have the same value everywhere, of which one point is enough.
    """

    reaches: tuple[float, ...] = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    uniform: tuple[int, ...] = eqx.field(static=True)

    def points(self, degree: int, torus: Torus) -> Int[np.ndarray, "n k"]:
        """The channel and the distance of every value in a ball."""
        return _points(self, degree, torus)

    def tuples(self, degree: int, torus: Torus) -> Int[np.ndarray, "p n"]:
        """The numbers of the values in each monomial."""
        rows = itertools.combinations_with_replacement(range(len(self.points(degree, torus))), degree)
        return np.array(list(rows), int).reshape(-1, degree).T

    def count(self, torus: Torus) -> int:
        """The number of monomials, with the constant 1."""
        each = (len(self.points(p, torus)) for p in range(1, len(self.reaches) + 1))
        return 1 + sum(math.comb(n + p - 1, p) for p, n in enumerate(each, 1))

    def radii(self, torus: Torus) -> tuple[Int[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """The degree of every monomial, and the distance of its farthest value."""
        degrees, radii = [np.zeros(1, int)], [np.zeros(1)]
        for degree in range(1, len(self.reaches) + 1):
            distance = np.linalg.norm(self.points(degree, torus)[:, 1:], axis=1)
            found = distance[self.tuples(degree, torus)].max(axis=0)
            degrees.append(np.full(len(found), degree))
            radii.append(found)
        return np.concatenate(degrees), np.concatenate(radii)

    def features(
        self, torus: Torus, u: Float[Array, "B c *torus"], places: Int[Array, " P"] | None = None
    ) -> Float[Array, "B P K"]:
        """All monomials at some points of the grid, or at all of them."""
        at = np.stack(np.unravel_index(np.arange(math.prod(torus.shape)), torus.shape))
        at = at if places is None else jnp.asarray(at)[:, places]
        found = [jnp.ones((u.shape[0], 1, at.shape[1]), u.dtype)]
        for degree in range(1, len(self.reaches) + 1):
            channel, *offsets = self.points(degree, torus).T
            if len(channel):
                index = ((x + r[:, None]) % n for x, r, n in zip(at, offsets, torus.whole, strict=True))
                values = u[(slice(None), channel[:, None], *index)]
                found.append(functools.reduce(jnp.multiply, (values[:, i] for i in self.tuples(degree, torus))))
        return jnp.moveaxis(jnp.concatenate(found, axis=1), 1, 2)

    def __call__(
        self, torus: Torus, u: Float[Array, "B c *torus"], weights: Float[Array, "K o"]
    ) -> Float[Array, "B o m"]:
        """Σ w x at all points, without the features themselves."""
        outputs, size = weights.shape[1], math.prod(torus.shape)
        found = jnp.broadcast_to(weights[0][:, None], (u.shape[0], outputs, size))
        first = 1 + len(self.points(1, torus))
        found = found + self._linear(torus, u, weights[1:first])
        counts = [len(self.points(p, torus)) for p in range(2, len(self.reaches) + 1)]
        if any(counts):
            z = self._values(torus, u, self.points(2, torus))
            second = first + math.comb(counts[0] + 1, 2)
            square = jnp.zeros((outputs, counts[0], counts[0]), u.dtype)
            square = square.at[:, *self.tuples(2, torus)].set(weights[first:second].T)
            found = found + _sum(square, z, [z[i] for i in range(counts[0])], u.shape[0])
            if len(counts) > 1 and counts[1]:
                z, (i, j, k) = self._values(torus, u, self.points(3, torus)), self.tuples(3, torus)
                pairs = list(itertools.combinations_with_replacement(range(counts[1]), 2))
                number = np.zeros((counts[1],) * 2, int)
                number[*np.array(pairs).T] = np.arange(len(pairs))
                cube = jnp.zeros((outputs, len(pairs), counts[1]), u.dtype)
                cube = cube.at[:, number[i, j], k].set(weights[second:].T)
                found = found + _sum(cube, z, [z[i] * z[j] for i, j in pairs], u.shape[0])
        return found

    def _linear(
        self, torus: Torus, u: Float[Array, "B c *torus"], weights: Float[Array, "n o"]
    ) -> Float[Array, "B o m"]:
        """Σ w u(y + r): a convolution."""
        points = self.points(1, torus)
        if len(points) <= DIRECT:
            z = jnp.matmul(weights.T, self._values(torus, u, points), precision=HIGHEST)
            return jnp.moveaxis(z.reshape(len(z), u.shape[0], -1), 1, 0)
        channel, *offsets = points.T
        index = ((-r) % n for r, n in zip(offsets, torus.whole, strict=True))
        kernel = jnp.zeros((weights.shape[1], u.shape[1], *torus.whole), u.dtype).at[:, channel, *index].set(weights.T)
        kernel, h = (jnp.fft.rfftn(each, axes=torus.dims) for each in (kernel, u))
        return torus.field(jnp.sum(kernel * h[:, None], axis=2))

    def _values(self, torus: Torus, u: Float[Array, "B c *torus"], points: np.ndarray) -> Float[Array, "n M"]:
        """The values at these distances from all points."""
        reach = int(np.abs(points[:, 1:]).max(initial=0))
        if reach:
            for dim, n in zip(torus.dims, torus.whole, strict=True):
                before, after = (jax.lax.slice_in_dim(u, *ends, axis=dim) for ends in ((n - reach, n), (0, reach)))
                u = jnp.concatenate([before, u, after], axis=dim)
        parts = []
        for channel, *offset in points.tolist():
            window = (slice(reach + r, reach + r + n) for r, n in zip(offset, torus.shape, strict=True))
            parts.append(u[(slice(None), channel, *window)].ravel())
        return jnp.stack(parts)


def _sum(
    matrices: Float[Array, "o p n"], z: Float[Array, "n M"], factors: list[Float[Array, " M"]], count: int
) -> Float[Array, "B o m"]:
    """Σ_p f_p (A_o z)_p: one product of matrices, and one loop over all points."""
    outputs, rows, _ = matrices.shape
    lines = jnp.matmul(matrices.reshape(outputs * rows, -1), z, precision=HIGHEST).reshape(outputs, rows, -1)
    found = functools.reduce(jnp.add, (factor * lines[:, p] for p, factor in enumerate(factors)))
    return jnp.moveaxis(found.reshape(outputs, count, -1), 1, 0)


@functools.lru_cache(maxsize=256)
def _points(patch: Patch, degree: int, torus: Torus) -> Int[np.ndarray, "n k"]:
    reach = patch.reaches[degree - 1] + 1e-6
    ranges = (range(-min(int(reach), (n - 1) // 2), min(int(reach), n // 2) + 1) for n in torus.whole)
    offsets = [r for r in itertools.product(*ranges) if math.hypot(*r) <= reach]
    every = [c for c in range(patch.channels) if c not in patch.uniform]
    rows = [(c, *r) for c in every for r in offsets]
    rows += [(c, *(0,) * len(torus.axes)) for c in patch.uniform if reach >= 0.0]
    return np.array(rows, int).reshape(-1, 1 + len(torus.axes))
