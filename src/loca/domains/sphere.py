"""The sphere in latitude and longitude, and the areas of its grid cells."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.domains.domain import Domain

SAME_DEGREE = 1e-4
"""Degrees below which two coordinates count as equal: single precision resolves 3e-5 at 360."""


class Sphere(Domain):
    """The unit sphere S²; a location is (latitude, longitude) in degrees, the measure is area, 4π in total.

    Longitudes may follow either convention, [−180, 180] or [0, 360]. The map from the unit square is Archimedes':
    t₁ ↦ sin(latitude) preserves area.
    """

    is_geographic = True

    @property
    def dimension(self) -> int:
        return 2

    @property
    def volume(self) -> float:
        return 4.0 * math.pi

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return (-90.0, 90.0), (0.0, 360.0)

    @property
    def periods(self) -> tuple[float | None, ...]:
        return None, 360.0

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        return "latitude", "longitude"

    @property
    def coordinate_units(self) -> tuple[str, ...]:
        return "degrees_north", "degrees_east"

    def from_unit(self, t: Float[Array, "*P 2"]) -> Float[Array, "*P 2"]:
        latitude = jnp.degrees(jnp.arcsin(jnp.clip(2.0 * t[..., 0] - 1.0, -1.0, 1.0)))
        return jnp.stack([latitude, 360.0 * t[..., 1]], axis=-1)

    def to_unit(self, y: Float[Array, "*P 2"]) -> Float[Array, "*P 2"]:
        height = jnp.sin(jnp.radians(y[..., 0]))
        return jnp.stack([0.5 * (height + 1.0), jnp.mod(y[..., 1] / 360.0, 1.0)], axis=-1)

    def to_cartesian(self, y: Float[Array, "*P 2"]) -> Float[Array, "*P 3"]:
        """The unit vector at y: smooth across the date line and at the poles."""
        return unit_vectors(y)

    def contains(self, y: Float[np.ndarray, "P 2"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        """Whether latitudes lie within ±90 degrees, and longitudes within ±360, so in either convention."""
        return (np.abs(y[:, 0]) <= 90.0 + tolerance * 180.0) & (np.abs(y[:, 1]) <= 360.0 + tolerance * 360.0)

    def area_weights(self, y: Float[np.ndarray, "M 2"]) -> Float[np.ndarray, " M"]:
        """Areas of the cells of a latitude–longitude grid; cos(latitude) for points that do not form one."""
        if np.abs(y[:, 0]).max() > 90.0 + SAME_DEGREE:
            raise ValueError(
                f"latitudes lie between -90 and 90 degrees, got {y[:, 0].min()} to {y[:, 0].max()}; "
                "pass locations on a sphere as (latitude, longitude)"
            )
        latitude, row = np.unique(y[:, 0], return_inverse=True)
        longitude, column = np.unique(y[:, 1], return_inverse=True)
        on_grid = len(np.unique(row * len(longitude) + column)) == len(y) == len(latitude) * len(longitude)
        if on_grid and min(len(latitude), len(longitude)) > 1:
            areas = band_heights(latitude)[row] * widths(longitude)[column]
        else:
            areas = np.cos(np.radians(y[:, 0]))
        return areas / areas.sum()


def unit_vectors(y: Float[Array, "*P 2"]) -> Float[Array, "*P 3"]:
    """(cos φ cos λ, cos φ sin λ, sin φ) for y = (φ, λ), latitude and longitude in degrees."""
    latitude, longitude = jnp.radians(y[..., 0]), jnp.radians(y[..., 1])
    across = jnp.cos(latitude)
    return jnp.stack([across * jnp.cos(longitude), across * jnp.sin(longitude), jnp.sin(latitude)], axis=-1)


def band_heights(latitude: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """sin φᵢ₊½ − sin φᵢ₋½: the areas of the bands around increasing latitudes, in units of 2π."""
    edges = edges_between(latitude)
    for end, step, pole in ((0, latitude[0] - latitude[1], -90.0), (-1, latitude[-1] - latitude[-2], 90.0)):
        if abs(latitude[end] + step) >= 90.0 - SAME_DEGREE:
            edges[end] = pole
    return np.diff(np.sin(np.radians(edges)))


def widths(longitude: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Degrees of longitude around each of these increasing columns.

    The columns close into a circle if the remaining gap is at most one and a half columns wide.
    """
    across = longitude[0] + 360.0 - longitude[-1]
    if across < -SAME_DEGREE:
        raise ValueError(
            f"longitudes from {longitude[0]} to {longitude[-1]} go around the sphere more than once; remove the "
            "repeated ones"
        )
    if across > 1.5 * np.diff(longitude).max():
        return np.diff(edges_between(longitude))
    gaps = np.append(np.diff(longitude), max(across, 0.0))
    return 0.5 * (gaps + np.roll(gaps, 1))


def edges_between(points: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n+1"]:
    """Midpoints between neighbors; at the ends, as far outward as inward."""
    middle = 0.5 * (points[1:] + points[:-1])
    return np.concatenate([[2.0 * points[0] - middle[0]], middle, [2.0 * points[-1] - middle[-1]]])
