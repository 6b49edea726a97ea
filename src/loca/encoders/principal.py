"""Principal components of the input functions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.encoders.encoder import Encoder, check_values
from loca.typing import Input


class PrincipalComponents(Encoder):
    """𝒟(u) = Eᵀ(u − ū): the components of u along the directions in which the training functions differ most.

    Codes are scaled by one number, so that their mean square length over the training functions is 1. Distances between
    codes are then distances between functions, up to what the dropped components contribute.

    Build it with `PrincipalComponents.fit`.
    """

    mean: Float[Array, "m d_u"]
    components: Float[Array, "m d_u k"]

    @classmethod
    def fit(
        cls, u: Float[Array, "N m d_u"], count: int, weights: Float[np.ndarray, " m"] | None = None
    ) -> PrincipalComponents:
        """The components of given functions.

        **Arguments:**

        - `u`: the training functions, in standardized units.
        - `count`: k, at most. Components without variance are dropped.
        - `weights`: quadrature weights of the sensors; equal by default.
        """
        values = np.asarray(u, np.float64)
        functions, sensors, channels = values.shape
        w = np.full(sensors, 1.0 / sensors) if weights is None else np.asarray(weights) / np.sum(weights)
        mean = values.mean(axis=0)
        root = np.repeat(np.sqrt(w), channels)
        _, sizes, directions = np.linalg.svd((values - mean).reshape(functions, -1) * root, full_matrices=False)
        kept = min(count, max(1, int(np.sum(sizes > 1e-6 * sizes[0]))))
        scale = np.sqrt(np.sum(sizes**2) / functions) or 1.0
        components = (directions[:kept] * root / scale).T.reshape(sensors, channels, kept)
        return cls(jnp.asarray(mean, u.dtype), jnp.asarray(components, u.dtype))

    @property
    def size(self) -> int:
        return self.components.shape[-1]

    def __call__(self, u: Input) -> Float[Array, " d"]:
        values = check_values(u, *self.mean.shape, "PrincipalComponents")
        return jnp.einsum("mc,mck->k", values - self.mean, self.components)
