"""Which inputs are plausible: normal coordinates, and the map from coordinates to an input function."""

import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization, Records, Samples, as_input, as_numbers
from loca.models import Operator, adapt
from loca.parameters import Fixed
from loca.typing import Input, MultiInput, Numbers, has_own_sensors, values_of, with_values

SHARE, OUTSIDE = 0.999, 0.05
"""Of the variance of inputs: what components explain, unless given; what may be outside of them without a warning."""

MOST = 4096
"""Functions of a file that are read, at most; they are spread evenly over it."""


class InversionWarning(UserWarning):
    """A posterior may not be what the caller thinks: a prior that does not fit, or a sampler that did not converge."""


class Prior(Fixed):
    """u = decode(z) with independent z_k ~ N(mean_k, scales_k²).

    `Prior.fit` makes one from input functions: z are their Karhunen–Loève coordinates (principal components). For a
    parametrization of your own pass the three arguments:
    `Prior([0.0, 1.0], [1.0, 0.2], lambda z: z[0] * jnp.sin(z[1] * x))`.

    **Arguments:**

    - `mean`, `scales`: of the coordinates.
    - `decode`: from K coordinates to one input function, as JAX can differentiate it.
    - `encode`: from an input function to the coordinates of the nearest one that `decode` reaches; None if unknown.
    """

    mean: Float[Array, " K"]
    scales: Float[Array, " K"]
    decode: Callable[[Float[Array, " K"]], Input]
    encode: Callable[[Input], Float[Array, " K"]] | None

    def __init__(
        self,
        mean: Numbers,
        scales: Numbers,
        decode: Callable[[Float[Array, " K"]], Input],
        encode: Callable[[Input], Float[Array, " K"]] | None = None,
    ):
        self.mean, self.scales = as_numbers(mean, "mean", "(K,)"), as_numbers(scales, "scales", "(K,)")
        self.decode, self.encode = decode, encode
        if self.mean.shape != self.scales.shape or not np.all(np.asarray(self.scales) > 0.0):
            raise ValueError(
                f"expected a mean and a positive scale for each coordinate, got {len(self.mean)} means and the scales "
                f"{np.asarray(self.scales).tolist()}; leave out coordinates without variance"
            )

    @classmethod
    def fit(cls, normalization: Normalization, u: Input, share: float = SHARE) -> "Prior":
        """The prior of which given input functions are draws, in the sense of their mean and covariance.

        The coordinates are those of the principal components of ũ, the transformed and standardized values; so a
        variable with the transform `log` is positive under the prior. Every field, and every number beside fields, has
        the same weight. Functions that differ from each other need at least one coordinate, N functions have at most
        N − 1.

        **Arguments:**

        - `normalization`: of the inputs, such as `operator.normalization`, or `Normalization.fit(train, transforms)`.
        - `u`: N functions at the same sensors.
        - `share`: of the variance that the components explain.
        """
        if has_own_sensors(u):
            raise ValueError(
                "principal components need values at the same sensors for every function, but every function has its "
                "own; pass a `Prior` whose `decode` returns Measurements at sensors of your choice"
            )
        count = len(values_of(u)[0])
        if count < 2:
            raise ValueError(f"a prior needs at least two different input functions, got {count}")
        example = jax.tree.map(lambda array: array[0], u)
        codec = Codec(normalization, jnp.zeros(0), jnp.zeros((0, 0)), example)
        values = np.asarray(flat_each(codec, u), np.float64)
        mean = values.mean(axis=0)
        _, sizes, rows = np.linalg.svd(values - mean, full_matrices=False)
        variances = sizes**2 / (count - 1)
        if not variances.sum() > 0.0:
            raise ValueError("all input functions of the prior are equal; pass functions that differ")
        kept = 1 + int(np.searchsorted(np.cumsum(variances), share * variances.sum()))
        kept = min(kept, int(np.sum(sizes > 1e-6 * sizes[0])))
        directions, dtype = rows[:kept].T, values_of(u)[0].dtype
        codec = Codec(normalization, jnp.asarray(mean, dtype), jnp.asarray(directions, dtype), example)
        scales = jnp.asarray(np.sqrt(variances[:kept]), dtype)
        warn_negative(codec, np.sqrt(directions**2 @ variances[:kept]), u)
        return cls(jnp.zeros(kept), scales, codec, codec.encode)

    @property
    def size(self) -> int:
        """K."""
        return len(self.mean)

    def __call__(self, xi: Float[Array, " K"]) -> Input:
        """u of standardized coordinates ξ = (z − mean)/scales, which are independent standard normal numbers."""
        return self.decode(self.mean + self.scales * xi)

    def project(self, u: Input) -> Input:
        """The function nearest to u that `decode` reaches; u itself if the prior has no `encode`."""
        return u if self.encode is None else self.decode(self.encode(u))


class Codec(Fixed):
    """z ↦ u with ũ = ū + E z, and u ↦ z = Eᵀ(ũ − ū): coordinates along orthonormal directions E of ũ as a vector."""

    normalization: Normalization
    mean: Float[Array, " D"]
    directions: Float[Array, "D K"]
    example: Input  # its structure and shapes are those of all functions

    def __call__(self, z: Float[Array, " K"]) -> Input:
        return self.unflat(self.mean + self.directions @ z)

    def encode(self, u: Input) -> Float[Array, " K"]:
        """The coordinates of the nearest function."""
        return (self.flat(u) - self.mean) @ self.directions

    def flat(self, u: Input) -> Float[Array, " D"]:
        """ũ as a vector, in which every field and every number has the same weight."""
        values = values_of(self.normalization.standardize_input(u))
        return jnp.concatenate([part.ravel() * weight_of(part) for part in values])

    def unflat(self, vector: Float[Array, " D"]) -> Input:
        """u from such a vector."""
        parts = values_of(self.example)
        pieces = jnp.split(vector, np.cumsum([part.size for part in parts])[:-1])
        values = [piece.reshape(part.shape) / weight_of(part) for piece, part in zip(pieces, parts, strict=True)]
        return self.normalization.restore_input(with_values(self.example, values))


def weight_of(values: Array) -> float:
    """1/√m for the values of a field at m sensors, 1 for numbers beside fields."""
    return 1.0 if values.ndim == 1 else len(values) ** -0.5


def warn_negative(codec: Codec, deviation: Float[np.ndarray, " D"], u: Input) -> None:
    """Warn if inputs are positive, but not all draws from the prior."""
    lowest = values_of(codec.unflat(codec.mean - 3.0 * jnp.asarray(deviation, codec.mean.dtype)))
    for given, reached in zip(values_of(u), lowest, strict=True):
        least, reached = (np.asarray(values).reshape(-1, values.shape[-1]).min(axis=0) for values in (given, reached))
        if np.any((least > 0.0) & (reached <= 0.0)):
            warnings.warn(
                "all given inputs are positive, but the prior has negative values within three standard deviations; "
                "for a positive prior use a logarithm: loca.inversion.Prior.fit(loca.data.Normalization.fit(train, "
                "{NAME: 'log'}), train.u)",
                InversionWarning,
                stacklevel=5,
            )


def loaded(operator: Operator, data: Samples | Records) -> Samples:
    """Functions in memory, as an operator expects them."""
    data = adapt(operator, data)
    if isinstance(data, Samples):
        return data
    return data.load(np.unique(np.linspace(0, len(data) - 1, min(MOST, len(data))).round().astype(int)))


def as_prior(operator: Operator, prior: Prior | Samples | Records | Numbers | MultiInput) -> Prior:
    """A prior as given, or from input functions; checked against the operator."""
    if isinstance(prior, Samples | Records):
        prior = Prior.fit(operator.normalization, loaded(operator, prior).u)
    elif not isinstance(prior, Prior):
        prior = Prior.fit(operator.normalization, as_input(prior, many=True))
    shapes = [part.shape for part in values_of(prior(jnp.zeros_like(prior.mean)))]
    channels, expected = sum(shape[-1] for shape in shapes), len(operator.normalization.u_shift)
    if channels != expected:
        raise ValueError(
            f"the prior decodes to inputs of shape {shapes} with {channels} channels, but the operator takes {expected}"
        )
    known = () if operator.signature is None else operator.signature.fields
    for field, shape in zip(known, shapes, strict=False):
        if field.x is not None and shape[0] != len(field.x):
            raise ValueError(f"the prior decodes to shape {shape}, but the operator has {len(field.x)} sensors")
    return prior


@eqx.filter_jit
def flat_each(codec: Codec, u: Input) -> Float[Array, "N D"]:
    """The vectors of many functions."""
    return jax.lax.map(codec.flat, u, batch_size=256)


def warn_outside_prior(prior: Prior, u: Input) -> float:
    """The share of the variance of other inputs outside of the components, 0 for other priors; warn if it is large."""
    codec = prior.decode
    if not isinstance(codec, Codec):
        return 0.0
    departures = flat_each(codec, u) - codec.mean
    inside = departures @ codec.directions
    share = max(0.0, float(1.0 - jnp.sum(inside**2) / jnp.sum(departures**2)))
    if share > OUTSIDE:
        warnings.warn(
            f"{100 * share:.0f} % of the variance of the held-out inputs is outside of the prior, which has "
            f"{prior.size} coordinates; the posterior does not contain it. Pass more training functions as prior",
            InversionWarning,
            stacklevel=4,
        )
    return share
