"""Labels of functions that have an error of their own, which is correlated over locations."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from loca.gaussian.labels import AllLabels, Coefficients, GatheredLabels, Labels, SomeLabels, Values
from loca.typing import PyTree


class CorrelatedLabels(Labels):
    """Labels whose noise is correlated within each function, multiplied by W = L⁻¹ for its covariance L Lᵀ.

    The noise of the products is independent.

    **Arguments:**

    - `labels`: the labels themselves.
    - `whitening`: W of each function, or of all together.
    """

    labels: AllLabels | SomeLabels
    whitening: Float[Array, "K P P"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        own = () if isinstance(self.labels, AllLabels) else (self.whitening,)
        return self.f, *self.labels.rows, *own

    def at_queries(self, v: Float[Array, "S N r_y"]) -> Values:
        return self.whiten(self.labels.at_queries(v))

    def from_queries(self, values: Values) -> Float[Array, "S N r_y"]:
        return self.labels.from_queries(multiply(jnp.swapaxes(self.whitening, 1, 2), values))

    def normal(self, c: Coefficients) -> Coefficients:
        """At once for each function, if its features are gathered."""
        if isinstance(self.labels, GatheredLabels):
            labels = dataclasses.replace(self.labels, f=self.f)  # zero for functions that only fill up a mesh
            return labels.between(lambda s, w: (s @ w.T) @ w, c, self.whitening)
        return super().normal(c)

    @property
    def squares(self) -> Float[Array, "N r_y"]:
        def powers(h: Float[Array, "P r_y"], w: Float[Array, "P P"]) -> Float[Array, " r_y"]:
            return jnp.sum((w @ h) ** 2, axis=0)

        if isinstance(self.labels, AllLabels):
            return jnp.tile(powers(self.labels.h, self.whitening[0]), (len(self.f), 1))
        return self.labels.map(powers, self.whitening)

    def whiten(self, values: Values) -> Values:
        return multiply(self.whitening, values)


def multiply(matrices: Float[Array, "K P P"], values: Values) -> Values:
    """Multiply the values of each function by its matrix, or by the only one."""
    if len(matrices) == 1:
        return values @ matrices[0].T
    return jnp.einsum("npq,snq->snp", matrices, values)


@eqx.filter_jit
def correlated(labels: AllLabels | SomeLabels, ratio: Float[Array, ""]) -> CorrelatedLabels:
    """Labels of functions that have an error of their own, with covariance ratio·λ·k_Y, beside noise of variance λ."""

    def whitening(k: Float[Array, "P P"]) -> Float[Array, "P P"]:
        one = jnp.eye(len(k), dtype=k.dtype)
        return solve_triangular(jnp.linalg.cholesky(one + ratio * k), one, lower=True)

    if isinstance(labels, AllLabels):
        return CorrelatedLabels(labels.f, labels, whitening(labels.h @ labels.h.T)[None])
    return CorrelatedLabels(labels.f, labels, labels.map_covariance(whitening))
