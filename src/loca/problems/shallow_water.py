"""A drop falling into a square basin of shallow water."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Variable
from loca.domains import Box, grid
from loca.problems.problem import Problem, generators
from loca.typing import Key

State = Float[Array, "3 k k"]
"""ρ, ρv₁ and ρv₂ in every cell."""


@dataclasses.dataclass(frozen=True)
class ShallowWater(Problem):
    """Uₜ + F(U)ₓ₁ + G(U)ₓ₂ = 0 for U = (ρ, ρv₁, ρv₂) on the unit square with reflecting walls; first step ↦ later.

    F = (ρv₁, ρv₁² + gρ²/2, ρv₁v₂) and G = (ρv₂, ρv₁v₂, ρv₂² + gρ²/2). The water starts at rest with the height
    ρ = 1 + h·exp(−|x − (ξ, ζ)|²/w), a drop. The input is (ρ, v₁, v₂) after one time step, the output (ρ, v₁, v₂) at
    five later times; a query is (t, x₁, x₂). The equations are solved by the Lax–Friedrichs scheme on cells, whose
    centers are the sensors.

    **Arguments:**

    - `resolution`: number of cells along each axis.
    - `gravity`: g. The paper does not give it; with g = 1 the wave would never reach a wall.
    - `time_step`: dt; it must divide the times. With 32 cells the scheme is stable up to 0.004.
    - `times`: times of the outputs.
    - `height`, `width`, `center`: ranges from which h, w, and both ξ and ζ are drawn uniformly.
    """

    citation: ClassVar[str] = "Kissas et al., Learning Operators with Coupled Attention, JMLR 23 (2022), shallow water"
    inputs: ClassVar[tuple[Variable, ...]] = (
        Variable("height", "m"),
        Variable("velocity_x1", "m s-1"),
        Variable("velocity_x2", "m s-1"),
    )
    outputs: ClassVar[tuple[Variable, ...]] = inputs
    sensor_coordinates: ClassVar[tuple[Variable, ...]] = Variable("x1", "m"), Variable("x2", "m")
    query_coordinates: ClassVar[tuple[Variable, ...]] = Variable("t", "s"), *sensor_coordinates
    block: ClassVar[int] = 200

    resolution: int = 32
    gravity: float = 9.81
    time_step: float = 0.002
    times: tuple[float, ...] = (0.11, 0.16, 0.21, 0.26, 0.31)
    height: tuple[float, float] = (1.5, 2.5)
    width: tuple[float, float] = (0.002, 0.008)
    center: tuple[float, float] = (0.4, 0.6)

    def __post_init__(self):
        counts = np.asarray(self.times) / self.time_step
        if not (np.abs(counts - np.rint(counts)) < 1e-6).all() or counts.min() < 1.0 or (np.diff(counts) <= 0.0).any():
            raise ValueError(f"times {self.times} must be increasing multiples of the time step {self.time_step}")

    @property
    def domain(self) -> Box:
        return Box((self.times[0], 0.0, 0.0), (self.times[-1], 1.0, 1.0))

    @property
    def x(self) -> Float[np.ndarray, "m 2"]:
        return grid(self._axis, self._axis)

    @property
    def y(self) -> Float[np.ndarray, "M 3"]:
        return grid(np.asarray(self.times), self._axis, self._axis)

    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m 3"], Float[np.ndarray, "B M 3"]]:
        x1, x2 = self.x.T
        ranges = np.array([self.height, self.width, self.center, self.center])
        rho = []
        for generator in generators(key, rows):
            h, w, xi, zeta = generator.uniform(*ranges.T)
            rho.append(1.0 + h * np.exp(-((x1 - xi) ** 2 + (x2 - zeta) ** 2) / w))
        k = self.resolution
        start = np.zeros((len(rho), 3, k, k))
        start[:, 0] = np.reshape(rho, (-1, k, k))
        snapshots = self.solve(start)  # B T 3 k k
        fields = np.moveaxis(snapshots, 2, -1)  # B T k k 3
        fields[..., 1:] /= fields[..., :1]  # from ρv to v
        return fields[:, 0].reshape(len(rho), -1, 3), fields[:, 1:].reshape(len(rho), -1, 3)

    def solve(self, start: Float[np.ndarray, "B 3 k k"]) -> Float[np.ndarray, "B T 3 k k"]:
        """Compute U after the first step and at each of the times."""
        counts = tuple(round(time / self.time_step) for time in self.times)
        with jax.enable_x64(True):
            return np.array(march(jnp.asarray(start), self.gravity, self.time_step, (1, *counts)))

    @property
    def _axis(self) -> Float[np.ndarray, " k"]:
        return (np.arange(self.resolution) + 0.5) / self.resolution


@functools.partial(jax.jit, static_argnames=("gravity", "time_step", "counts"))
def march(
    start: Float[Array, "B 3 k k"], gravity: float, time_step: float, counts: tuple[int, ...]
) -> Float[Array, "B T 3 k k"]:
    """Compute U after each of these numbers of steps, one function at a time so that its state stays in cache."""

    def one(U: State) -> Float[Array, "T 3 k k"]:
        snapshots, done = [], 0
        for count in counts:
            U = jax.lax.fori_loop(done, count, lambda _, U: lax_friedrichs(U, gravity, time_step), U)
            snapshots.append(U)
            done = count
        return jnp.stack(snapshots)

    return jax.lax.map(one, start)


def lax_friedrichs(U: State, gravity: float, time_step: float) -> State:
    """The mean of the four neighbors minus dt times central differences of the fluxes.

    A cell behind a wall mirrors the cell before it with the normal velocity reversed, so nothing passes the wall.
    """
    cells = U.shape[-1]
    U = jnp.pad(U, ((0, 0), (1, 1), (1, 1)), mode="edge")
    U = U.at[1, (0, -1), :].multiply(-1.0).at[2, :, (0, -1)].multiply(-1.0)
    rho, m1, m2 = U
    v1, v2, pressure = m1 / rho, m2 / rho, 0.5 * gravity * rho**2
    F = jnp.stack([m1, m1 * v1 + pressure, m1 * v2])
    G = jnp.stack([m2, m2 * v1, m2 * v2 + pressure])
    low, high, mid = slice(None, -2), slice(2, None), slice(1, -1)
    mean = 0.25 * ((U[:, low, mid] + U[:, high, mid]) + (U[:, mid, low] + U[:, mid, high]))
    flow = (F[:, high, mid] - F[:, low, mid]) + (G[:, mid, high] - G[:, mid, low])
    return mean - 0.5 * time_step * cells * flow
