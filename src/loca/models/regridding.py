"""Linear interpolation of inputs from the sensors of some data to those of an operator."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Interpolation, grid_shape
from loca.models.interpolation import Grid
from loca.models.matching import wrap


def interpolation_between(
    given: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m_ d"], periods: Sequence[float | None]
) -> Interpolation:
    """Linear interpolation from the given locations, a grid or scattered points, to the expected ones.

    Locations at most one spacing outside the given ones take the value at the boundary; others raise `ValueError`.
    """
    shape = grid_shape(given)
    axes = None if shape is None else grid_axes(given, shape)
    for i, period in enumerate(periods):
        low, high = given[:, i].min(), given[:, i].max()
        even = (high - low) / len(given) ** (1.0 / given.shape[1])
        spacing = even if axes is None else np.abs(np.diff(axes[i])).max(initial=0.0)
        beyond = max(low - expected[:, i].min(), expected[:, i].max() - high)
        if period is None and beyond > 1.001 * spacing:
            raise ValueError(
                f"the model's sensors extend {beyond:.3g} beyond those of the data along coordinate {i + 1}, more than "
                f"one spacing of {spacing:.3g}; pass inputs that cover them"
            )
    if axes is None:
        here, there = (
            np.stack([wrap(column, own, period) for column, own, period in zip(x.T, given.T, periods, strict=True)], -1)
            for x in (given, expected)
        )
        return scattered_interpolation(here, there)
    grid = Grid(tuple(jnp.asarray(axis, jnp.float32) for axis in axes), tuple(periods))
    return grid.interpolation(jnp.asarray(expected, jnp.float32))


def grid_axes(x: Float[np.ndarray, "m d"], shape: tuple[int, ...]) -> list[Float[np.ndarray, " _"]]:
    """The axes of a grid whose points are in row-major order."""
    points = x.reshape(*shape, len(shape))
    return [np.moveaxis(points[..., i], i, 0).reshape(n, -1)[:, 0] for i, n in enumerate(shape)]


def scattered_interpolation(given: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m_ d"]) -> Interpolation:
    """Linear interpolation on a Delaunay triangulation; the nearest value outside the convex hull."""
    from scipy.spatial import Delaunay, KDTree, QhullError

    d = given.shape[1]
    if d == 1:
        line = np.argsort(given[:, 0], kind="stable")
        axis = jnp.asarray(given[line, 0], jnp.float32)
        between = Grid((axis,), (None,)).interpolation(jnp.asarray(expected, jnp.float32))
        return Interpolation(jnp.asarray(line)[between.index], between.weight)
    try:
        triangles = Delaunay(given)
    except QhullError:
        raise ValueError(f"the sensors of the data do not span {d} dimensions") from None
    found = triangles.find_simplex(expected)
    map_of = triangles.transform[found]
    part = np.einsum("pij,pj->pi", map_of[:, :d], expected - map_of[:, d])
    weight = np.concatenate([part, 1.0 - part.sum(axis=1, keepdims=True)], axis=1)
    index = triangles.simplices[found]
    outside = (found < 0) | ~np.isfinite(weight).all(axis=1)
    index[outside] = np.asarray(KDTree(given).query(expected[outside])[1])[:, None]
    weight[outside] = 1.0 / (d + 1)
    return Interpolation(jnp.asarray(index.T), jnp.asarray(weight.T, jnp.float32))
