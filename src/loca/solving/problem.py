"""The data of a solve, and the operator for given hyperparameters."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Free, Indexed, Normalization, Queries, Samples
from loca.domains import area_weights
from loca.encoders import Encoder, PrincipalComponents
from loca.gaussian import (
    InputFeatures,
    InputKernel,
    Labels,
    LocationFeatures,
    Report,
    Solution,
    System,
    Values,
    labels_at,
    location_features,
)
from loca.models import Conditions, GaussianOperator, Signature
from loca.solving.hyperparameters import Hyperparameters
from loca.typing import Input, PyTree

COMPONENTS = 256
"""Principal components of the inputs, at most."""

DAMPED = 20.0
"""Damping multiplies component k by (1 + k/20)^(−damping)."""

MEMORY = 2**26
"""Numbers that a block of functions may compute at once: 256 MB in single precision."""


class Ranks(NamedTuple):
    """The number of features of inputs and of locations, at most."""

    inputs: int
    locations: int


class Accuracy(NamedTuple):
    """When conjugate gradients stop: by the residual, or after so many iterations."""

    tolerance: float
    limit: int


class Problem:
    """Functions with one choice of transforms and encoder: codes, standardized labels, queries.

    **Arguments:**

    - `data`: training functions, in random order: the first ones are landmarks.
    - `normalization`, `encoder`: fitted to training functions.
    """

    def __init__(self, data: Samples, normalization: Normalization, encoder: Encoder):
        self.data, self.normalization, self.encoder = data, normalization, encoder
        u = normalization.standardize_input(data.u)
        self.codes = np.asarray(jax.lax.map(encoder, u, batch_size=256), np.float64)
        self.values = jnp.moveaxis(normalization.at(data.y).standardize(data.s), 2, 0)

    @classmethod
    def fit(cls, data: Samples, transforms: tuple[tuple[str, str], ...], encoder: Encoder | None = None) -> Problem:
        """Fit the transforms, and the principal components unless an encoder is given."""
        normalization = Normalization.fit(data, dict(transforms))
        return cls(data, normalization, encoder or principal_components(data, normalization))

    def first(self, count: int) -> Problem:
        """The first functions, with the same normalization and encoder."""
        return Problem(self.data.take(jnp.arange(min(count, len(self.data)))), self.normalization, self.encoder)

    def solve(
        self, hyper: Hyperparameters, ranks: Ranks, accuracy: Accuracy, report: Report | None = None
    ) -> tuple[GaussianOperator, Solution]:
        """The operator with given hyperparameters."""
        data, count = self.data, len(self.data)
        with jax.enable_x64(True):  # eigenvectors need double precision; conjugate gradients do not
            f, features = input_features(self.codes, hyper, ranks.inputs)
            h = label_features(data, hyper.location_lengths, ranks.locations)
            rows = block_rows(data.y, count, h.rank * len(self.values))
            queries = [in_precision(data.y.take(np.arange(count)[r]), jnp.float64) for r in rows]
            blocks = [labels_at(features[r], h, y) for r, y in zip(rows, queries, strict=True)]
        f, h, features, blocks = in_precision((f, h, features, blocks))
        values = [self.values[:, r] for r in rows]
        found = System(blocks, hyper.noise).solve(values, *accuracy, report)
        # σ² of maximum likelihood, rᵀ(K + λ)⁻¹r/n, as a sum without cancellation
        misfit = sum(misfits(block, s, found.x) for block, s in zip(blocks, values, strict=True))
        variance = (misfit / hyper.noise + jnp.sum(found.x**2, axis=(1, 2))) / self.values[0].size
        power = jnp.sum(features**2, axis=0), sum(block.squares * len(block.f) for block in blocks) / count
        conditions = Conditions(in_precision(jnp.asarray(self.codes)), data.y)
        operator = GaussianOperator(
            self.normalization, self.encoder, f, h, found.x, jnp.asarray(hyper.noise), variance, power, conditions,
            signature=Signature.of(data),
        )  # fmt: skip
        return operator, found


def principal_components(data: Samples, normalization: Normalization) -> PrincipalComponents:
    """The principal components of the inputs; on a sphere, sensors count by their area."""
    u: Input = normalization.standardize_input(data.u)
    weights = None
    if data.x is not None and data.domain.is_geographic and data.x.shape[1] == data.domain.dimension:
        weights = area_weights(data.domain, data.x)
    return PrincipalComponents.fit(u, COMPONENTS, weights)


def input_features(
    codes: Float[np.ndarray, "N d"], hyper: Hyperparameters, rank: int
) -> tuple[InputFeatures, Float[Array, "N r"]]:
    """f with the first functions as landmarks, and its values, which are orthogonal over the functions."""
    rates = (1.0 + np.arange(codes.shape[1]) / DAMPED) ** -hyper.damping / hyper.length
    kernel = InputKernel(jnp.asarray(1.0), jnp.asarray(hyper.linear), jnp.asarray(rates))
    z = jnp.asarray(codes)
    f = InputFeatures.fit(kernel, z[:rank], min(rank, len(z)))
    values = f(z)
    if rank < len(z):
        _, rotation = np.linalg.eigh(np.asarray(values.T @ values))
        f, values = f.turned(jnp.asarray(rotation)), values @ rotation
    return f, values


def label_features(data: Samples, lengths: tuple[float, ...], rank: int) -> LocationFeatures:
    """h, orthogonal over the labels."""
    y = np.asarray(data.y.points, np.float64)
    counts = np.ones(len(y))
    match data.y:
        case Free():
            y, counts = np.unique(y, axis=0, return_counts=True)
        case Indexed(_, index):
            counts = np.bincount(np.asarray(index).ravel(), minlength=len(y))
    h = location_features(data.domain, jnp.asarray(y), lengths, rank)
    return h.turned(jnp.asarray(y), counts)


def block_rows(queries: Queries, functions: int, width: int) -> list[slice]:
    """The functions of each block, so that it stays within `MEMORY`; all blocks but the last are of one size."""
    locations = queries.count if isinstance(queries, Free) else len(queries.points)
    blocks = -(-functions * max(width, locations) // MEMORY)
    size = -(-functions // blocks)
    return [slice(start, min(start + size, functions)) for start in range(0, functions, size)]


@eqx.filter_jit
def misfits(labels: Labels, values: Values, c: Float[Array, "S r_u r_y"]) -> Float[Array, " S"]:
    """Σ (s − f(u)ᵀ C h(y))² for each channel."""
    return jnp.sum((values - labels(c)) ** 2, axis=(1, 2))


def in_precision(tree: PyTree, dtype: type = float) -> PyTree:
    """The arrays of a tree in another precision, by default that of JAX."""
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), dtype) if eqx.is_inexact_array(a) else a, tree)
