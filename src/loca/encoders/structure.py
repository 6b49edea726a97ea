"""Filters on grids, and the structure tensor of a field: which way it varies around every point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder, check_values
from loca.typing import Input

SCALES = (0.0, 1.2), (1.0, 2.0), (2.0, 3.0)
"""Widths in cells of the smoothing before slopes are taken, and of that of their products."""

LEAST, LONGEST = 8, 2048
"""Points of an axis that has filters: their matrices have the square of this number."""

POINTS = 1024
"""Points at which the structure tensor is taken, about: on larger grids every second, every third …"""

MEMORY = 2**22
"""Values of the functions whose structure tensors are computed at once."""

# A filter is one matrix per axis. Widths and distances are in cells, so that uneven axes need no other filters.


def smoothing(count: int, width: float, periodic: bool) -> Float[np.ndarray, "n n"]:
    """The matrix of a Gaussian filter with this standard deviation; values are reflected at ends that do not meet."""
    if width == 0.0:
        return np.eye(count)
    steps = np.arange(-math.ceil(3.0 * width), math.ceil(3.0 * width) + 1)
    weights = np.exp(-0.5 * (steps / width) ** 2)
    place = np.arange(count)[:, None] + steps
    place = place % count if periodic else count - 0.5 - np.abs(place % (2 * count) + 0.5 - count)
    matrix = np.zeros((count, count))
    np.add.at(matrix, (np.arange(count)[:, None], place.astype(int)), weights / weights.sum())
    return matrix


def slope(count: int, periodic: bool) -> Float[np.ndarray, "n n"]:
    """The matrix of central differences; one-sided ones at ends that do not meet."""
    one = np.eye(count)
    return (
        0.5 * (np.roll(one, 1, axis=1) - np.roll(one, -1, axis=1)) if periodic else np.asarray(np.gradient(one, axis=0))
    )


def curvature(count: int, periodic: bool) -> Float[np.ndarray, "n n"]:
    """The matrix of second differences; zero at ends that do not meet."""
    one = np.eye(count)
    matrix = np.roll(one, 1, axis=0) + np.roll(one, -1, axis=0) - 2.0 * one
    return matrix if periodic else matrix * (np.minimum(np.arange(count), np.arange(count)[::-1]) > 0)[:, None]


def along(field: Any, matrices: Sequence[np.ndarray | None]) -> Any:
    """The field, of NumPy or JAX, after the matrix of each of its last axes; None leaves an axis as it is."""
    for axis, matrix in enumerate(matrices, field.ndim - len(matrices)):
        if matrix is None:
            continue
        if isinstance(field, np.ndarray):
            field = np.moveaxis(np.tensordot(field, matrix.astype(field.dtype), axes=(axis, 1)), -1, axis)
            continue
        moved = jnp.moveaxis(field, axis, -1)
        moved = jnp.matmul(moved, jnp.asarray(matrix.T, field.dtype), precision=jax.lax.Precision.HIGHEST)
        field = jnp.moveaxis(moved, -1, axis)
    return field


class StructureTensor(Encoder):
    """G ∗ (∂ᵢu ∂ᵢu − ∂ⱼu ∂ⱼu, 2 ∂ᵢu ∂ⱼu) for i < j and several smoothings G; in one dimension G ∗ (∂u)².

    Products of slopes say in which direction a coefficient varies, which its values at single points do not: a medium
    of thin layers conducts along them. Build it with `StructureTensor.fit`.

    **Arguments:**

    - `shape`, `periodic`: the number of points of each axis of the grid, and whether its ends meet.
    - `sizes`: the root mean square of the products at each scale, by which they are divided.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    sizes: Float[Array, " scales"]

    @classmethod
    def fit(cls, u: Float[Array, "N m d_u"], shape: Sequence[int], periodic: Sequence[bool]) -> StructureTensor:
        """The structure tensor of functions on a grid, in units of its size for these functions."""
        plain = cls(tuple(shape), tuple(periodic), u.shape[-1], jnp.ones(len(SCALES), u.dtype))
        sizes = np.sqrt(np.mean(plain.of_many(u).reshape(len(u), len(SCALES), -1) ** 2, axis=(0, 2)))
        return cls(plain.shape, plain.periodic, plain.channels, jnp.asarray(np.where(sizes > 0.0, sizes, 1.0), u.dtype))

    def of_many(self, u: Float[Array, "N m d_u"]) -> Float[np.ndarray, "N d"]:
        """The codes of many functions, without a program of JAX."""
        size, found = max(1, MEMORY // u[0].size), []
        for start in range(0, len(u), size):
            part = np.moveaxis(np.asarray(u[start : start + size]), 2, 1)
            parts = self._smoothed(part.reshape(*part.shape[:2], *self.shape), np)
            found.append(np.concatenate([each.reshape(len(part), -1) for each in parts], axis=1))
        return np.concatenate(found)

    @property
    def size(self) -> int:
        d = len(self.shape)
        kept = math.prod(-(-count // self._stride) for count in self.shape)
        return len(SCALES) * self.channels * max(1, d * (d - 1)) * kept

    def __call__(self, u: Input) -> Float[Array, " d"]:
        values = check_values(u, math.prod(self.shape), self.channels, "StructureTensor")
        return jnp.concatenate([each.ravel() for each in self._smoothed(values.T.reshape(-1, *self.shape), jnp)])

    def _smoothed(self, field: Any, xp: Any) -> list[Any]:
        """The products at each scale, in arrays of NumPy or JAX."""
        found = []
        for (inner, outer), size in zip(SCALES, xp.asarray(self.sizes), strict=True):
            smooth = [matrix[:: self._stride] for matrix in self._smoothing(max(outer, 0.5 * self._stride))]
            found.append(along(self._products(inner, field, xp), smooth) / size)
        return found

    @property
    def _stride(self) -> int:
        return max(1, round((math.prod(self.shape) / POINTS) ** (1.0 / len(self.shape))))

    def _smoothing(self, width: float) -> list[Float[np.ndarray, "n n"]]:
        return [smoothing(count, width, wraps) for count, wraps in zip(self.shape, self.periodic, strict=True)]

    def _products(self, width: float, field: Any, xp: Any) -> Any:
        g, axes = [], range(len(self.shape))
        for axis in axes:
            matrices = self._smoothing(width)
            matrices[axis] = slope(self.shape[axis], self.periodic[axis]) @ matrices[axis]
            g.append(along(field, matrices))
        pairs = [(g[i], g[j]) for j in axes for i in range(j)]
        parts = [part for a, b in pairs for part in (a**2 - b**2, 2.0 * a * b)] or [g[0] ** 2]
        return xp.stack(parts, axis=-len(axes) - 2)


class Beside(Encoder):
    """𝒟(u) = (w₁ 𝒟₁(u), w₂ 𝒟₂(u), …): several codes of the same function.

    **Arguments:**

    - `encoders`: 𝒟₁, 𝒟₂, …
    - `weights`: w.
    """

    encoders: tuple[Encoder, ...]
    weights: tuple[float, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        return sum(each.size for each in self.encoders)

    def __call__(self, u: Input) -> Float[Array, " d"]:
        return jnp.concatenate([w * each(u) for w, each in zip(self.weights, self.encoders, strict=True)])
