"""What every kernel is."""

from __future__ import annotations

import abc

import equinox as eqx
from jaxtyping import Array, Float

from loca.parameters import Held, Positive


class Kernel(eqx.Module):
    """k : ℝˡ × ℝˡ → ℝ, symmetric, positive definite and positive-valued, on the lifted space.

    Kernels add and multiply to kernels, and a positive number times a kernel is one: `RBF() + 0.5 * Matern()`.
    """

    @abc.abstractmethod
    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        """k(zᵢ, z′ⱼ) for every pair."""

    def __call__(self, z: Float[Array, " l"], z_: Float[Array, " l"]) -> Float[Array, ""]:
        return self.matrix(z[None], z_[None])[0, 0]

    def __add__(self, other: Kernel) -> Kernel:
        from loca.kernels.combinations import Sum  # a combination is itself a kernel, hence the late import

        return Sum(self, other)

    def __mul__(self, other: Kernel | float | Positive | Held) -> Kernel:
        from loca.kernels.combinations import Product, Scaled

        return Product(self, other) if isinstance(other, Kernel) else Scaled(other, self)

    __rmul__ = __mul__
