"""Parts that a user would write outside the package, one class each."""

import math

import jax
import jax.numpy as jnp

from loca.data import Normalization, Samples
from loca.domains import Domain
from loca.encoders import Encoder
from loca.kernels import Kernel
from loca.models import Operator, Signature
from loca.nets import MLP


class UnitDisk(Domain):
    """The unit disk; a location is (x₁, x₂)."""

    @property
    def dimension(self):
        return 2

    @property
    def volume(self):
        return math.pi

    def from_unit(self, t):
        radius, angle = jnp.sqrt(t[..., 0]), 2.0 * jnp.pi * t[..., 1]
        return jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=-1)

    def to_unit(self, y):
        angle = jnp.arctan2(y[..., 1], y[..., 0]) / (2.0 * jnp.pi)
        return jnp.stack([jnp.sum(y**2, axis=-1), jnp.mod(angle, 1.0)], axis=-1)


class Cauchy(Kernel):
    """k(z, z′) = 1 / (1 + ‖z − z′‖²)."""

    def matrix(self, z, z_):
        return 1.0 / (1.0 + jnp.sum((z[:, None] - z_[None]) ** 2, axis=-1))


class Means(Encoder):
    """The means of u over halves of the sensors."""

    @property
    def size(self):
        return 2

    def __call__(self, u):
        half = len(u) // 2
        return jnp.stack([u[:half].mean(), u[half:].mean()])


class Nomad(Operator):
    """F(u)(y) = net(𝒟(u), y): not a sum of products."""

    normalization: Normalization
    encoder: Encoder
    net: MLP

    @classmethod
    def create(cls, data, *, key):
        encoder = Means()
        size = encoder.size + data.domain.dimension
        net = MLP((size, 16, data.output_size), key=key)
        return cls(Normalization.fit(data), encoder, net, signature=Signature.of(data))

    def encode(self, u):
        return self.encoder(self.normalization.standardize_input(u))

    def respond(self, codes, queries):
        y = queries.locations(len(codes))
        repeated = jnp.broadcast_to(codes[:, None], (*y.shape[:2], codes.shape[-1]))
        return self.net(jnp.concatenate([repeated, y], axis=-1))


def samples(count, key):
    """s(y) = a₁ y₁ + a₂ |y|² on the disk, from u = (a₁, …, a₁, a₂, …, a₂)."""
    a = jax.random.normal(jax.random.key(key), (count, 2))
    y = UnitDisk().sample(jax.random.key(99), 40)
    u = jnp.repeat(a, 3, axis=1)[:, :, None]
    s = a[:, :1] * y[:, 0] + a[:, 1:] * jnp.sum(y**2, axis=-1)
    return Samples(u, y, s[:, :, None], x=jnp.linspace(0.0, 1.0, 6)[:, None], domain=UnitDisk())
