"""Recognizing sensors that form a grid."""

import numpy as np
from jaxtyping import Array, Float


def grid_shape(x: Float[Array, "m d_x"]) -> tuple[int, ...] | None:
    """The shape of the rectangular grid whose points, in row-major order, are the rows of x; None if there is none."""
    points = np.asarray(x)
    axes = [np.unique(column) for column in points.T]
    shape = tuple(len(axis) for axis in axes)
    if np.prod(shape) != len(points):
        return None
    # np.unique sorts; an axis that runs downwards, such as latitude from the north, is a grid all the same
    grid = points.reshape(*shape, -1)
    for i, axis in enumerate(axes):
        along = np.moveaxis(grid[..., i], i, 0)
        first = along.reshape(len(axis), -1)[:, 0]
        if not (np.array_equal(np.sort(first), axis) and (along == first.reshape(-1, *[1] * (along.ndim - 1))).all()):
            return None
    return shape
