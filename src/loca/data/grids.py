"""Rectangular grids: recognized among locations, and interpolated."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim
from jaxtyping import Array, Float, Int

from loca.domains import grid
from loca.parameters import Fixed


def grid_axes(x: Float[Array | np.ndarray, "m d_x"]) -> tuple[Float[np.ndarray, " _"], ...] | None:
    """The axes of the rectangular grid whose points in row-major order are the rows of x; None if x is no grid.

    An axis may be decreasing, such as latitude from north to south.
    """
    points = np.asarray(x)
    values = [np.unique(column) for column in points.T]
    shape = tuple(map(len, values))
    if math.prod(shape) != len(points):
        return None
    axes = axes_of(points, shape)
    is_grid = np.array_equal(grid(*axes), points) and all(map(np.array_equal, map(np.sort, axes), values))
    return axes if is_grid else None


def axes_of(x: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The axes of a grid of this shape, whose points in row-major order are the rows of x."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return tuple(x[: n * step : step, i] for i, (n, step) in enumerate(zip(shape, strides, strict=True)))


def grid_shape(x: Float[Array | np.ndarray, "m d_x"]) -> tuple[int, ...] | None:
    """The number of points along each axis of the grid; None if x is no grid."""
    axes = grid_axes(x)
    return None if axes is None else tuple(map(len, axes))


class Interpolation(Fixed):
    """s(y) = Σ over corners of weight · value, from the grid points around each query and their weights."""

    index: Int[Array, "corners P"]
    weight: Float[Array, "corners P"]

    def __call__(self, field: Float[Array, "*grid d_s"]) -> Float[Array, "P d_s"]:
        values = field.reshape(-1, field.shape[-1])[self.index]
        return jnp.einsum("cp,cps->ps", self.weight, values)


@eqx.filter_jit
def multilinear(
    axes: Sequence[Float[Array, " _"]], periods: Sequence[float | None], y: Float[Array, "P d_y"]
) -> Interpolation:
    """Multilinear interpolation from a grid, given by its axes, to the queries; constant beyond the ends of an axis."""
    if y.shape[-1] != len(axes):
        raise ValueError(f"`y` has {y.shape[-1]} columns but the grid has {len(axes)} axes")
    shape = [len(axis) for axis in axes]
    sides = [neighbors(axis, y[:, i], period) for i, (axis, period) in enumerate(zip(axes, periods, strict=True))]
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    index, weight = [], []
    for corner in itertools.product((0, 1), repeat=len(axes)):
        index.append(sum(sides[i][0][c] * strides[i] for i, c in enumerate(corner)))
        weight.append(math.prod(sides[i][1][c] for i, c in enumerate(corner)))
    return Interpolation(jnp.stack(index), jnp.stack(weight))


@jax.jit
def nearest(y: Float[Array, "P d"], points: Float[Array, "M d"]) -> Interpolation:
    """The value at the point nearest to each query; all at once if their number is free, as in `loca.export`."""

    def of_one(one: Float[Array, " d"]) -> Int[Array, ""]:
        return jnp.argmin(jnp.sum((points - one) ** 2, axis=-1))

    index = jax.vmap(of_one)(y) if is_symbolic_dim(y.shape[0]) else jax.lax.map(of_one, y, batch_size=256)
    return Interpolation(index[None], jnp.ones((1, y.shape[0])))


def neighbors(
    axis: Float[Array, " k"], y: Float[Array, " P"], period: float | None
) -> tuple[tuple[Int[Array, " P"], Int[Array, " P"]], tuple[Float[Array, " P"], Float[Array, " P"]]]:
    """The two neighbors of each coordinate on an axis, and their weights."""
    if axis.shape[0] == 1:
        zero, one = jnp.zeros(y.shape[0], int), jnp.ones_like(y)
        return (zero, zero), (one, 0.0 * one)
    order = jnp.argsort(axis)  # an axis may run downwards, such as latitude from the north
    knots = axis[order]
    if period is not None:
        y = knots[0] + jnp.mod(y - knots[0], period)
        knots, order = jnp.append(knots, knots[0] + period), jnp.append(order, order[0])
    left = jnp.clip(jnp.searchsorted(knots, y, side="right") - 1, 0, len(knots) - 2)
    # an axis that lists both ends of its period has a last gap of zero, and round-off can move a query into it
    gap = knots[left + 1] - knots[left]
    part = jnp.clip((y - knots[left]) / jnp.where(gap == 0.0, 1.0, gap), 0.0, 1.0)
    return (order[left], order[left + 1]), (1.0 - part, part)
