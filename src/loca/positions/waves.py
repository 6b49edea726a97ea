"""Cosines and sines at octave frequencies, shared by the encodings of boxes and tori."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def octaves(t: Float[Array, "*P d_y"], base: float, count: int, start: int) -> Float[Array, "*P E"]:
    """cos(2ʲ·base·tⁱ), sin(2ʲ·base·tⁱ) for j = start … start + count − 1, grouped by dimension i."""
    frequencies = base * 2.0 ** jnp.arange(start, start + count)
    angles = t[..., :, None] * frequencies
    waves = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
    return waves.reshape(*t.shape[:-1], -1)


def check_even(num_frequencies: int) -> int:
    """Half of H, or an error: cosines and sines come in pairs."""
    if num_frequencies < 0 or num_frequencies % 2:
        raise ValueError(
            f"num_frequencies (H) counts cosines and sines together and must be even, got {num_frequencies}; "
            f"pass {2 * max(1, num_frequencies // 2)}"
        )
    return num_frequencies // 2
