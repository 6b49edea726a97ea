"""Darcy flow: from permeability to pressure."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from loca.data import Variable
from loca.domains import Box, grid
from loca.problems import five_point
from loca.problems.problem import Problem, generators
from loca.typing import Key
from loca.workers import one_thread

Source = Callable[[Float[np.ndarray, "*k"], Float[np.ndarray, "*k"]], Float[np.ndarray, "*k"]]
"""A function of (x₁, x₂)."""

PRESETS = {"literal": None, "easy": 3, "piecewise": None}
"""Eigenfunctions per axis in the paper's formula, all of them, and those with which LOCA reaches the paper's error."""

HIGH, LOW = 12.0, 3.0
"""The two values of piecewise constant permeabilities."""


@dataclasses.dataclass(frozen=True)
class Darcy(Problem):
    """−∇·(u ∇s) = f on the unit square, s = 0 where x₁ ∈ {0, 1}, u ∂s/∂n = g where x₂ ∈ {0, 1}; u ↦ s.

    Here f = 5 exp(−|x − ½|²), g = sin 5x₁, u = exp(u₀ cos x₁) and u₀ ~ N(0, a(−Δ + τ² I)^(−α)). The equation is solved
    with linear finite elements; sensors and queries are the nodes of the grid.

    With the paper's formula for u₀ and the paper's settings, the error of LOCA is several times larger than the paper
    reports. The preset `"easy"` keeps fewer modes, as many as bring LOCA to the paper's error
    (`reproduction/studies/darcy_easy.py`). The paper does not specify the sign of the equation, cos x₁ (it writes
    cos x) and the Neumann eigenfunctions; these are choices.

    The preset `"piecewise"` is the two-valued flow on which many neural operators are compared: f = 1, s = 0 on the
    whole boundary, u = 12 where u₀ ≥ 0 and 3 elsewhere, τ = 3, α = 2, u₀ without its mean. It is solved by five-point
    differences on a fine grid, from which the nodes of the `resolution`, such as 29 or 85, are taken.

    **Arguments:**

    - `resolution`: number of nodes along each axis.
    - `preset`: `"literal"`, `"easy"` or `"piecewise"`.
    - `modes`: number of eigenfunctions per axis; in the literal preset as many as the grid has nodes.
    - `amplitude`, `rate`, `exponent`: a, τ and α; the preset `"piecewise"` has its own.
    - `fine`: number of nodes along each axis of the fine grid of the preset `"piecewise"`.
    """

    citation: ClassVar[str] = "Kissas et al., Learning Operators with Coupled Attention, JMLR 23 (2022), Darcy flow"
    inputs: ClassVar[tuple[Variable, ...]] = (Variable("permeability"),)
    outputs: ClassVar[tuple[Variable, ...]] = (Variable("pressure"),)
    block: ClassVar[int] = 1000

    resolution: int = 32
    preset: str = "literal"
    modes: int | None = None
    amplitude: float = 7.0**1.5
    rate: float = 7.0
    exponent: float = 1.5
    fine: int = 421

    def __post_init__(self):
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {self.preset!r}")
        if self.preset != "piecewise":
            return
        if (self.modes, self.amplitude, self.rate, self.exponent) != (
            None,
            Darcy.amplitude,
            Darcy.rate,
            Darcy.exponent,
        ):
            raise ValueError("the preset 'piecewise' has its own modes, amplitude, rate and exponent; pass none")
        if self.resolution < 3 or (self.fine - 1) % (self.resolution - 1):
            raise ValueError(
                f"the nodes must be among those of the fine grid: expected a resolution of at least 3 such that "
                f"resolution − 1 divides fine − 1 = {self.fine - 1}, got {self.resolution}"
            )

    @property
    def domain(self) -> Box:
        return Box.unit(2)

    @property
    def x(self) -> Float[np.ndarray, "m 2"]:
        return grid(self._axis, self._axis)

    @property
    def field(self) -> MaternField:
        """The distribution of u₀."""
        if self.preset == "piecewise":
            return MaternField(1.0, 3.0, 2.0, self.fine)
        modes = self.modes or PRESETS[self.preset] or self.resolution
        return MaternField(self.amplitude, self.rate, self.exponent, modes)

    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m 1"], Float[np.ndarray, "B M 1"]]:
        if self.preset == "piecewise":
            u, s = zip(*map(self._piecewise, generators(key, rows)), strict=True)
            return np.stack(u)[..., None], np.stack(s)[..., None]
        field, axis = self.field, self._axis
        u0 = np.stack([field.evaluate(field.draw(generator), axis, axis) for generator in generators(key, rows)])
        u = np.exp(u0 * np.cos(axis)[:, None]).reshape(len(u0), -1)
        return u[..., None], self.solve(u)[..., None]

    def solve(self, u: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N M"]:
        """The pressures of permeabilities of your own, both at the locations `y`."""
        if self.preset == "piecewise":
            k = self.resolution
            return np.stack([five_point.solve(each.reshape(k, k)).ravel() for each in u])
        return flow(self.resolution).solve(u)

    def _piecewise(self, generator: np.random.Generator) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
        """u and s at the nodes, both from the fine grid."""
        coefficients, fine = self.field.draw(generator), np.linspace(0.0, 1.0, self.fine)
        coefficients[0, 0] = 0.0
        u = np.where(self.field.evaluate(coefficients, fine, fine) >= 0.0, HIGH, LOW)
        every = (self.fine - 1) // (self.resolution - 1)
        return u[::every, ::every].ravel(), five_point.solve(u)[::every, ::every].ravel()

    @property
    def _axis(self) -> Float[np.ndarray, " k"]:
        return np.linspace(0.0, 1.0, self.resolution)


@dataclasses.dataclass(frozen=True)
class MaternField:
    """u ~ N(0, a(−Δ + τ² I)^(−α)) on the unit square, as a series of cosines, the Neumann eigenfunctions of Δ.

    Such a field is of Matérn type. Its correlation length is of order 1/τ and, in two dimensions, it has α − 1
    derivatives.
    """

    amplitude: float  # a
    rate: float  # τ
    exponent: float  # α, larger than 1, so that the variance is finite
    modes: int  # eigenfunctions per axis; a grid cannot represent more of them than it has points

    def __post_init__(self):
        if self.exponent <= 1.0 or self.modes < 1:
            raise ValueError(
                f"a Matérn field on the square needs exponent > 1 and modes ≥ 1, got {self.exponent} and {self.modes}"
            )

    @property
    def frequencies(self) -> Float[np.ndarray, " K"]:
        """The frequencies of the eigenfunctions along one axis: π·(0, 1, 2, …)."""
        return np.pi * np.arange(self.modes)

    @property
    def variances(self) -> Float[np.ndarray, "K K"]:
        """The variances of the coefficients: a(ω₁² + ω₂² + τ²)^(−α)."""
        omega = self.frequencies
        return self.amplitude * (omega[:, None] ** 2 + omega**2 + self.rate**2) ** -self.exponent

    def basis(self, x: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m K"]:
        """The orthonormal eigenfunctions along one axis."""
        waves = np.cos(x[:, None] * self.frequencies)
        waves[:, 0] = math.sqrt(0.5)
        return math.sqrt(2.0) * waves

    def draw(self, generator: np.random.Generator) -> Float[np.ndarray, "K K"]:
        """Draw the coefficients of the series."""
        return np.sqrt(self.variances) * generator.standard_normal((self.modes, self.modes))

    def evaluate(
        self, coefficients: Float[np.ndarray, "K K"], x1: Float[np.ndarray, " m1"], x2: Float[np.ndarray, " m2"]
    ) -> Float[np.ndarray, "m1 m2"]:
        """u on the grid x₁ × x₂."""
        return self.basis(x1) @ coefficients @ self.basis(x2).T


@functools.lru_cache(maxsize=2)
def flow(resolution: int) -> DarcyFlow:
    """The solver with the paper's source and flux, cached because assembling it takes time."""
    return DarcyFlow(
        resolution,
        f=lambda x1, x2: 5.0 * np.exp(-((x1 - 0.5) ** 2) - (x2 - 0.5) ** 2),
        g=lambda x1, x2: np.sin(5.0 * x1),
    )


class DarcyFlow:
    """∫ u ∇s·∇v = ∫ f v + ∫_{x₂ ∈ {0, 1}} g v for all v, with s = 0 where x₁ ∈ {0, 1}.

    Solved with P1 elements on triangles, two in each cell of a grid of nodes; u is piecewise linear like s. The
    stiffness matrix is then linear in the nodal values of u. This linear map is assembled once; every u needs one
    application of it and one banded Cholesky factorization. There are `resolution` nodes along each axis.
    """

    def __init__(self, resolution: int, f: Source, g: Source):
        if resolution < 3:
            raise ValueError(f"the grid needs at least 3 nodes along each axis, got resolution={resolution}")
        self.axis = np.linspace(0.0, 1.0, resolution)
        self.nodes = grid(self.axis, self.axis)
        self.triangles = triangulation(resolution)
        # Unknowns are the nodes not on x₁ ∈ {0, 1}. With x₁ varying fastest their matrix has the smaller bandwidth.
        self.bandwidth = resolution - 1
        number = np.full((resolution, resolution), -1)
        number[1:-1] = np.arange((resolution - 2) * resolution).reshape(resolution, resolution - 2).T
        self.number = number.ravel()
        self.unknown = np.argsort(self.number)[2 * resolution :]  # the node of each unknown
        self.load = self._load(f, g)[self.unknown]
        self.stiffness = self._stiffness()

    @one_thread()
    def solve(self, u: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N M"]:
        """Nodal values of s for nodal values of u, nodes in the order of `nodes`."""
        from scipy.linalg import get_lapack_funcs

        (factor_and_solve,) = get_lapack_funcs(("pbsv",), (self.load,))
        s = np.zeros_like(u)
        for values, solution in zip(u, s, strict=True):
            if values.min() <= 0.0:
                raise ValueError(f"permeability must be positive, but its smallest value is {values.min():.3g}")
            matrix = (self.stiffness @ values).reshape(self.bandwidth + 1, -1)
            _, pressure, info = factor_and_solve(matrix, self.load, lower=1, overwrite_ab=1)
            assert info == 0, "a stiffness matrix with positive permeability is positive definite"
            solution[self.unknown] = pressure
        return s

    def _stiffness(self):
        """The sparse linear map from u to the lower band of the stiffness matrix, row by row."""
        from scipy.sparse import csr_array

        p = self.nodes[self.triangles]  # T 3 2
        edges = np.roll(p, 1, axis=1) - np.roll(p, 2, axis=1)  # opposite each corner
        double_area = np.abs(edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
        # ∫ ∇λᵢ·∇λⱼ over a triangle; times the mean of u at its three corners, since u is linear
        local = np.einsum("tid,tjd->tij", edges, edges) / (2.0 * double_area[:, None, None])
        rows, columns = self.number[self.triangles][:, :, None], self.number[self.triangles][:, None, :]
        rows, columns, local = np.broadcast_arrays(rows, columns, local)
        kept = (columns >= 0) & (rows >= columns)
        place = (rows - columns)[kept] * len(self.unknown) + columns[kept]
        corners = np.broadcast_to(self.triangles[:, None, None, :], (*local.shape, 3))[kept]  # K 3
        entries = np.repeat(local[kept] / 3.0, 3), (np.repeat(place, 3), corners.ravel())
        return csr_array(entries, shape=((self.bandwidth + 1) * len(self.unknown), len(self.nodes)))

    def _load(self, f: Source, g: Source) -> Float[np.ndarray, " M"]:
        """∫ f v + ∫ g v for the hat function v of every node, by Gauss rules of much higher order than the elements."""
        t, w = np.polynomial.legendre.leggauss(6)
        t, w = 0.5 * (t + 1.0), 0.5 * w
        load = np.zeros(len(self.nodes))

        # Triangles: the unit square mapped onto them by (a, b) ↦ barycentric (1 − a, a(1 − b), ab), with Jacobian a.
        a, b = grid(t, t).T
        corner = np.stack([1.0 - a, a * (1.0 - b), a * b], axis=-1)  # q 3
        weight = np.outer(w, w).ravel() * a  # of the reference triangle, whose area is 1/2
        area = (self.axis[1] - self.axis[0]) ** 2  # twice that of each triangle
        x = np.einsum("qc,tcd->tqd", corner, self.nodes[self.triangles])
        np.add.at(load, self.triangles, area * np.einsum("tq,q,qc->tc", f(x[..., 0], x[..., 1]), weight, corner))

        number = np.arange(len(self.nodes)).reshape(len(self.axis), -1)
        for side, x2 in ((number[:, 0], 0.0), (number[:, -1], 1.0)):
            ends = np.stack([side[:-1], side[1:]], axis=-1)  # E 2
            hats = np.stack([1.0 - t, t], axis=-1)  # q 2
            x1 = self.nodes[ends][..., 0] @ hats.T
            step = self.axis[1] - self.axis[0]
            np.add.at(load, ends, step * np.einsum("eq,q,qc->ec", g(x1, np.full_like(x1, x2)), w, hats))
        return load


def triangulation(resolution: int) -> Int[np.ndarray, "T 3"]:
    """The triangles of a grid whose cells are cut along the diagonal from (0, 0) to (1, 1)."""
    node = np.arange(resolution**2).reshape(resolution, resolution)
    low, right, top, far = (c.ravel() for c in (node[:-1, :-1], node[1:, :-1], node[:-1, 1:], node[1:, 1:]))
    return np.concatenate([np.stack([low, right, far], axis=-1), np.stack([low, far, top], axis=-1)])
