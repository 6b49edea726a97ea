"""k(z, z′): the similarity of two lifted locations, kernels made of kernels, and stationary kernels."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.parameters import Held, Positive, positive

__all__ = ["RBF", "Kernel", "Matern", "Scaled"]


class Kernel(eqx.Module):
    """k : ℝˡ × ℝˡ → ℝ, symmetric, positive definite and positive-valued, on the lifted space.

    Sums, products and positive multiples of kernels are kernels: `RBF() + 0.5 * Matern()`.
    """

    @abc.abstractmethod
    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        """k(zᵢ, z′ⱼ) for every pair."""

    def __call__(self, z: Float[Array, " l"], z_: Float[Array, " l"]) -> Float[Array, ""]:
        return self.matrix(z[None], z_[None])[0, 0]

    def __add__(self, other: "Kernel") -> "Kernel":
        return Sum(self, other)

    def __mul__(self, other: "Kernel | float | Positive | Held") -> "Kernel":
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


def squared_distances(z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
    """‖zᵢ − z′ⱼ‖² = ‖zᵢ‖² + ‖z′ⱼ‖² − 2 zᵢ·z′ⱼ, as one matrix product.

    Both sets are first centered at the mean of the second: this leaves distances unchanged but reduces cancellation.
    Distances that round-off still makes negative are set to zero.
    """
    center = jax.lax.stop_gradient(jnp.mean(z_, axis=0))
    z, z_ = z - center, z_ - center
    # in full precision, since cancellation would amplify rounded products
    products = jnp.matmul(z, z_.T, precision=jax.lax.Precision.HIGHEST)
    r2 = jnp.sum(z**2, axis=1)[:, None] + jnp.sum(z_**2, axis=1)[None, :] - 2.0 * products
    return jnp.maximum(r2, 0.0)


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


class Matern(Kernel):
    """k(z, z′) = p_ν(t) exp(−t), t = √(2ν)·β‖z − z′‖, with p_½ = 1, p_{3/2} = 1 + t, p_{5/2} = 1 + t + t²/3.

    **Arguments:**

    - `order`: ν, one of 1/2, 3/2, 5/2; functions in the kernel's space have just under ν derivatives.
    - `rate`: β > 0, an inverse length.
    """

    rate: Positive | Held
    order: float = eqx.field(static=True)

    def __init__(self, order: float = 2.5, rate: float | Positive | Held = 1.0):
        if order not in (0.5, 1.5, 2.5):
            raise ValueError(f"order must be one of 1/2, 3/2, 5/2, got {order}; for order → ∞ use `RBF`")
        self.order = order
        self.rate = positive(rate)

    def matrix(self, z: Float[Array, "P l"], z_: Float[Array, "Q l"]) -> Float[Array, "P Q"]:
        # order 1/2 has a kink at r = 0, where cancellation would turn an error of ε in r² into one of √ε in k
        r2 = jnp.sum((z[:, None] - z_) ** 2, axis=-1) if self.order == 0.5 else squared_distances(z, z_)
        r = jnp.where(r2 > 0.0, jnp.sqrt(jnp.where(r2 > 0.0, r2, 1.0)), 0.0)  # with derivative 0 at 0, not ∞
        t = jnp.sqrt(2.0 * self.order) * self.rate() * r
        polynomial = {0.5: 1.0, 1.5: 1.0 + t, 2.5: 1.0 + t + t**2 / 3.0}[self.order]
        return polynomial * jnp.exp(-t)
