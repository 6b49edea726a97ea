"""What every input encoder is, checks of input functions, and encoders of values at the sensors and of codes."""

import abc
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.parameters import Fixed
from loca.positions import check_even, octaves
from loca.typing import Input, Measurements, MultiInput


class Encoder(Fixed):
    """𝒟 : u ↦ ℝᵈ, from one input function to a vector of fixed length.

    Written for one function; use `jax.vmap` for many.
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """d, the length of the vector."""

    @abc.abstractmethod
    def __call__(self, u: Input) -> Float[Array, " d"]:
        """𝒟(u)."""


def check_values(u: Input, sensors: int, channels: int, name: str) -> Float[Array, "m d_u"]:
    """Return u, or raise unless it holds values at the m sensors of the encoder called `name`."""
    if isinstance(u, Measurements):
        raise TypeError(
            f"{name} needs values at the same sensors for every function, got Measurements, which have their own "
            "locations; encode those with `Projection`"
        )
    if isinstance(u, MultiInput):
        raise TypeError(
            f"{name} encodes one field, got a MultiInput with {len(u.fields)} fields and "
            f"{0 if u.scalars is None else u.scalars.shape[-1]} scalars; encode each of them, with `Joined`"
        )
    if u.shape != (sensors, channels):
        raise ValueError(
            f"{name} was built for {sensors} sensors and {channels} channel(s), that is u of shape "
            f"{(sensors, channels)}, got {u.shape}; put channels last, and map over functions with `jax.vmap`"
        )
    return u


def check_positive(**sizes: int) -> None:
    """Raise unless every size is at least one."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1, got {size}")


class Sensors(Encoder):
    """𝒟(u) = (u, cos 2ʲπu, sin 2ʲπu) at m fixed sensors, j = 0 … H/2 − 1; the channels of a sensor are adjacent.

    **Arguments:**

    - `sensors`: m.
    - `channels`: d_u.
    - `num_frequencies`: H, cosines and sines together, per value; none by default. Features of the values, not of the
      locations. Good values: 2 to 10.
    """

    sensors: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    num_frequencies: int = eqx.field(static=True)

    def __init__(self, sensors: int, channels: int = 1, *, num_frequencies: int = 0):
        check_positive(sensors=sensors, channels=channels)
        check_even(num_frequencies)
        self.sensors, self.channels, self.num_frequencies = sensors, channels, num_frequencies

    @property
    def size(self) -> int:
        return self.sensors * self.channels * (1 + self.num_frequencies)

    def __call__(self, u: Input) -> Float[Array, " d"]:
        values = check_values(u, self.sensors, self.channels, "Sensors")
        if not self.num_frequencies:
            return values.reshape(-1)
        waves = octaves(values, math.pi, self.num_frequencies // 2, start=0)
        return jnp.concatenate([values.reshape(-1), waves.reshape(-1)])


class Joined(Encoder):
    """𝒟(u) = (𝒟₁(u₁), 𝒟₂(u₂), …, c): each field of a `MultiInput` has an encoder of its own, and codes are joined.

    The scalars c are as they are: a model has standardized them already.

    **Arguments:**

    - `encoders`: one for each field, in the order of the fields.
    - `scalars`: the number of scalars, 0 if there are none.
    """

    encoders: tuple[Encoder, ...]
    scalars: int = eqx.field(static=True)

    def __init__(self, encoders: Sequence[Encoder], scalars: int = 0):
        self.encoders, self.scalars = tuple(encoders), scalars

    @property
    def size(self) -> int:
        return sum(each.size for each in self.encoders) + self.scalars

    def __call__(self, u: Input) -> Float[Array, " d"]:
        if not isinstance(u, MultiInput) or len(u.fields) != len(self.encoders):
            given = f"{len(u.fields)} fields" if isinstance(u, MultiInput) else type(u).__name__
            raise ValueError(f"Joined encodes a MultiInput with {len(self.encoders)} fields, got {given}")
        shape = (0,) if u.scalars is None else u.scalars.shape
        if shape != (self.scalars,):
            raise ValueError(
                f"Joined was built for {self.scalars} scalars per function, got scalars of shape {shape}; pass "
                "`MultiInput(fields, scalars)`, and map over functions with `jax.vmap`"
            )
        codes = [encoder(field) for encoder, field in zip(self.encoders, u.fields, strict=True)]
        return jnp.concatenate(codes if u.scalars is None else [*codes, u.scalars])


FUNCTIONS = 1000
"""Number of functions whose codes determine shift and scale, unless there are fewer."""

FLOOR = 1e-3
"""The smallest deviation of a code relative to the largest: smaller ones are rounding errors, or noise of the fit."""


class Standardized(Encoder):
    """(𝒟(u) − a)/b, where a and b are the means and the standard deviations of the codes of training functions.

    The coefficients of a smooth function fall by orders of magnitude with the frequency; standardized, all count. Build
    it with `Standardized.fit`.
    """

    encoder: Encoder
    shift: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def fit(cls, encoder: Encoder, u: Input) -> "Standardized":
        """Fit shift and scale; a code that hardly varies is not magnified.

        **Arguments:**

        - `encoder`: 𝒟.
        - `u`: training functions as the model passes them to the encoder, `normalization.standardize_input(data.u)`.
        """
        count = len(jax.tree.leaves(u)[0])
        rows = jnp.linspace(0, count - 1, min(count, FUNCTIONS)).round().astype(int)
        codes = jax.lax.map(encoder, jax.tree.map(lambda array: array[rows], u), batch_size=100)
        deviation = jnp.std(codes, axis=0)
        least = jnp.maximum(FLOOR * jnp.max(deviation), jnp.finfo(codes.dtype).tiny)
        scale = jnp.where(jnp.max(deviation) > 0.0, jnp.maximum(deviation, least), 1.0)
        return cls(encoder, jnp.mean(codes, axis=0), scale)

    @property
    def size(self) -> int:
        return self.encoder.size

    def __call__(self, u: Input) -> Float[Array, " d"]:
        return (self.encoder(u) - self.shift) / self.scale


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
