"""Kernels made of kernels."""

from jaxtyping import Array, Float

from loca.kernels.kernel import Kernel
from loca.parameters import Held, Positive, positive


class Sum(Kernel):
    """k₁ + k₂: similar if similar in one sense or in the other."""

    left: Kernel
    right: Kernel

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return self.left.matrix(z, z_) + self.right.matrix(z, z_)


class Product(Kernel):
    """k₁ · k₂: similar if similar in both senses."""

    left: Kernel
    right: Kernel

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return self.left.matrix(z, z_) * self.right.matrix(z, z_)


class Scaled(Kernel):
    """γ k with amplitude γ > 0.

    The amplitude of a whole kernel cancels in κ, so it matters only for the weight of a term inside a sum.
    """

    amplitude: Positive | Held
    kernel: Kernel

    def __init__(self, amplitude: float | Positive | Held, kernel: Kernel):
        self.amplitude = positive(amplitude)
        self.kernel = kernel

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return self.amplitude() * self.kernel.matrix(z, z_)
