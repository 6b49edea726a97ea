"""Labels of functions that have an error of their own, which is correlated over locations."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from loca.data import Queries
from loca.gaussian.labels import AllLabels, Coefficients, GatheredLabels, Labels, OwnLabels, Values
from loca.gaussian.locations import LocationFeatures
from loca.typing import PyTree


class CorrelatedLabels(Labels):
    """Labels whose noise is correlated within each function, multiplied by W = L⁻¹ for its covariance L Lᵀ.

    The noise of the products is independent.

    **Arguments:**

    - `labels`: the labels themselves.
    - `whitening`: W of each function, or of all together.
    - `powers`: Σₚ (W h)ₚ² of each function, or of all together.
    """

    labels: Labels
    whitening: Float[Array, "K P P"]
    powers: Float[Array, "K r_y"]

    @property
    def rows(self) -> tuple[PyTree, ...]:
        own = () if isinstance(self.labels, AllLabels) else (self.whitening, self.powers)
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
        return jnp.broadcast_to(self.powers, (len(self.f), self.powers.shape[1]))

    def whiten(self, values: Values) -> Values:
        return multiply(self.whitening, values)


def multiply(matrices: Float[Array, "K P P"], values: Values) -> Values:
    """Multiply the values of each function by its matrix, or by the only one."""
    if len(matrices) == 1:
        return values @ matrices[0].T
    return jnp.einsum("npq,snq->snp", matrices, values)


def correlated(labels: Labels, features: LocationFeatures, queries: Queries, ratio: float) -> CorrelatedLabels:
    """Labels of functions that have an error of their own, with covariance ratio·λ·k_Y, beside noise of variance λ."""
    if isinstance(labels, AllLabels):
        whitening, powers = whitened(labels.h, jnp.asarray(ratio))
        return CorrelatedLabels(labels.f, labels, whitening[None], powers[None])
    is_gathered = isinstance(labels, GatheredLabels)
    gathered = labels if is_gathered else OwnLabels(labels.f, features, queries.locations(len(labels.f)))
    return CorrelatedLabels(labels.f, labels, *whitened_each(gathered, jnp.asarray(ratio)))


@eqx.filter_jit
def whitened_each(
    labels: GatheredLabels, ratio: Float[Array, ""]
) -> tuple[Float[Array, "N P P"], Float[Array, "N r_y"]]:
    """`whitened` for the features of every function."""
    return labels.map(lambda h: whitened(h, ratio))


def whitened(h: Float[Array, "P r_y"], ratio: Float[Array, ""]) -> tuple[Float[Array, "P P"], Float[Array, " r_y"]]:
    """W = L⁻¹ for L Lᵀ = 1 + ratio·h hᵀ, and Σₚ (W h)ₚ²."""
    one = jnp.eye(len(h), dtype=h.dtype)
    whitening = solve_triangular(jnp.linalg.cholesky(one + ratio * h @ h.T), one, lower=True)
    return whitening, jnp.sum((whitening @ h) ** 2, axis=0)
