"""Fourier neural operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from loca.data import Normalization, Queries, Samples, Shared
from loca.models.interpolation import Grid, Interpolation
from loca.models.operator import Operator
from loca.nets import MLP
from loca.typing import Input, Key, Measurements


class SpectralLayer(eqx.Module):
    """h ↦ F⁻¹(R · F h) + W h + b, with R given on the lowest frequencies only.

    Frequencies −m … m − 1 are kept along every axis but the last, 0 … m − 1 along that. R is stored as real and
    imaginary parts, so that any optimizer, checkpoint or mesh treats it as the real numbers it is.
    """

    real: Float[Array, "*modes w w"]
    imag: Float[Array, "*modes w w"]
    weight: Float[Array, "w w"]
    bias: Float[Array, " w"]

    def __init__(self, modes: Sequence[int], width: int, *, key: Key):
        real_key, imag_key, weight_key = jax.random.split(key, 3)
        *others, last = modes
        shape = (*(2 * m for m in others), last, width, width)
        # entries uniform on [0, 1/w²) in both parts, as in the paper that introduced the layer (Li et al. 2021)
        self.real = jax.random.uniform(real_key, shape) / width**2
        self.imag = jax.random.uniform(imag_key, shape) / width**2
        self.weight = jax.nn.initializers.glorot_normal()(weight_key, (width, width))
        self.bias = jnp.zeros(width)

    def __call__(self, h: Float[Array, "*grid w"]) -> Float[Array, "*grid w"]:
        axes = tuple(range(h.ndim - 1))
        kept = self.real.shape[:-2]
        spectrum = crop(jnp.fft.rfftn(h, axes=axes), kept)
        spectrum = jnp.einsum("...i,...io->...o", spectrum, jax.lax.complex(self.real, self.imag))
        frequencies = (*h.shape[:-2], h.shape[-2] // 2 + 1)
        smooth = jnp.fft.irfftn(pad(spectrum, frequencies), s=h.shape[:-1], axes=axes)
        return smooth + h @ self.weight + self.bias


def crop(spectrum: Complex[Array, "*frequencies w"], kept: Sequence[int]) -> Complex[Array, "*modes w"]:
    """The lowest frequencies: both ends of every axis but the last, the beginning of that."""
    *others, last = kept
    for axis, size in enumerate(others):
        low = jax.lax.slice_in_dim(spectrum, 0, size // 2, axis=axis)
        high = jax.lax.slice_in_dim(spectrum, -(size // 2), None, axis=axis)
        spectrum = jnp.concatenate([low, high], axis)
    return jax.lax.slice_in_dim(spectrum, 0, last, axis=len(others))


def pad(spectrum: Complex[Array, "*modes w"], sizes: Sequence[int]) -> Complex[Array, "*frequencies w"]:
    """The inverse of `crop`: zeros at all other frequencies."""
    *others, last = sizes
    for axis, size in enumerate(others):
        low, high = jnp.split(spectrum, 2, axis)
        gap = list(spectrum.shape)
        gap[axis] = size - spectrum.shape[axis]
        spectrum = jnp.concatenate([low, jnp.zeros(gap, spectrum.dtype), high], axis)
    rest = [(0, 0)] * spectrum.ndim
    rest[len(others)] = (0, last - spectrum.shape[len(others)])
    return jnp.pad(spectrum, rest)


class FNO(Operator):
    """F(u) = P ∘ L_T ∘ σ ∘ … ∘ σ ∘ L₁ ∘ Q (u, y) on a grid, and by multilinear interpolation from it anywhere.

    Q lifts values and coordinates to `width` channels at each point, the L are spectral layers, P projects. Where the
    output has more dimensions than the input, such as time, the input is repeated along them.
    """

    normalization: Normalization
    lift: MLP  # Q   ℝᵈᵘ⁺ᵈʸ → ℝʷ
    layers: tuple[SpectralLayer, ...]  # L₁ … L_T
    project: MLP  # P   ℝʷ → ℝᵈˢ
    grid: Grid
    padding: tuple[int, ...] = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        normalization: Normalization,
        grid: Grid,
        *,
        modes: int | Sequence[int],
        width: int = 32,
        depth: int = 4,
        projection_width: int = 128,
        padding: int | Sequence[int] = 0,
        activation: Callable[[Array], Array] = jax.nn.gelu,
        key: Key,
    ):
        """An operator on a grid.

        **Arguments:**

        - `normalization`: of inputs and outputs; tells the numbers of channels.
        - `grid`: where it computes.
        - `modes`: frequencies m kept along each axis, one number for all or one each.
        - `width`: channels w inside.
        - `depth`: T, the number of spectral layers.
        - `projection_width`: hidden channels of P.
        - `padding`: zeros appended along each axis, for functions that are not periodic.
        - `activation`: σ.
        - `key`: randomness of the weights.
        """
        dimension = len(grid.shape)
        modes = (modes,) * dimension if isinstance(modes, int) else tuple(modes)
        self.padding = (padding,) * dimension if isinstance(padding, int) else tuple(padding)
        check_modes(modes, grid.shape, self.padding)
        lift_key, project_key, *keys = jax.random.split(key, 2 + depth)
        channels = len(normalization.u_shift) + dimension
        self.normalization = normalization
        self.grid = grid
        self.lift = MLP((channels, width), key=lift_key)
        self.layers = tuple(SpectralLayer(modes, width, key=k) for k in keys)
        self.project = MLP(
            (width, projection_width, len(normalization.s_shift)), activation=activation, key=project_key
        )
        self.activation = activation

    @classmethod
    def create(
        cls,
        data: Samples,
        *,
        key: Key,
        modes: int | Sequence[int] = 12,
        width: int = 32,
        depth: int = 4,
        padding: int | Sequence[int] = 0,
    ) -> FNO:
        """A model for training data whose sensors form a grid; arguments as for the constructor."""
        grid = Grid.of(data)
        return cls(Normalization.fit(data), grid, modes=modes, width=width, depth=depth, padding=padding, key=key)

    def encode(self, u: Input) -> Float[Array, "*grid c"]:
        sensors = self.grid.sensor_shape
        expected = (math.prod(sensors), len(self.normalization.u_shift))
        if isinstance(u, Measurements) or u.shape != expected:
            raise ValueError(
                f"expected u of shape {expected}, the values on the grid {sensors} this model was built for in "
                f"row-major order, got {'Measurements' if isinstance(u, Measurements) else u.shape}; "
                "interpolate to that grid first, and use `predict` for many functions"
            )
        values = self.normalization.standardize_input(u)
        assert not isinstance(values, Measurements)
        values = jnp.broadcast_to(values.reshape(*sensors, -1), (*self.grid.shape, values.shape[-1]))
        return jnp.concatenate([values, self.grid.coordinates()], axis=-1)

    def respond(self, codes: Float[Array, "N *grid c"], queries: Queries) -> Float[Array, "N P d_s"]:
        fields = jax.vmap(self.field)(codes)
        if isinstance(queries, Shared):
            return jax.vmap(self.grid.interpolation(queries.y))(fields)
        y = queries.locations(len(codes))
        return jax.vmap(lambda field, y: self.grid.interpolation(y)(field))(fields, y)

    def field(self, code: Float[Array, "*grid c"]) -> Float[Array, "*grid d_s"]:
        """The standardized output on the whole grid."""
        h = jnp.pad(self.lift(code), [(0, p) for p in self.padding] + [(0, 0)])
        for layer in self.layers[:-1]:
            h = self.activation(layer(h))
        h = self.layers[-1](h)[tuple(slice(0, n) for n in self.grid.shape)]
        return self.project(h)

    def at(self, y: Float[Array, "P d_y"]) -> FieldAtQueries:
        return FieldAtQueries(self, self.grid.interpolation(y))


class FieldAtQueries(eqx.Module):
    """u ↦ F(u)(y) for fixed queries: the neighbors of every query on the grid, and their weights, are constants."""

    operator: FNO
    interpolation: Interpolation

    def __call__(self, u: Input) -> Float[Array, "P d_s"]:
        s = self.interpolation(self.operator.field(self.operator.encode(u)))
        return self.operator.normalization.restore_output(s)


def check_modes(modes: tuple[int, ...], shape: tuple[int, ...], padding: tuple[int, ...]) -> None:
    """Raise unless the padded grid has all the frequencies asked for."""
    if not len(modes) == len(padding) == len(shape):
        raise ValueError(f"modes {modes} and padding {padding} need one number for each axis of the grid {shape}")
    for axis, (m, n, p) in enumerate(zip(modes, shape, padding, strict=True)):
        available = (n + p) // 2 + (axis == len(modes) - 1)
        if not 1 <= m <= available:
            raise ValueError(
                f"axis {axis} of the grid has {n} points and {p} of padding, which carry {available} frequencies; "
                f"got modes={m}: keep at most {available} or pad more"
            )
