"""The normal equations of the coefficients, summed over blocks of functions."""

from __future__ import annotations

from collections.abc import Iterable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.gaussian.conjugate_gradients import Report, Solution, Unknowns, conjugate_gradients
from loca.gaussian.labels import Labels, Values


class System:
    """A(C) = Σ Fᵀ (F C Hᵀ) H + λ C over all labels: the normal equations of min Σ (s − f(u)ᵀ C h(y))² + λ‖C‖².

    **Arguments:**

    - `blocks`: the labels of all functions; it is iterated over once for every application of A.
    - `noise`: λ > 0.
    """

    def __init__(self, blocks: Iterable[Labels], noise: float):
        self.blocks, self.noise = blocks, noise
        power = sum(squares(labels) for labels in blocks)
        self.preconditioner = 1.0 / (power + noise)
        """1/diag A, if features are orthogonal over functions and over locations: then with all labels A⁻¹ itself."""

    def __call__(self, c: Unknowns) -> Unknowns:
        return sum((normal(labels, c) for labels in self.blocks), self.noise * c)

    def solve(
        self, values: Iterable[Values], tolerance: float, limit: int, report: Report | None = None
    ) -> Solution:
        """The coefficients for values of all labels, one array for each block."""
        b = sum(adjoint(labels, each) for labels, each in zip(self.blocks, values, strict=True))
        return conjugate_gradients(self, b, self.preconditioner, tolerance, limit, report)


@eqx.filter_jit
def normal(labels: Labels, c: Unknowns) -> Unknowns:
    """Fᵀ (F C Hᵀ) H."""
    return labels.adjoint(labels(c))


@eqx.filter_jit
def adjoint(labels: Labels, values: Values) -> Unknowns:
    """Fᵀ values H."""
    return labels.adjoint(values)


@eqx.filter_jit
def squares(labels: Labels) -> Float[Array, "r_u r_y"]:
    """An approximation of the diagonal of A − λ."""
    return jnp.sum(labels.f**2, axis=0)[:, None] * labels.squares[None, :]
