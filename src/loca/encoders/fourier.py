"""The lowest Fourier modes."""

import itertools
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.encoders.encoder import Encoder, check_positive, fields
from loca.typing import Input


class Fourier(Encoder):
    """û(k) = 1/m Σ_x u(x) exp(−2πi k·x) for |kᵢ| < Kᵢ, on a regular periodic grid over the unit cube.

    As real numbers: û(0), then √2 Re û(k), then √2 Im û(k), for one of each pair k, −k, whose coefficients are complex
    conjugates. The code of a band-limited function does not depend on the grid, and its norm is the function's root
    mean square.

    Build it with `Fourier.create`.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    modes: tuple[int, ...] = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    @classmethod
    def create(cls, shape: Sequence[int], modes: int | Sequence[int], channels: int = 1) -> "Fourier":
        """**Arguments:**

        - `shape`: the grid of u, one to three dimensions; m is its product.
        - `modes`: K, frequencies per dimension from 0 up, one number for all or one each. Good values: 8 to 16.
        - `channels`: d_u, each transformed separately.
        """
        shape = tuple(shape)
        modes = (modes,) * len(shape) if isinstance(modes, int) else tuple(modes)
        check_positive(channels=channels, **{f"modes[{i}]": K for i, K in enumerate(modes)})
        if not 1 <= len(shape) <= 3 or len(modes) != len(shape):
            raise ValueError(
                f"expected a grid of one to three dimensions and as many numbers of modes, got shape={shape} and "
                f"modes={modes}"
            )
        if any(2 * K - 1 > n for K, n in zip(modes, shape, strict=True)):
            most = tuple((n + 1) // 2 for n in shape)
            raise ValueError(f"a grid {shape} resolves at most {most} modes from 0 up, got modes={modes}; use fewer")
        return cls(shape, modes, channels)

    @property
    def frequencies(self) -> Int[np.ndarray, "half d_x"]:
        """The retained k: 0 first, then those whose last nonzero component is positive."""
        every = itertools.product(*(range(1 - K, K) for K in self.modes))
        zero = (0,) * len(self.modes)
        return np.array([zero, *(k for k in every if k[::-1] > zero)])

    @property
    def size(self) -> int:
        return self.channels * (2 * len(self.frequencies) - 1)

    def __call__(self, u: Input) -> Float[Array, " d"]:
        values = fields(u, self.shape, self.channels, "Fourier")
        c = jnp.fft.rfftn(values, axes=tuple(range(1, values.ndim)), norm="forward")
        c = c[:, *(self.frequencies % np.array(self.shape)).T]
        waves = np.sqrt(2) * c[:, 1:]
        return jnp.concatenate([c[:, :1].real, waves.real, waves.imag], axis=1).reshape(-1)
