"""An operator with known predictions, written as a user would: a normalization, `encode` and `respond`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Samples, Variable
from loca.models import Operator


class Scaled(Operator):
    """F(u)(y) = factor · u(x₁) · (1 + y₁, 2 + y₁)."""

    normalization: Normalization
    factor: Float[Array, ""]

    def __init__(self, factor=1.0):
        self.normalization = Normalization.identity(1, 2)
        self.factor = jnp.asarray(factor)

    def encode(self, u):
        return u[0]

    def field(self, code, y):
        return self.factor * code[0] * (y[:, :1] + jnp.array([1.0, 2.0]))

    def respond(self, codes, queries: Queries):
        return jax.vmap(self.field)(codes, queries.locations(len(codes)))


def lines(count=23, points=40, key=0):
    """Functions that `Scaled(1.0)` predicts exactly."""
    y = jnp.linspace(0.0, 1.0, points)[:, None]
    u = jax.random.normal(jax.random.key(key), (count, 5, 1)) + 3.0
    s = jax.vmap(Scaled().field, (0, None))(u[:, 0], y)
    x = jnp.linspace(0.0, 1.0, 5)[:, None]
    return Samples(u, y, s, x=x, outputs=[Variable("height", "m"), Variable("speed", "m s-1")])
