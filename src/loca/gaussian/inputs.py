"""k_U: the kernel on encoded input functions, and its features."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.kernels import Matern
from loca.parameters import Fixed, Held

NEGLIGIBLE = {"float32": 1e-8, "float64": 1e-12}
"""Features with eigenvalues below this fraction of the largest are zero. In single precision a kernel has errors of
about 1e-7, which λ^(−1/2) would amplify to the size of such a feature."""


class InputKernel(Fixed):
    """k_U(z, z′) = α + β x·x′ + k(‖x − x′‖/l) with x = ρ ⊙ z, and k the Matérn kernel of order 5/2.

    The constant α lets all functions share a mean field, β gives weight to linear operators, and the Matérn term learns
    what is left.

    **Arguments:**

    - `bias`: α ≥ 0.
    - `linear`: β ≥ 0.
    - `length`: l > 0.
    - `scales`: ρ, the weight of every component of a code.
    """

    bias: Float[Array, ""]
    linear: Float[Array, ""]
    length: Float[Array, ""]
    scales: Float[Array, " d"]

    @eqx.filter_jit
    def matrix(self, z: Float[Array, "N d"], z_: Float[Array, "R d"]) -> Float[Array, "N R"]:
        """k_U for every pair of codes."""
        x, x_ = z * self.scales, z_ * self.scales
        matern = Matern(2.5, Held(1.0)).matrix(x / self.length, x_ / self.length)
        return self.bias + self.linear * (x @ x_.T) + matern

    def diagonal(self, z: Float[Array, "N d"]) -> Float[Array, " N"]:
        """k_U(z, z)."""
        return self.bias + self.linear * jnp.sum((z * self.scales) ** 2, axis=-1) + 1.0


class InputFeatures(Fixed):
    """f(z) = Wᵀ k_U(Z, z), so that f(z)·f(z′) ≈ k_U(z, z′): exact if z or z′ is one of the landmarks Z.

    Build it with `InputFeatures.fit`.
    """

    kernel: InputKernel
    landmarks: Float[Array, "R d"]
    projection: Float[Array, "R r"]

    @classmethod
    def fit(
        cls, kernel: InputKernel, landmarks: Float[Array, "R d"], rank: int, precision: str = "float32"
    ) -> InputFeatures:
        """The features with the `rank` largest eigenvalues of k_U on the landmarks, for use in some precision."""
        values, vectors = leading(np.asarray(kernel.matrix(landmarks, landmarks)), rank, precision)
        return cls(kernel, landmarks, jnp.asarray(vectors * values, landmarks.dtype))

    def __call__(self, z: Float[Array, "N d"]) -> Float[Array, "N r"]:
        return self.kernel.matrix(z, self.landmarks) @ self.projection

    def turned(self, rotation: Float[Array, "r r"]) -> InputFeatures:
        """The features f R for an orthogonal matrix R, which have the same kernel."""
        return InputFeatures(self.kernel, self.landmarks, self.projection @ rotation)


def leading(
    matrix: Float[np.ndarray, "n n"], rank: int, precision: str = "float32"
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "n r"]]:
    """λ^(−1/2) of the largest eigenvalues λ of a symmetric matrix, in decreasing order of λ, and the eigenvectors.

    Features are the kernel times their product. Eigenvalues that are negligible in the precision of the features give
    zero: the number of features is fixed, so programs for them are compiled once.
    """
    values, vectors = np.linalg.eigh(np.asarray(matrix, np.float64))
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    kept = values > NEGLIGIBLE[precision] * values[0]
    return np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0), vectors
