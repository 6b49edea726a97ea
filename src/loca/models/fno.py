"""Fourier neural operators."""

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim
from jaxtyping import Array, Float

from loca.data import Free, Indexed, Interpolation, Normalization, Queries, Samples, TransformNames
from loca.losses import relative_l2
from loca.models.grid import Grid, SpectralLayer, at_every_point
from loca.models.operator import FieldOperator, Recipe
from loca.models.signature import Signature
from loca.nets import MLP
from loca.typing import Input, Key, Measurements, MultiInput, values_of

MODES = 12
"""Frequencies along each axis unless given, at most."""

PROJECTION_WIDTH = 128
"""Hidden channels of P."""


class FNO(FieldOperator):
    """F(u) = P ∘ L_T ∘ σ ∘ … ∘ σ ∘ L₁ ∘ Q (u, y) on a grid, and by multilinear interpolation elsewhere.

    Q lifts values and coordinates to `width` channels at each point, L are spectral layers, P is a projection. If the
    output has more dimensions than the input, such as time, the input is repeated along them. Scalars beside a field
    are constant channels.
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
        padding: int | Sequence[int] = 0,
        signature: Signature | None = None,
        key: Key,
    ):
        """An operator on a grid; see `create`."""
        dimension = len(grid.shape)
        modes = (modes,) * dimension if isinstance(modes, int) else tuple(modes)
        self.padding = (padding,) * dimension if isinstance(padding, int) else tuple(padding)
        if not len(modes) == len(self.padding) == dimension:
            raise ValueError(
                f"modes {modes} and padding {self.padding} need one number for each axis of the grid {grid.shape}"
            )
        for axis, (m, n, p) in enumerate(zip(modes, grid.shape, self.padding, strict=True)):
            most = (n + p) // 2 + (axis == dimension - 1)
            if not 1 <= m <= most:
                raise ValueError(
                    f"axis {axis} of the grid has {n} points and {p} of padding, which resolve {most} frequencies; got "
                    f"modes={m}: keep at most {most} or pad more"
                )
        lift_key, project_key, *keys = jax.random.split(key, 2 + depth)
        channels = len(normalization.u_shift) + dimension
        self.normalization = normalization
        self.grid = grid
        self.lift = MLP((channels, width), key=lift_key)
        self.layers = tuple(SpectralLayer(modes, width, key=k) for k in keys)
        self.project = MLP((width, PROJECTION_WIDTH, len(normalization.s_shift)), key=project_key)
        self.activation = jax.nn.gelu
        self.signature = signature

    @classmethod
    def create(
        cls,
        data: Samples,
        *,
        key: Key,
        modes: int | Sequence[int] | None = None,
        width: int = 32,
        depth: int = 4,
        padding: int | Sequence[int] | None = None,
        transforms: TransformNames = None,
    ) -> "FNO":
        """A model for training data whose sensors form a grid.

        **Arguments:**

        - `data`: training samples, from which grid, channels and normalization are inferred.
        - `key`: random key for the initial weights.
        - `modes`: frequencies m kept along each axis, one number for all axes or one for each; by default 12, or all.
        - `width`: number of hidden channels w.
        - `depth`: T, the number of spectral layers.
        - `padding`: zeros appended along each axis, for functions that are not periodic; by default a quarter of the
          points of each axis without a period.
        - `transforms`: of variables, by name, or "auto"; see `loca.data.TransformNames`.
        """
        grid = Grid.of(data)
        if padding is None:
            padding = [0 if period else n // 4 for n, period in zip(grid.shape, grid.periods, strict=True)]
        if modes is None:
            last = len(grid.shape) - 1
            modes = [max(1, min(MODES, n // 2 + (axis == last))) for axis, n in enumerate(grid.shape)]
        normalization, signature = Normalization.fit(data, transforms), Signature.of(data)
        return cls(
            normalization, grid, modes=modes, width=width, depth=depth, padding=padding, signature=signature, key=key
        )

    @property
    def recipe(self) -> Recipe:
        return Recipe(20, relative_l2)

    def encode(self, u: Input) -> Float[Array, "*grid c"]:
        sensors = self.grid.shape[self.grid.num_repeated :]
        field, scalars = u, 0
        known = self.signature
        if isinstance(u, MultiInput) and known is not None and known.is_several and len(known.fields) == 1:
            field, scalars = u.fields[0], 0 if u.scalars is None else len(u.scalars)
        expected = (math.prod(sensors), len(self.normalization.u_shift) - scalars)
        if isinstance(field, Measurements | MultiInput) or field.shape != expected:
            given = type(field).__name__ if isinstance(field, Measurements | MultiInput) else field.shape
            raise ValueError(
                f"expected u of shape {expected}, the values of one field on the model's grid {sensors} in row-major "
                f"order, got {given}; interpolate to that grid first, use `predict` for many functions, and "
                "`loca.models.adapt` for channels in another form"
            )
        values, *numbers = values_of(self.normalization.standardize_input(u))
        parts = [values.reshape(*sensors, -1), *numbers, self.grid.coordinates()]
        return jnp.concatenate([jnp.broadcast_to(p, (*self.grid.shape, p.shape[-1])) for p in parts], axis=-1)

    def respond(self, codes: Float[Array, "N *grid c"], queries: Queries) -> Float[Array, "N P d_s"]:
        functions, count = codes.shape[0], queries.count
        if isinstance(queries, Indexed) and len(queries.y) > functions * count:
            queries = Free(queries.locations(functions))
        near = self.grid.interpolation(queries.points)
        index, weight = (jax.vmap(queries.gather)(part) for part in (near.index, near.weight))
        corners = len(index)

        def in_rows(part: Array) -> Array:
            """One row per corner of each query, with one entry for all functions or one per function."""
            return jnp.swapaxes(part.reshape(corners, -1, count), 1, 2).reshape(corners * count, -1, 1)

        def pick(field: Float[Array, "_ N *grid"]) -> Float[Array, "rows N _"]:
            places = jnp.transpose(field.reshape(*field.shape[:2], -1), (2, 1, 0))
            return jnp.take_along_axis(places, in_rows(index), axis=0)

        h = self.hidden(codes)
        # the projection has many channels: it is applied only around the queries if that is less than the whole grid
        few = not is_symbolic_dim(count) and corners * count < math.prod(self.grid.shape)
        values = self.project(pick(h)) if few else pick(at_every_point(self.project, h))
        s = (in_rows(weight) * values).reshape(corners, count, functions, -1).sum(axis=0)
        return jnp.swapaxes(s, 0, 1)

    def hidden(self, codes: Float[Array, "N *grid c"]) -> Float[Array, "w N *grid"]:
        """Everything but the projection, on the whole grid, with channels first."""
        h = at_every_point(self.lift, jnp.moveaxis(codes, -1, 0))
        for axis, p in enumerate(self.padding, start=2):
            if p:  # jnp.pad has no ONNX form for any number of functions
                zeros = jnp.zeros((*h.shape[:axis], p, *h.shape[axis + 1 :]), h.dtype)
                h = jnp.concatenate([h, zeros], axis=axis)
        for layer in self.layers[:-1]:
            h = self.activation(layer(h))
        return self.layers[-1](h)[(..., *(slice(0, n) for n in self.grid.shape))]

    def fields(self, codes: Float[Array, "N *grid c"]) -> Float[Array, "N *grid d_s"]:
        """The standardized outputs on the whole grid."""
        return jnp.moveaxis(at_every_point(self.project, self.hidden(codes)), 0, -1)

    def interpolation(self, y: Float[Array, "P d_y"]) -> Interpolation:
        """From the grid to the queries."""
        return self.grid.interpolation(y)
