"""The sphere in latitude and longitude, and the areas of its grid cells."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.domains.domain import Domain

SAME_DEGREE = 1e-4
"""Degrees below which two coordinates count as equal: single precision resolves 3e-5 at 360."""


class Sphere(Domain):
    """The unit sphere S² or a zone of it; a location is (latitude, longitude) in degrees, the measure is area.

    Longitudes may follow either convention, [−180, 180] or [0, 360]. The map from the unit square is Archimedes':
    t₁ ↦ sin(latitude) preserves area.

    **Arguments:**

    - `south`, `north`: the latitudes between which Y lies, for data around the globe that does not reach the poles.
    """

    south: float = eqx.field(static=True, default=-90.0)
    north: float = eqx.field(static=True, default=90.0)
    is_geographic = True

    def __check_init__(self):
        if not -90.0 <= self.south < self.north <= 90.0:
            got = f"south={self.south}, north={self.north}"
            raise ValueError(f"expected latitudes with -90 ≤ south < north ≤ 90, got {got}")

    @property
    def dimension(self) -> int:
        return 2

    @property
    def volume(self) -> float:
        low, high = self._heights
        return 2.0 * math.pi * (high - low)

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return (self.south, self.north), (0.0, 360.0)

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
        low, high = self._heights
        latitude = jnp.degrees(jnp.arcsin(jnp.clip(low + (high - low) * t[..., 0], -1.0, 1.0)))
        return jnp.stack([latitude, 360.0 * t[..., 1]], axis=-1)

    def to_unit(self, y: Float[Array, "*P 2"]) -> Float[Array, "*P 2"]:
        low, high = self._heights
        height = (jnp.sin(jnp.radians(y[..., 0])) - low) / (high - low)
        return jnp.stack([height, jnp.mod(y[..., 1] / 360.0, 1.0)], axis=-1)

    @property
    def _heights(self) -> tuple[float, float]:
        """sin(latitude) at the southern and at the northern edge."""
        return math.sin(math.radians(self.south)), math.sin(math.radians(self.north))

    def contains(self, y: Float[np.ndarray, "P 2"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        """Whether latitudes are those of Y, and longitudes lie within ±360 degrees, so in either convention."""
        slack = tolerance * (self.north - self.south)
        within = (y[:, 0] >= self.south - slack) & (y[:, 0] <= self.north + slack)
        return within & (np.abs(y[:, 1]) <= 360.0 + tolerance * 360.0)

    def area_weights(self, y: Float[np.ndarray, "M 2"]) -> Float[np.ndarray, " M"]:
        """Areas of the cells of a latitude–longitude grid; cos(latitude) for points that do not form one."""
        if np.abs(y[:, 0]).max() > 90.0 + SAME_DEGREE:
            found = f"latitudes from {y[:, 0].min()} to {y[:, 0].max()}"
            raise ValueError(f"expected locations as (latitude, longitude) in degrees, got {found}")
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


def embed(y: Float[Array, "P d_y"], periods: Sequence[float | None], is_geographic: bool) -> Float[Array, "P l"]:
    """Locations in a Euclidean space: unit vectors on a sphere, and periodic coordinates on circles."""
    if is_geographic:
        return unit_vectors(y)
    columns = []
    for i, period in enumerate(periods):
        if period is None:
            columns.append(y[:, i])
        else:
            angle = y[:, i] * (2.0 * math.pi / period)
            columns += [period / (2.0 * math.pi) * wave(angle) for wave in (jnp.cos, jnp.sin)]
    return jnp.stack(columns, axis=-1)


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
        raise ValueError(f"longitudes from {longitude[0]} to {longitude[-1]} go around the sphere more than once")
    if across > 1.5 * np.diff(longitude).max():
        return np.diff(edges_between(longitude))
    gaps = np.append(np.diff(longitude), max(across, 0.0))
    return 0.5 * (gaps + np.roll(gaps, 1))


def edges_between(points: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n+1"]:
    """Midpoints between neighbors; at the ends, as far outward as inward."""
    middle = 0.5 * (points[1:] + points[:-1])
    return np.concatenate([[2.0 * points[0] - middle[0]], middle, [2.0 * points[-1] - middle[-1]]])
