"""The sphere in latitude and longitude."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.domains.domain import Domain


class Sphere(Domain):
    """The unit sphere S²; a location is (latitude, longitude) in degrees, the measure is area, 4π in all.

    Longitudes may follow either convention, [−180, 180] or [0, 360]. The map from the unit square is Archimedes':
    t₁ ↦ sin(latitude) keeps area.
    """

    @property
    def dimension(self) -> int:
        return 2

    @property
    def volume(self) -> float:
        return 4.0 * math.pi

    def from_unit(self, t: Float[Array, "*P 2"]) -> Float[Array, "*P 2"]:
        latitude = jnp.degrees(jnp.arcsin(jnp.clip(2.0 * t[..., 0] - 1.0, -1.0, 1.0)))
        return jnp.stack([latitude, 360.0 * t[..., 1]], axis=-1)

    def to_unit(self, y: Float[Array, "*P 2"]) -> Float[Array, "*P 2"]:
        height = jnp.sin(jnp.radians(y[..., 0]))
        return jnp.stack([0.5 * (height + 1.0), jnp.mod(y[..., 1] / 360.0, 1.0)], axis=-1)

    def to_cartesian(self, y: Float[Array, "*P 2"]) -> Float[Array, "*P 3"]:
        """The unit vector that points at y: smooth across the date line and at the poles."""
        latitude, longitude = jnp.radians(y[..., 0]), jnp.radians(y[..., 1])
        across = jnp.cos(latitude)
        return jnp.stack([across * jnp.cos(longitude), across * jnp.sin(longitude), jnp.sin(latitude)], axis=-1)
