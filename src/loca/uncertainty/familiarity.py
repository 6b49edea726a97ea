"""Whether an input function is like those that an operator was made for."""

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization
from loca.encoders import Encoder
from loca.parameters import Fixed
from loca.typing import Input, PyTree, values_of

EXPLAINED = 0.99  # the share of the variance of the inputs that principal components explain
NEGLIGIBLE = 1e-6  # residuals below this share of the variance are round-off

ALARM = 0.05
"""Inputs with a smaller p-value are reported, so about this share of inputs like the calibration functions."""


class UnfamiliarInputWarning(UserWarning):
    """Input functions are not like those that an operator was calibrated on."""


class Familiarity(Fixed):
    """t(u) = Σ_k (e_k·ũ)²/(K λ_k) + ‖r‖²/ρ, and the p-value of t(u) among held-out functions.

    e_k and λ_k are the K principal components of input functions and their variances, r is what lies outside of them
    and ρ its mean square; both terms are about 1 for functions like these. ũ are standardized values at the sensors, or
    the codes of an encoder if every function has its own sensors.

    The p-value is (1 + number of held-out functions with a larger t)/(B + 1). If the new and the B held-out functions
    are exchangeable and none of them was used for e, λ and ρ, it is at most α with a probability of at most α.

    Build it with `Familiarity.fit`.
    """

    normalization: Normalization
    encoder: Encoder | None
    mean: Float[Array, " D"]
    components: Float[Array, "D K"]  # divided by √(K λ)
    directions: Float[Array, "D K"]  # of length 1
    residual: Float[Array, ""]
    held: Float[Array, " B"]  # t of held-out functions, sorted

    @classmethod
    def fit(
        cls, normalization: Normalization, u: PyTree, held: PyTree, encoder: Encoder | None = None
    ) -> "Familiarity":
        """The score of input functions u, such as training functions, and its distribution over others, for p-values.

        Functions with sensors of their own need an encoder.
        """
        values = np.asarray(jax.lax.map(lambda one: flat(normalization, encoder, one), u, batch_size=256), np.float64)
        mean = values.mean(axis=0)
        _, sizes, rows = np.linalg.svd(values - mean, full_matrices=False)
        variances = sizes**2 / len(values)
        total = variances.sum() or 1.0
        most = max(1, len(values) // 4)  # the variances of more components would be estimated from too few functions
        kept = min(most, 1 + int(np.searchsorted(np.cumsum(variances), EXPLAINED * total)), len(rows))
        scaled = rows[:kept] / np.sqrt(kept * np.maximum(variances[:kept], NEGLIGIBLE * total))[:, None]
        residual = max(variances[kept:].sum(), NEGLIGIBLE * total)
        arrays = (jnp.asarray(each, jnp.float32) for each in (mean, scaled.T, rows[:kept].T, residual))
        found = cls(normalization, encoder, *arrays, held=jnp.zeros(0))
        return dataclasses.replace(found, held=jnp.sort(jax.lax.map(found.score, held, batch_size=256)))

    def score(self, u: Input) -> Float[Array, ""]:
        """t(u) of one function: about 1 for familiar inputs, more for others."""
        departure = flat(self.normalization, self.encoder, u) - self.mean
        outside = departure - self.directions @ (departure @ self.directions)
        return jnp.sum((departure @ self.components) ** 2) + jnp.sum(outside**2) / self.residual

    def p_value(self, u: Input) -> Float[Array, ""]:
        """The p-value of one function."""
        return (1.0 + jnp.sum(self.held >= self.score(u))) / (1.0 + len(self.held))

    @eqx.filter_jit
    def p_values(self, u: Input) -> Float[Array, " N"]:
        """The p-values of many functions."""
        return jax.lax.map(self.p_value, u, batch_size=256)


def flat(normalization: Normalization, encoder: Encoder | None, u: Input) -> Float[Array, " D"]:
    """One input function as a vector: standardized values at its sensors, or its code."""
    u = normalization.standardize_input(u)
    return jnp.concatenate([values.ravel() for values in values_of(u)]) if encoder is None else encoder(u)


def warn_unfamiliar(p_values: Float[np.ndarray, " N"]) -> None:
    """Warn if more of these inputs are unfamiliar than chance explains."""
    from scipy.stats import binom

    count, total = int(np.sum(p_values <= ALARM)), len(p_values)
    if count and binom.sf(count - 1, total, ALARM) <= ALARM + 1e-9:  # one unfamiliar input of one is a reason
        warnings.warn(
            f"{count} of {total} input functions are unlike those that the model was calibrated on (p ≤ {ALARM}, "
            f"smallest {p_values.min():.2g}); bands are not valid for them, and predictions may be wrong",
            UnfamiliarInputWarning,
            stacklevel=3,
        )
