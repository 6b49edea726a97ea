"""Rectangular grids, and linear interpolation from grids and points."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Interpolation, Samples, grid_shape, multilinear
from loca.models.matching import wrap
from loca.parameters import Fixed


class Grid(Fixed):
    """A rectangular grid given by its axes; axes may be periodic and unevenly spaced."""

    axes: tuple[Float[Array, " _"], ...]
    periods: tuple[float | None, ...] = eqx.field(static=True)
    num_repeated: int = eqx.field(static=True, default=0)  # leading axes that the input does not have, such as time

    @classmethod
    def of(cls, data: Samples) -> Grid:
        """The grid of the sensors of some data, with leading axes for coordinates that only queries have (time)."""
        x = data.x[0] if isinstance(data.x, tuple) and len(data.x) == 1 else data.x
        shape = None if x is None or isinstance(x, tuple) else grid_shape(x)
        if shape is None:
            raise ValueError(
                "an FNO needs sensors on a grid, but those of this data do not form one; "
                "interpolate the inputs to a grid first, or use LOCA"
            )
        sensors = np.asarray(x).reshape(*shape, len(shape))
        inner = [sensors[(0,) * i + (slice(None),) + (0,) * (len(shape) - 1 - i) + (i,)] for i in range(len(shape))]
        num_repeated = data.domain.dimension - len(shape)
        if num_repeated < 0:
            raise ValueError(
                f"the sensors of this data are {len(shape)}-dimensional but its queries only {data.domain.dimension}-"
                "dimensional, and an FNO predicts on the grid of its sensors; use LOCA, where the two are independent"
            )
        outer = [np.unique(column) for column in np.asarray(data.y.points).T[:num_repeated]]
        axes = tuple(jnp.asarray(axis) for axis in (*outer, *inner))
        return cls(axes, data.domain.periods, num_repeated)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(len(axis) for axis in self.axes)

    @property
    def sensor_shape(self) -> tuple[int, ...]:
        """Number of points along the axes that the input has."""
        return self.shape[self.num_repeated :]

    def coordinates(self) -> Float[Array, "*grid d_y"]:
        """The coordinates of every point, with each axis mapped to [0, 1], or to [0, 1) if it is periodic."""
        unit = [(axis - axis[0]) / extent(axis, period) for axis, period in zip(self.axes, self.periods, strict=True)]
        return jnp.stack(jnp.meshgrid(*unit, indexing="ij"), axis=-1)

    def interpolation(self, y: Float[Array, "P d_y"]) -> Interpolation:
        """Multilinear interpolation at the queries; constant beyond the ends of an axis."""
        return multilinear(self.axes, self.periods, y)


def extent(axis: Float[Array, " k"], period: float | None) -> Float[Array, ""]:
    """The signed length of an axis from the first point to the last, or its period; 1 instead of zero."""
    length = axis[-1] - axis[0]
    if period is not None:
        length = jnp.sign(length) * period
    return jnp.where(length == 0.0, 1.0, length)


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
