"""What every kernel is, and kernels made of kernels."""

from __future__ import annotations

import abc

import equinox as eqx
from jaxtyping import Array, Float

from loca.parameters import Held, Positive, positive


class Kernel(eqx.Module):
    """k : ℝˡ × ℝˡ → ℝ, symmetric, positive definite and positive-valued, on the lifted space.

    Sums, products and positive multiples of kernels are kernels: `RBF() + 0.5 * Matern()`.
    """

    @abc.abstractmethod
    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        """k(zᵢ, z′ⱼ) for every pair."""

    def __call__(self, z: Float[Array, " l"], z_: Float[Array, " l"]) -> Float[Array, ""]:
        return self.matrix(z[None], z_[None])[0, 0]

    def __add__(self, other: Kernel) -> Kernel:
        return Sum(self, other)

    def __mul__(self, other: Kernel | float | Positive | Held) -> Kernel:
        return Product(self, other) if isinstance(other, Kernel) else Scaled(other, self)

    __rmul__ = __mul__


class Sum(Kernel):
    """k₁ + k₂: large where either kernel is large."""

    left: Kernel
    right: Kernel

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return self.left.matrix(z, z_) + self.right.matrix(z, z_)


class Product(Kernel):
    """k₁ · k₂: large where both kernels are large."""

    left: Kernel
    right: Kernel

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return self.left.matrix(z, z_) * self.right.matrix(z, z_)


class Scaled(Kernel):
    """γ k with amplitude γ > 0.

    The amplitude of an entire kernel cancels in κ, so it matters only for the weight of a term in a sum.
    """

    amplitude: Positive | Held
    kernel: Kernel

    def __init__(self, amplitude: float | Positive | Held, kernel: Kernel):
        self.amplitude = positive(amplitude)
        self.kernel = kernel

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        return self.amplitude() * self.kernel.matrix(z, z_)
