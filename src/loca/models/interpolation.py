"""Rectangular grids, and multilinear interpolation from them."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Interpolation, Samples, grid_shape, multilinear
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
