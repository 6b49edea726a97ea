"""Matérn kernels of half-integer order."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.kernels.distances import pairwise, safe_root, squared_distances
from loca.kernels.kernel import Kernel
from loca.parameters import Held, Positive, positive

ORDERS = (0.5, 1.5, 2.5)


class Matern(Kernel):
    """k(z, z′) = p_ν(t) exp(−t), t = √(2ν)·β‖z − z′‖, with p_½ = 1, p_{3/2} = 1 + t, p_{5/2} = 1 + t + t²/3.

    **Arguments:**

    - `order`: ν, one of 1/2, 3/2, 5/2; functions in the kernel's space have just under ν derivatives.
    - `rate`: β > 0, an inverse length.
    """

    rate: Positive | Held
    order: float = eqx.field(static=True)

    def __init__(self, order: float = 2.5, rate: float | Positive | Held = 1.0):
        if order not in ORDERS:
            raise ValueError(f"order must be one of 1/2, 3/2, 5/2, got {order}; for order → ∞ use `RBF`")
        self.order = order
        self.rate = positive(rate)

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        if self.order == 0.5:  # the only order with a kink at r = 0, where it needs r in full precision
            r2 = pairwise(lambda a, b: jnp.sum((a - b) ** 2), z, z_)
        else:
            r2 = squared_distances(z, z_)
        t = jnp.sqrt(2.0 * self.order) * self.rate() * safe_root(r2)
        polynomial = {0.5: 1.0, 1.5: 1.0 + t, 2.5: 1.0 + t + t**2 / 3.0}[self.order]
        return polynomial * jnp.exp(-t)
