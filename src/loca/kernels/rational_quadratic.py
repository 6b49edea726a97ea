"""The rational quadratic kernel."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.kernels.distances import squared_distances
from loca.kernels.kernel import Kernel
from loca.parameters import Held, Positive, positive


class RationalQuadratic(Kernel):
    """k(z, z′) = (1 + β‖z − z′‖²/α)^(−α): a mixture of Gaussians of all widths, RBF as α → ∞.

    **Arguments:**

    - `rate`: β > 0.
    - `mixture`: α > 0; smaller means heavier tails. Good values: 0.5 to 5.
    """

    rate: Positive | Held
    mixture: Positive | Held

    def __init__(self, rate: float | Positive | Held = 1.0, mixture: float | Positive | Held = 1.0):
        self.rate = positive(rate)
        self.mixture = positive(mixture)

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        alpha = self.mixture()
        return jnp.exp(-alpha * jnp.log1p(self.rate() * squared_distances(z, z_) / alpha))
