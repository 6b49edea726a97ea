"""Principal components of the input functions."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder, check_values
from loca.typing import Input

NEGLIGIBLE = 1e-6
"""Components smaller than the first by this factor are round-off."""


class PrincipalComponents(Encoder):
    """𝒟(u) = Eᵀ(u − ū): the components of u along the directions in which the training functions differ most.

    Codes are scaled by one number, so that their mean square length over the training functions is 1. Distances between
    codes are then distances between functions, up to what the dropped components contribute.

    Build it with `PrincipalComponents.fit`.
    """

    mean: Float[Array, "m d_u"]
    components: Float[Array, "m d_u k"]
    encoder: Encoder | None = None

    @classmethod
    def fit(
        cls, u: Input, count: int, weights: Float[np.ndarray, " m"] | None = None, encoder: Encoder | None = None
    ) -> "PrincipalComponents":
        """The components of given functions.

        **Arguments:**

        - `u`: the training functions, in standardized units.
        - `count`: k, at most. Components without variance are dropped.
        - `weights`: quadrature weights of the sensors; equal by default.
        - `encoder`: take the components of the codes of another encoder instead of values at sensors, for functions
          that have sensors of their own.
        """
        if encoder is not None:
            u = jax.lax.map(encoder, u, batch_size=256)[..., None]
        if not isinstance(u, Array):
            raise TypeError(
                f"principal components need values at the same sensors for every function, got {type(u).__name__}; "
                "pass an encoder for it"
            )
        values = np.asarray(u, np.float64)
        functions, sensors, channels = values.shape
        w = np.full(sensors, 1.0 / sensors) if weights is None else np.asarray(weights) / np.sum(weights)
        mean = values.mean(axis=0)
        root = np.repeat(np.sqrt(w), channels)
        directions, sizes = principal_directions((values - mean).reshape(functions, -1) * root)
        kept = min(count, max(1, int(np.sum(sizes > NEGLIGIBLE * sizes[0]))))
        scale = np.sqrt(np.sum(sizes**2) / functions) or 1.0
        components = (directions[:, :kept] * root[:, None] / scale).reshape(sensors, channels, kept)
        return cls(jnp.asarray(mean, u.dtype), jnp.asarray(components, u.dtype), encoder)

    @property
    def size(self) -> int:
        return self.components.shape[-1]

    def __call__(self, u: Input) -> Float[Array, " d"]:
        if self.encoder is not None:
            u = self.encoder(u)[:, None]
        sensors, channels = self.mean.shape
        values = check_values(u, sensors, channels, "PrincipalComponents")
        return jnp.einsum("mc,mck->k", values - self.mean, self.components)


def principal_directions(
    rows: Float[np.ndarray, "N k"],
) -> tuple[Float[np.ndarray, "k r"], Float[np.ndarray, " r"]]:
    """The right singular vectors of a matrix and its singular values, from the largest to the smallest.

    They come from the eigenvectors of the smaller product of the matrix with itself, which costs a fraction of a
    singular value decomposition; singular values below 1e-7 of the largest are round-off.
    """
    is_wide = len(rows) < rows.shape[1]
    squares, vectors = np.linalg.eigh(rows @ rows.T if is_wide else rows.T @ rows)
    sizes, vectors = np.sqrt(np.maximum(squares[::-1], 0.0)), vectors[:, ::-1]
    if is_wide:
        vectors = rows.T @ vectors / np.where(sizes > 0.0, sizes, 1.0)
    return vectors, sizes
