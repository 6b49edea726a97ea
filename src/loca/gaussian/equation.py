"""From data and hyperparameters to the equation of the coefficients, and from its solution to the operator."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from loca.data import (
    Free,
    Indexed,
    Normalization,
    OutputNormalization,
    Queries,
    Records,
    Samples,
    Shared,
    check_finite,
)
from loca.domains import area_weights
from loca.encoders import Encoder, Joined, PrincipalComponents
from loca.gaussian.features import InputFeatures, InputKernel, LocationFeatures, PointFeatures, location_features
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.labels import KEPT, Values, label_map, with_nugget
from loca.gaussian.operator import Conditions, GaussianOperator
from loca.gaussian.system import Block, IterationCallback, Solution, StoredBlocks, System
from loca.models import Signature, projection
from loca.typing import Input, Measurements, MultiInput, PyTree

COMPONENTS = 256
"""Principal components of the inputs, at most."""

SMALLEST = 1e-4
"""Components of codes below this fraction of the largest are weighted as if they had this size."""

MEMORY = 2**26
"""Numbers that a block of functions may compute at once: 256 MB in single precision."""

STREAMED = 2048
"""Functions that are read from files at once."""

RECENT = 4
"""Features of inputs and of locations that are kept, each: trials share those that they do not change."""

SOME = 8192
"""Free locations over which features are orthogonal."""


class Ranks(NamedTuple):
    """The number of features of inputs and of locations, at most."""

    inputs: int
    locations: int


class Accuracy(NamedTuple):
    """When conjugate gradients stop: by the residual, or after so many iterations."""

    tolerance: float
    limit: int


class Features(NamedTuple):
    """f and h, and the values of f for the functions that they were fitted to; all in double precision."""

    f: InputFeatures
    h: LocationFeatures
    values: Float[Array, "N r_u"]


class PreparedData:
    """Functions with one choice of transforms and encoder, in random order: the first ones are landmarks."""

    def __init__(self, data: Samples, normalization: Normalization, encoder: Encoder):
        self.data, self.normalization, self.encoder = data, normalization, encoder
        self.codes, self.values = self._encoded(data)
        scales = normalization.u_scale, normalization.s_scale
        if not all(np.isfinite(each).all() for each in (self.codes, self.values, *scales)):
            raise FloatingPointError(f"standardized data are not finite; {self._advice()}")
        self._input_features = functools.lru_cache(RECENT)(functools.partial(_input_features, self.codes))
        self._label_features = functools.lru_cache(RECENT)(functools.partial(_label_features, data))

    @classmethod
    def fit(
        cls, data: Samples, transforms: tuple[tuple[str, str], ...], encoder: Encoder | None = None
    ) -> PreparedData:
        """Fit the transforms, and the principal components unless an encoder is given."""
        normalization = Normalization.fit(data, dict(transforms))
        return cls(data, normalization, encoder or _principal_components(data, normalization))

    def first(self, count: int) -> PreparedData:
        """The first functions, with the same normalization and encoder."""
        if count >= len(self.data):
            return self
        return PreparedData(self.data.take(jnp.arange(count)), self.normalization, self.encoder)

    def features(self, hyper: Hyperparameters, ranks: Ranks) -> Features:
        """The features with given hyperparameters."""
        precision = str(jnp.zeros(()).dtype)  # of predictions
        with jax.enable_x64(True):
            f, values = self._input_features(hyper.length, hyper.damping, hyper.linear, ranks.inputs, precision)
            return Features(f, self._label_features(hyper.location_lengths, ranks.locations), values)

    def solve(
        self, hyper: Hyperparameters, ranks: Ranks, accuracy: Accuracy, *, stored: tuple[Records, Path] | None = None,
        report: IterationCallback | None = None, mesh: Mesh | None = None,
    ) -> tuple[GaussianOperator, Solution]:  # fmt: skip
        """The operator with given hyperparameters, and how the iteration ended.

        `stored` are functions in files to solve for in place of those in memory, and a directory for their features and
        labels, which are read once per iteration. The devices of the mesh share the functions.
        """
        features, ratio, conditions = self.features(hyper, ranks), hyper.nugget / hyper.noise, None
        if stored is None:
            blocks = list(in_blocks(features, features.values, self.data.y, self.values, ratio))
            conditions = Conditions(_in_precision(jnp.asarray(self.codes)), self.data.y)
        else:
            blocks = self._stored_blocks(*stored, features, ratio)
        system = System(blocks, hyper.noise, mesh)
        found = system.solve(*accuracy, report)
        functions = len(self.data if stored is None else stored[0])
        variance = system.variance(found.x, functions * self.data.y.count)  # σ²
        if not np.isfinite([*np.asarray(variance), found.residual]).all():
            raise FloatingPointError(f"the Gaussian operator is not finite; {self._advice()}")
        f, h = _in_precision((features.f, features.h))
        # from all devices of a mesh to one
        found, power, variance = jax.tree.map(
            lambda leaf: jnp.asarray(np.asarray(leaf)) if eqx.is_array(leaf) else leaf, (found, system.power, variance)
        )
        operator = GaussianOperator(
            self.normalization, self.encoder, f, h, found.x, jnp.asarray(hyper.noise), variance, power, conditions,
            jnp.asarray(hyper.nugget), signature=Signature.of(self.data),
        )  # fmt: skip
        return operator, found

    def _encoded(self, data: Samples) -> tuple[Float[np.ndarray, "N d"], Values]:
        """Codes in double precision, and standardized labels."""
        codes, values = _encoded(data.u, data.s, self.normalization, self.normalization.at(data.y), self.encoder)
        return np.asarray(codes, np.float64), values

    def _stored_blocks(self, records: Records, scratch: Path, features: Features, ratio: float) -> StoredBlocks:
        """Blocks of functions in files, in files themselves."""
        blocks = StoredBlocks(scratch)
        for start in range(0, len(records), STREAMED):
            data = records.load(slice(start, start + STREAMED))
            check_finite(data, f"the data from function {start} on")
            codes, values = self._encoded(data)
            with jax.enable_x64(True):
                f = features.f(jnp.asarray(codes))
            for block in in_blocks(features, f, data.y, values, ratio, keep=0):
                blocks.append(block)
        return blocks

    def _advice(self) -> str:
        """What to do if an operator is not finite."""
        parts = self.data.u, self.data.s
        u, s = (max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(part)) for part in parts)
        return (
            f"inputs have values up to {u:.3g} and outputs up to {s:.3g}, whose squares must not overflow in "
            f"{self.data.s.dtype}. Use other units, or double precision (JAX_ENABLE_X64=1); if these values are "
            "moderate, use less extreme hyperparameters"
        )


# ---- data ------------------------------------------------------------------------------------------------------------


@eqx.filter_jit
def _encoded(
    u: Input, s: Float[Array, "N P d_s"], inputs: Normalization, outputs: OutputNormalization, encoder: Encoder
) -> tuple[Float[Array, "N d"], Values]:
    codes = jax.lax.map(encoder, inputs.standardize_input(u), batch_size=256)
    return codes, jnp.moveaxis(outputs.standardize(s), 2, 0)


def _principal_components(data: Samples, normalization: Normalization) -> Encoder:
    """The principal components of the inputs, for several inputs one after the other."""
    standardized = dataclasses.replace(data, u=normalization.standardize_input(data.u))
    found = []
    for u, x in standardized.fields:
        if isinstance(u, Measurements):
            found.append(PrincipalComponents.fit(u, COMPONENTS, encoder=projection(u)))
            continue
        weights = None
        if x is not None and data.domain.is_geographic and x.shape[1] == data.domain.dimension:
            weights = area_weights(data.domain, x)  # on a sphere, sensors count by their area
        found.append(PrincipalComponents.fit(u, COMPONENTS, weights))
    if not isinstance(data.u, MultiInput):
        return found[0]
    return Joined(found, 0 if data.u.scalars is None else data.u.scalars.shape[-1])


# ---- features --------------------------------------------------------------------------------------------------------


def _input_features(
    codes: Float[np.ndarray, "N d"], length: float, damping: float, linear: float, rank: int, precision: str
) -> tuple[InputFeatures, Float[Array, "N r"]]:
    """f with the first functions as landmarks, and its values, which are orthogonal over the functions."""
    sizes = np.sqrt(np.mean(codes**2, axis=0))
    scales = np.maximum(sizes, SMALLEST * np.max(sizes, initial=SMALLEST)) ** damping
    scales /= np.sqrt(np.sum((scales * sizes) ** 2)) or 1.0  # codes keep the mean square length 1
    kernel = InputKernel(*map(jnp.asarray, (1.0, linear, length, scales)))
    z = jnp.asarray(codes)
    f = InputFeatures.fit(kernel, z[:rank], min(rank, len(z)), precision)
    values = f(z)
    if rank < len(z):
        _, rotation = np.linalg.eigh(np.asarray(values.T @ values))
        f, values = f.turned(jnp.asarray(rotation)), values @ rotation
    return f, values


def _label_features(data: Samples, lengths: tuple[float, ...], rank: int) -> LocationFeatures:
    """h, orthogonal over the labels."""
    y = np.asarray(data.y.points, np.float64)
    counts = np.ones(len(y))
    if isinstance(data.y, Indexed):
        counts = np.bincount(np.asarray(data.y.index).ravel(), minlength=len(y)).astype(float)
    if isinstance(data.y, Free):
        y = np.unique(y, axis=0)
    h = location_features(data.domain, jnp.asarray(y), lengths, rank)
    if isinstance(data.y, Free):
        y = np.random.default_rng(0).permutation(y)[:SOME]
        counts = np.ones(len(y))
    return h.turned(jnp.asarray(y), counts) if isinstance(h, PointFeatures) else h


# ---- blocks ----------------------------------------------------------------------------------------------------------


def in_blocks(
    features: Features, f: Float[Array, "N r_u"], queries: Queries, values: Values, ratio: float, keep: int = KEPT
) -> Iterator[Block]:
    """Functions in blocks that stay within `MEMORY`; all but the last are of one size.

    The ratio is that of the nugget to the noise; `keep` is the number of features of free locations to keep, at most.
    """
    functions, P, rank = len(f), queries.count, features.h.rank
    numbers = len(values) * max(rank, P if isinstance(queries, Free) else len(queries.points))
    if ratio and not isinstance(queries, Shared):
        numbers = max(numbers, P**2)
    if keep and isinstance(queries, Free):
        numbers = max(numbers, P * rank)
    count = -(-functions * numbers // MEMORY)
    size = -(-functions // count)
    for start in range(0, functions, size):
        rows = slice(start, min(start + size, functions))
        with jax.enable_x64(True):
            places = _in_precision(queries.each(itemgetter(rows)), jnp.float64)
            labels = label_map(f[rows], features.h, places, keep * (rows.stop - start) // functions)
            if ratio:
                labels = with_nugget(labels, jnp.asarray(ratio))
        labels = _in_precision(labels)
        yield Block(labels, labels.whiten(values[:, rows]))


def _in_precision(tree: PyTree, dtype: type = float) -> PyTree:
    """The arrays of a tree in another precision, by default that of JAX."""
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a), dtype) if eqx.is_inexact_array(a) else a, tree)
