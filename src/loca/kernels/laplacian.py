"""The Laplacian kernel."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.kernels.distances import pairwise
from loca.kernels.kernel import Kernel
from loca.parameters import Held, Positive, positive


class Laplacian(Kernel):
    """k(z, z′) = exp(−β‖z − z′‖₁): a product over the coordinates, with a kink where points coincide.

    With the Euclidean norm it would be `Matern(order=1/2)`.

    **Arguments:**

    - `rate`: β > 0. Good values: about 1/l, since the norm grows with the lifted dimension l.
    """

    rate: Positive | Held

    def __init__(self, rate: float | Positive | Held = 1.0):
        self.rate = positive(rate)

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return jnp.exp(-self.rate() * pairwise(lambda a, b: jnp.sum(jnp.abs(a - b)), z, z_))
