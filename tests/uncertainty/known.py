"""Operators and functions whose errors are known."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization, Samples, Shared
from loca.domains import Box
from loca.models import Operator, Uncertain
from loca.typing import values_of

POINTS = 8
SIGMA = jnp.linspace(0.5, 2.0, POINTS)[:, None] * jnp.array([1.0, 3.0])


class Zero(Operator):
    """F = 0, in standardized units."""

    normalization: Normalization

    def encode(self, u):
        return values_of(u)[0][0]

    def respond(self, codes, queries):
        return jnp.zeros((len(codes), queries.count, 2))


class Knowing(Uncertain):
    """F = 0 with σ = (1 + 3y)·(0.5, 1.5)."""

    normalization: Normalization
    scale: Float[Array, ""]

    def encode(self, u):
        return u[0]

    def respond(self, codes, queries):
        return jnp.zeros((len(codes), queries.count, 2))

    def spread(self, codes, queries):
        y = queries.locations(len(codes))
        return self.scale * (0.5 + 1.5 * y) * jnp.array([1.0, 3.0])


def identity():
    return Normalization.identity(1, 2)


def noise(count, seed=0, spread=1.0):
    """Inputs of six sensors, and outputs that are independent normal numbers with the deviation of `Knowing`."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.0, 1.0, 6)
    waves = np.stack([np.ones(6), np.sin(3 * x), np.cos(2 * x)])
    u = spread * rng.normal(size=(count, 3)) @ waves + 0.01 * rng.normal(size=(count, 6))
    s = rng.normal(size=(count, POINTS, 2)) * np.asarray(SIGMA)
    y = jnp.linspace(0.0, 1.0, POINTS)[:, None]
    return Samples(jnp.asarray(u[:, :, None], jnp.float32), Shared(y), jnp.asarray(s, jnp.float32), x=x,
                   domain=Box.unit(1))  # fmt: skip
