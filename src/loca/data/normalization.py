"""Shift and scale of every channel, fitted on training data and stored in every model."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.data.finite import check_finite
from loca.data.samples import Samples
from loca.parameters import Fixed
from loca.typing import Input, Measurements, values_of, with_values


class Normalization(Fixed):
    """ũ = (u − a)/b and s̃ = (s − c)/d, with one (a, b) per input channel and one (c, d) per output channel.

    Statistics are taken over functions and locations together, never per position in the list of queries: the same
    position is a different location in every function, so its mean is noise that no model can see.
    """

    u_shift: Float[Array, " d_u"]
    u_scale: Float[Array, " d_u"]
    s_shift: Float[Array, " d_s"]
    s_scale: Float[Array, " d_s"]

    @classmethod
    def fit(cls, samples: Samples) -> Normalization:
        """Fit the mean and the standard deviation of each channel of training data, which must be finite."""
        check_finite(samples)
        found = [moments_of_input(part.u) for part in samples.parts]
        u_shift, u_scale = (jnp.concatenate(each) for each in zip(*found, strict=True))
        s_shift, s_scale = moments(samples.s)
        return cls(u_shift, u_scale, s_shift, s_scale)

    @classmethod
    def identity(cls, input_size: int, output_size: int) -> Normalization:
        """The identity, for d_u = `input_size` and d_s = `output_size` channels."""
        return cls(jnp.zeros(input_size), jnp.ones(input_size), jnp.zeros(output_size), jnp.ones(output_size))

    def standardize_input(self, u: Input) -> Input:
        """ũ from u."""
        parts = values_of(u)
        ends = np.cumsum([part.shape[-1] for part in parts])
        if ends[-1] != len(self.u_shift):  # otherwise one channel would be broadcast to all
            raise ValueError(
                f"u has {ends[-1]} channels but the training data had {len(self.u_shift)}; "
                f"pass values of shape (m, {len(self.u_shift)})"
            )
        shifts, scales = (jnp.split(each, ends[:-1]) for each in (self.u_shift, self.u_scale))
        return with_values(u, [(part - a) / b for part, a, b in zip(parts, shifts, scales, strict=True)])

    def standardize_output(self, s: Float[Array, "*P d_s"]) -> Float[Array, "*P d_s"]:
        """s̃ from s."""
        return (s - self.s_shift) / self.s_scale

    def restore_output(self, s: Float[Array, "*P d_s"]) -> Float[Array, "*P d_s"]:
        """s from s̃."""
        return self.s_shift + self.s_scale * s


def moments_of_input(u: Input) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The mean and the standard deviation of each channel of one kind of input."""
    return moments(u.u, u.mask[..., None]) if isinstance(u, Measurements) else moments(*values_of(u))


def moments(
    values: Float[Array, "*N d"], mask: Bool[Array, "*N 1"] | None = None
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The mean and the standard deviation of each channel; the deviation of a constant channel is 1."""
    axes = tuple(range(values.ndim - 1))
    mean = jnp.mean(values, axis=axes, where=mask)
    deviation = jnp.std(values, axis=axes, where=mask)
    # The deviation of a constant channel is rounding error; dividing by it would turn rounding error into a signal.
    negligible = deviation <= 10.0 * jnp.finfo(values.dtype).eps * jnp.abs(mean)
    return mean, jnp.where(negligible, 1.0, deviation)
