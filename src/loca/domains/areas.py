"""How much of Y each of a set of locations stands for."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.domains.domain import Domain
from loca.domains.sphere import Sphere

SAME_DEGREE = 1e-4
"""Degrees below which two coordinates are one: single precision keeps 3e-5 of 360."""


def area_weights(domain: Domain, y: Float[Array | np.ndarray, "M d_y"]) -> Float[np.ndarray, " M"]:
    """wᵢ = |Yᵢ| / Σⱼ|Yⱼ|, where yᵢ stands for the part Yᵢ of Y: weights of means over Y, which sum to 1.

    On a `Sphere`, points that form a latitude–longitude grid, in any order, stand for the cells whose edges lie
    halfway to the neighboring rows and columns; their areas are exact. The outermost row reaches to the pole if one
    more row would not fit before it (a row at the pole itself stands for a cap, a Gaussian grid covers the globe);
    otherwise, as on a regional grid, it reaches as far outwards as inwards. Other points on a sphere are weighted by
    cos(latitude), as is right for some of the points of such a grid, the land for instance. Points strewn evenly over
    the sphere need no weights.

    On every other domain the weights are equal. For a patch of the Earth that is a `Box` in degrees of latitude and
    longitude pass `Sphere()`.
    """
    domain.check(jnp.asarray(y))
    points = np.asarray(y, np.float64)
    if not isinstance(domain, Sphere):
        return np.full(len(points), 1.0 / len(points))
    if np.abs(points[:, 0]).max() > 90.0 + SAME_DEGREE:
        raise ValueError(
            f"latitudes lie between -90 and 90 degrees but reach from {points[:, 0].min()} to {points[:, 0].max()}; "
            "a location on a sphere is (latitude, longitude)"
        )
    latitude, row = np.unique(points[:, 0], return_inverse=True)
    longitude, column = np.unique(points[:, 1], return_inverse=True)
    on_grid = len(np.unique(row * len(longitude) + column)) == len(points) == len(latitude) * len(longitude)
    if on_grid and min(len(latitude), len(longitude)) > 1:
        areas = band_heights(latitude)[row] * widths(longitude)[column]
    else:
        areas = np.cos(np.radians(points[:, 0]))
    return areas / areas.sum()


def band_heights(latitude: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """sin φᵢ₊½ − sin φᵢ₋½: areas of the bands around these rows, in units of 2π; `latitude` increases."""
    edges = edges_between(latitude)
    for end, step, pole in ((0, latitude[0] - latitude[1], -90.0), (-1, latitude[-1] - latitude[-2], 90.0)):
        if abs(latitude[end] + step) >= 90.0 - SAME_DEGREE:
            edges[end] = pole
    return np.diff(np.sin(np.radians(edges)))


def widths(longitude: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Degrees of longitude around these columns; `longitude` increases, and closes into a circle if the gap that is
    left is no wider than one column and a half."""
    across = longitude[0] + 360.0 - longitude[-1]
    if across < -SAME_DEGREE:
        raise ValueError(
            f"longitudes from {longitude[0]} to {longitude[-1]} go around more than once; leave the repeated ones out"
        )
    if across > 1.5 * np.diff(longitude).max():
        return np.diff(edges_between(longitude))
    gaps = np.append(np.diff(longitude), max(across, 0.0))
    return 0.5 * (gaps + np.roll(gaps, 1))


def edges_between(points: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n+1"]:
    """Midpoints between neighbors, and at the ends as far outwards as inwards."""
    middle = 0.5 * (points[1:] + points[:-1])
    return np.concatenate([[2.0 * points[0] - middle[0]], middle, [2.0 * points[-1] - middle[-1]]])
