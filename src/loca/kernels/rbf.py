"""The Gaussian kernel."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.kernels.distances import squared_distances
from loca.kernels.kernel import Kernel
from loca.parameters import Held, Positive, positive


class RBF(Kernel):
    """k(z, z′) = exp(−β‖z − z′‖²).

    The paper's amplitude γ cancels in κ and is omitted; use `Scaled` for the terms of a sum.

    **Arguments:**

    - `rate`: β > 0, the inverse square of the length over which points are similar. Good values: 0.2 to 1 with
        a network as lift.
    """

    rate: Positive | Held

    def __init__(self, rate: float | Positive | Held = 1.0):
        self.rate = positive(rate)

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return jnp.exp(-self.rate() * squared_distances(z, z_))
