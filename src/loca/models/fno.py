"""Fourier neural operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.data import Free, Normalization, Queries, Samples
from loca.models.interpolation import Grid, Interpolation
from loca.models.operator import Operator
from loca.models.transforms import to_frequencies, to_grid
from loca.nets import MLP
from loca.products import matmul
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

    def __call__(self, h: Float[Array, "w N *grid"]) -> Float[Array, "w N *grid"]:
        """On N functions at once; with channels first, sums over places and over channels are both plain products."""
        modes = self.real.shape[:-2]
        smooth = to_grid(self.filter(to_frequencies(h, modes)), modes, h.shape[2:])
        return smooth + over_channels(self.weight, self.bias, h)

    def filter(self, spectrum: Float[Array, "w N K 2"]) -> Float[Array, "w N K 2"]:
        """R · F h at every frequency, the complex product as one of real matrices: (Re, Im) ↦ (Re, Im)."""
        width, count, frequencies, _ = spectrum.shape
        modes = self.real.ndim - 2
        # in the spectrum the last axis varies slowest
        order = (*reversed(range(modes)), modes, modes + 1)
        real, imag = (part.transpose(order).reshape(-1, width, width) for part in (self.real, self.imag))
        R = jnp.block([[real, imag], [-imag, real]])
        rows = spectrum.transpose(2, 1, 3, 0).reshape(frequencies, count, 2 * width)
        return (rows @ R).reshape(frequencies, count, 2, width).transpose(3, 1, 0, 2)


def over_channels(
    weight: Float[Array, "c_in c_out"], bias: Float[Array, " c_out"], h: Float[Array, "c_in N *grid"]
) -> Float[Array, "c_out N *grid"]:
    """W h + b at every place."""
    mixed = matmul(weight.T, h.reshape(len(h), -1)) + bias[:, None]
    return mixed.reshape(-1, *h.shape[1:])


def at_every_place(net: MLP, h: Float[Array, "c_in N *grid"]) -> Float[Array, "c_out N *grid"]:
    """The perceptron on channels that come first."""
    *hidden, last = zip(net.weights, net.biases, strict=True)
    for weight, bias in hidden:
        h = net.activation(over_channels(weight, bias, h))
    return over_channels(*last, h)


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
        if len(queries.points) > len(codes) * queries.count:
            queries = Free(queries.locations(len(codes)))
        near = self.grid.interpolation(queries.points)
        index, weight = (jax.vmap(queries.gather)(part) for part in (near.index, near.weight))
        corners, count = len(index), queries.count

        def in_rows(part: Array) -> Array:
            """A row for each corner of each query, with one entry for all functions or one for each."""
            return jnp.swapaxes(part.reshape(corners, -1, count), 1, 2).reshape(corners * count, -1, 1)

        def pick(field: Float[Array, "_ N *grid"]) -> Float[Array, "rows N _"]:
            places = jnp.transpose(field.reshape(*field.shape[:2], -1), (2, 1, 0))
            return jnp.take_along_axis(places, in_rows(index), axis=0)

        h = self.hidden(codes)
        # the projection has many channels: it is applied where it is asked for if that is less than the whole grid
        few = corners * count < math.prod(self.grid.shape)
        values = self.project(pick(h)) if few else pick(at_every_place(self.project, h))
        s = (in_rows(weight) * values).reshape(corners, count, len(codes), -1).sum(axis=0)
        return jnp.swapaxes(s, 0, 1)

    def hidden(self, codes: Float[Array, "N *grid c"]) -> Float[Array, "w N *grid"]:
        """All but the projection, on the whole grid, channels first."""
        h = at_every_place(self.lift, jnp.moveaxis(codes, -1, 0))
        h = jnp.pad(h, [(0, 0), (0, 0)] + [(0, p) for p in self.padding])
        for layer in self.layers[:-1]:
            h = self.activation(layer(h))
        return self.layers[-1](h)[(..., *(slice(0, n) for n in self.grid.shape))]

    def field(self, code: Float[Array, "*grid c"]) -> Float[Array, "*grid d_s"]:
        """The standardized output of one function on the whole grid."""
        return jnp.moveaxis(at_every_place(self.project, self.hidden(code[None]))[:, 0], 0, -1)

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
