"""From data and hyperparameters to the equation of the coefficients, and from its solution to the operator."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import (
    Free,
    Indexed,
    Normalization,
    Queries,
    Records,
    Samples,
    Shared,
    check_finite,
    grid_shape,
)
from loca.domains import area_weights
from loca.encoders import LEAST, LONGEST, Beside, Encoder, Joined, PrincipalComponents, StructureTensor
from loca.gaussian.dense import DenseLabels, DenseSolution
from loca.gaussian.features import (
    GridFeatures,
    InputFeatures,
    InputKernel,
    LocationFeatures,
    Numbers,
    PointFeatures,
    grid_axes,
    location_features,
)
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.labels import KEPT, GridTable, label_costs, label_map, with_nugget
from loca.gaussian.operator import Conditions, GaussianOperator
from loca.gaussian.relevance import LeaveOneOut
from loca.gaussian.system import Block, IterationCallback, Solution, StoredBlocks, System
from loca.models import Signature, projection
from loca.typing import Input, Measurements, MultiInput, PyTree

COMPONENTS = 256
"""Principal components of the inputs, at most."""

STRUCTURES = 200
"""The same of their structure tensor."""

EXAMPLES = 1000
"""Functions from which these are found, at most."""

FEW_NUMBERS = 16
"""Inputs with at most so many numbers may have a relevance for each of them."""

SMALLEST = 1e-4
"""Components of codes below this fraction of the largest are weighted as if they had this size."""

MEMORY = 2**26
"""Numbers that a block of functions may compute at once: 256 MB in single precision."""

STREAMED = 2048
"""Functions that are read from files at once."""

RECENT = 4
"""Features of inputs and of locations that are kept, each: trials share those that they do not change."""

DENSER = 2.0
"""How many times as many operations a product over all locations may have: it is faster than gathering labels."""

DENSE = 2**25
"""Numbers of values at all locations, at most, that are solved for in NumPy: 128 MB in single precision."""

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
    values: Float[Numbers, "N r_u"]


class PreparedData:
    """Functions with one choice of transforms and encoder, in random order: the first ones are landmarks."""

    def __init__(
        self, data: Samples, normalization: Normalization, encoder: Encoder,
        encoded: tuple[Float[np.ndarray, "N d"], Float[np.ndarray, "S N P"]] | None = None,
        groups: Int[np.ndarray, " d"] | None = None,
    ):  # fmt: skip
        self.data, self.normalization, self.encoder, self.groups = data, normalization, encoder, groups
        self.codes, values = encoded or self.encoded(data)
        self.values = jnp.asarray(values)
        scales = normalization.u_scale, normalization.s_scale
        if not all(np.isfinite(each).all() for each in (self.codes, self.values, *scales)):
            raise FloatingPointError(f"standardized data are not finite; {self._advice()}")
        self.input_features = functools.lru_cache(RECENT)(functools.partial(_input_features, self.codes, groups))
        self.label_features = functools.lru_cache(RECENT)(functools.partial(_label_features, data))

    @classmethod
    def fit(
        cls, data: Samples, transforms: tuple[tuple[str, str], ...], structure: float = 0.0,
        is_grouped: bool = False, encoder: Encoder | None = None,
    ) -> PreparedData:  # fmt: skip
        """Fit the transforms, and unless an encoder is given the principal components.

        Those of the structure tensor have the weight `structure`. If codes are grouped, to have relevances, inputs of
        few numbers are not replaced by principal components.
        """
        normalization = Normalization.fit(data, dict(transforms))
        few = FEW_NUMBERS if is_grouped else 0
        found = encoder or _principal_components(data, normalization, structure, few)
        return cls(data, normalization, found, groups=groups_of(found) if is_grouped else None)

    def first(self, count: int) -> PreparedData:
        """The first functions, with the same normalization and encoder."""
        if count >= len(self.data):
            return self
        encoded = self.codes[:count], np.asarray(self.values)[:, :count]
        return PreparedData(take(self.data, slice(count)), self.normalization, self.encoder, encoded, self.groups)

    def reweighted(self, structure: float) -> PreparedData:
        """The same with another weight of the structure tensor."""

        def of(encoder: Encoder) -> Encoder:
            return dataclasses.replace(encoder, weights=(1.0, structure)) if isinstance(encoder, Beside) else encoder

        encoder = jax.tree.map(of, self.encoder, is_leaf=lambda each: isinstance(each, Beside))
        encoded = self.codes * (_weights(encoder) / _weights(self.encoder)), np.asarray(self.values)
        return PreparedData(self.data, self.normalization, encoder, encoded, self.groups)

    def features(self, hyper: Hyperparameters, ranks: Ranks) -> Features:
        """The features with given hyperparameters, as arrays of NumPy."""
        f, values = self.input_features(*hyper.of_inputs, ranks.inputs, precision())
        return Features(f, self.label_features(hyper.location_lengths, ranks.locations), values)

    def left_out(self, damping: float, values: Float[np.ndarray, "S N M"]) -> LeaveOneOut:
        """The relative error of each function, predicted from others, given the values of all at all locations."""
        y, s, groups = self.data.y, np.asarray(self.data.s, np.float64), self.groups
        assert groups is not None
        known = self.dense.counts > 0.0 if isinstance(y, Indexed) else np.ones(values.shape[1:])
        sizes = np.linalg.norm(s, axis=1).T / np.asarray(self.normalization.s_scale)[:, None]
        weights = np.where(sizes > 0.0, 1.0 / np.where(sizes > 0.0, sizes, 1.0), 0.0)
        codes = self.codes * scales_of(self.codes, groups, damping)
        return LeaveOneOut.of(codes, groups, np.asarray(values, np.float64), np.asarray(known, np.float64), weights)

    def solve(
        self, hyper: Hyperparameters, ranks: Ranks, accuracy: Accuracy, *, stored: tuple[Records, Path] | None = None,
        report: IterationCallback | None = None, mesh: Mesh | None = None,
    ) -> tuple[GaussianOperator, Solution]:  # fmt: skip
        """The operator with given hyperparameters, and how the iteration ended.

        `stored` are functions in files to solve for in place of those in memory, and a directory for their features and
        labels, which are read once per iteration. The devices of the mesh share the functions.
        """
        features = self.features(hyper, ranks)
        conditions = None if stored else Conditions(_in_precision(jnp.asarray(self.codes)), self.data.y)
        if stored is None and mesh is None and self.is_dense(ranks.locations):
            h = features.h(self.points)
            found = self.solve_densely(features.values, h, hyper, ranks, accuracy, report=report)
            power, variance = found.power, found.variance(hyper.noise)
        else:
            ratio = hyper.nugget / hyper.noise
            if stored is None:
                blocks = list(in_blocks(features, features.values, self.data.y, self.values, ratio))
            else:
                blocks = self._stored_blocks(*stored, features, ratio)
            system = System(blocks, hyper.noise, mesh)
            found = system.solve(*accuracy, report)
            functions = len(self.data if stored is None else stored[0])
            power, variance = system.power, system.variance(found.x, functions * self.data.y.count)  # σ²
        if not np.isfinite([*np.asarray(variance), found.residual]).all():
            raise FloatingPointError(f"the Gaussian operator is not finite; {self._advice()}")
        # from NumPy, or from all devices of a mesh to one
        f, h, c, power, variance = _in_precision((features.f, features.h, found.x, power, variance))
        operator = GaussianOperator(
            self.normalization, self.encoder, f, h, c, _in_precision(np.asarray(hyper.noise)), variance, power,
            conditions, _in_precision(np.asarray(hyper.nugget)), signature=Signature.of(self.data),
        )  # fmt: skip
        return operator, Solution(c, found.iterations, found.residual)

    def solve_densely(
        self, f: Float[np.ndarray, "N a"], h: Float[np.ndarray, "M b"], hyper: Hyperparameters, ranks: Ranks,
        accuracy: Accuracy, *, used: Any = slice(None), start: Float[np.ndarray, "S N M"] | None = None,
        report: IterationCallback | None = None,
    ) -> DenseSolution:  # fmt: skip
        """The coefficients for the values of f, and for those of the features h of locations that are used."""
        f, h = (np.ascontiguousarray(each, self.values.dtype) for each in (f, h[:, used]))
        features, table = self.label_features(hyper.location_lengths, ranks.locations), None
        shape = [len(axis) for axis in self.axes]
        costs = label_costs(self.data.y.count, len(h), h.shape[1], shape)
        if isinstance(features, GridFeatures) and self.is_grid and costs["grid"] < costs.get("table", math.inf):
            axes = tuple(np.asarray(axis, h.dtype) for axis in features.on_axes())
            products = np.asarray(np.ravel_multi_index(tuple(features.index), shape))
            table = GridTable(axes, products[used])
        return self.dense.solve(f, h, hyper.noise, hyper.nugget, accuracy, table=table, start=start, report=report)

    def is_dense(self, rank: int) -> bool:
        """Whether arrays over all locations are small, and cost hardly more than labels alone."""
        y, (channels, functions, _) = self.data.y, self.values.shape
        locations, rank = len(y.points), min(rank, len(y.points))
        if isinstance(y, Free) or channels * functions * locations > DENSE or jax.default_backend() != "cpu":
            return False
        costs = label_costs(y.count, locations, rank, [len(axis) for axis in self.axes])
        gathered = costs.pop("gathered", math.inf)
        return isinstance(y, Shared) or min(costs.values()) <= DENSER * gathered

    @functools.cached_property
    def points(self) -> Float[np.ndarray, "M d_y"]:
        """All stored locations of labels, in double precision."""
        return np.asarray(self.data.y.points, np.float64)

    @functools.cached_property
    def axes(self) -> list[Float[np.ndarray, " n"]]:
        """The coordinates along each axis, if they form a grid."""
        return grid_axes(self.data.domain, self.points)

    @functools.cached_property
    def is_grid(self) -> bool:
        """Whether they are all points of a grid, in order."""
        mesh = np.meshgrid(*self.axes, indexing="ij") if self.axes else []
        return bool(mesh) and np.array_equal(np.stack(mesh, axis=-1).reshape(-1, len(mesh)), self.points)

    @functools.cached_property
    def dense(self) -> DenseLabels:
        """The labels as arrays over all locations."""
        return DenseLabels(self.data.y, np.asarray(self.values))

    def encoded(self, data: Samples) -> tuple[Float[np.ndarray, "N d"], Float[np.ndarray, "S N P"]]:
        """Codes in double precision, and standardized labels."""
        n = self.normalization
        if n.s_transforms:
            s = np.asarray(n.standardized_output(data.y, data.s))
        else:
            s = (np.asarray(data.s) - np.asarray(n.s_shift)) / np.asarray(n.s_scale)
        return codes_of(self.encoder, n.standardized_input(data.u)), np.ascontiguousarray(np.moveaxis(s, 2, 0))

    def _stored_blocks(self, records: Records, scratch: Path, features: Features, ratio: float) -> StoredBlocks:
        """Blocks of functions in files, in files themselves."""
        blocks = StoredBlocks(scratch)
        for start in range(0, len(records), STREAMED):
            data = records.load(slice(start, start + STREAMED))
            check_finite(data, f"the data from function {start} on")
            codes, values = self.encoded(data)
            for block in in_blocks(features, features.f(codes), data.y, values, ratio, keep=0):
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


def precision() -> str:
    """That of predictions."""
    return str(jax.dtypes.canonicalize_dtype(float))


def take(data: Samples, rows: Int[np.ndarray, " B"] | slice) -> Samples:
    """The functions with these numbers, as `data.take`, which compiles a program for every number of functions."""

    def rows_of(array: Array) -> Array:
        return jnp.asarray(np.asarray(array)[rows])

    return dataclasses.replace(data, u=jax.tree.map(rows_of, data.u), y=data.y.each(rows_of), s=rows_of(data.s))


def codes_of(encoder: Encoder, u: Input) -> Float[np.ndarray, "N d"]:
    """The codes of many functions, in NumPy where an encoder is only a matrix."""
    if isinstance(encoder, Joined) and isinstance(u, MultiInput):
        codes = [codes_of(*each) for each in zip(encoder.encoders, u.fields, strict=True)]
        return np.concatenate([*codes, *([] if u.scalars is None else [np.asarray(u.scalars, np.float64)])], axis=1)
    if isinstance(encoder, Beside):
        codes = (w * codes_of(each, u) for w, each in zip(encoder.weights, encoder.encoders, strict=True))
        return np.concatenate(list(codes), axis=1)
    if isinstance(encoder, StructureTensor) and isinstance(u, Array):
        return encoder.of_many(u).astype(np.float64)
    if isinstance(encoder, PrincipalComponents) and (encoder.encoder is not None or isinstance(u, Array)):
        values = np.asarray(u, np.float64) if encoder.encoder is None else codes_of(encoder.encoder, u)[..., None]
        components = np.asarray(encoder.components, np.float64)
        return (values - np.asarray(encoder.mean)).reshape(len(values), -1) @ components.reshape(-1, encoder.size)
    return np.asarray(_codes(encoder, u), np.float64)


@eqx.filter_jit
def _codes(encoder: Encoder, u: Input) -> Float[Array, "N d"]:
    return jax.lax.map(encoder, u, batch_size=256)


def _principal_components(data: Samples, normalization: Normalization, structure: float, few: int) -> Encoder:
    """The principal components of the inputs, one after the other; those of a few numbers are these numbers."""
    standardized = dataclasses.replace(data, u=normalization.standardized_input(data.u))
    found = []
    for u, x in standardized.fields:
        if isinstance(u, Measurements):
            found.append(PrincipalComponents.fit(u, COMPONENTS, encoder=projection(u)))
            continue
        if u[0].size <= few:
            numbers = jnp.eye(u[0].size, dtype=u.dtype).reshape(*u.shape[1:], -1)
            found.append(PrincipalComponents(jnp.mean(u, axis=0), numbers))
            continue
        weights = None
        if x is not None and data.domain.is_geographic and x.shape[1] == data.domain.dimension:
            weights = area_weights(data.domain, x)  # on a sphere, sensors count by their area
        components = PrincipalComponents.fit(u, COMPONENTS, weights)
        if structure and x is not None and has_structure(x):
            found.append(Beside((components, _structure_components(data, u, x)), (1.0, structure)))
        else:
            found.append(components)
    if not isinstance(data.u, MultiInput):
        return found[0]
    return Joined(found, 0 if data.u.scalars is None else data.u.scalars.shape[-1])


def _weights(encoder: Encoder) -> Float[np.ndarray, " d"]:
    """Of the components of a code, in those that are beside each other."""
    if isinstance(encoder, Joined):
        return np.concatenate([*map(_weights, encoder.encoders), np.ones(encoder.scalars)])
    if isinstance(encoder, Beside):
        return np.repeat(encoder.weights, [each.size for each in encoder.encoders])
    return np.ones(encoder.size)


def groups_of(encoder: Encoder) -> Int[np.ndarray, " d"]:
    """The number of the group of each component of a code: each scalar and each of few numbers, or a whole input."""
    encoders, scalars = (encoder.encoders, encoder.scalars) if isinstance(encoder, Joined) else ((encoder,), 0)
    sizes = list[int]()
    for each in encoders:
        is_few = isinstance(each, PrincipalComponents) and each.encoder is None and each.mean.size <= FEW_NUMBERS
        sizes += [1] * each.size if is_few else [each.size]
    return np.repeat(np.arange(len(sizes) + scalars), [*sizes, *[1] * scalars])


def has_structure(x: Float[Array, "m d_x"] | None) -> bool:
    """Whether the values at some sensors have a structure tensor: on a grid that is neither small nor very long."""
    shape = None if x is None else grid_shape(x)
    return shape is not None and all(LEAST <= count <= LONGEST for count in shape)


def _structure_components(data: Samples, u: Float[Array, "N m d_u"], x: Float[Array, "m d_x"]) -> PrincipalComponents:
    """The principal components of the structure tensor of a field."""
    shape, few = grid_shape(x), u[:EXAMPLES]
    assert shape is not None
    periods = data.domain.periods[-len(shape) :] if len(shape) <= data.domain.dimension else (None,) * len(shape)
    tensor = StructureTensor.fit(few, shape, [period is not None for period in periods])
    found = PrincipalComponents.fit(jnp.asarray(codes_of(tensor, few))[..., None], STRUCTURES)
    return dataclasses.replace(found, encoder=tensor)


# ---- features --------------------------------------------------------------------------------------------------------


def scales_of(
    codes: Float[np.ndarray, "N d"], groups: Int[np.ndarray, " d"] | None, damping: float,
    relevances: Sequence[float] = (),
) -> Float[np.ndarray, " d"]:  # fmt: skip
    """The weight of each component of a code: codes, and those of each group relative to its relevance, have the mean
    square length 1."""
    sizes = np.sqrt(np.mean(codes**2, axis=0))
    scales = np.maximum(sizes, SMALLEST * np.max(sizes, initial=SMALLEST)) ** damping
    if relevances:
        if groups is None or len(relevances) != np.max(groups, initial=-1) + 1:
            count = 0 if groups is None else np.max(groups, initial=-1) + 1
            raise ValueError(f"the inputs have {count} parts, but hyperparameters have {len(relevances)} relevances")
        lengths = np.sqrt(np.bincount(groups, (scales * sizes) ** 2))
        scales *= (np.asarray(relevances) / np.where(lengths > 0.0, lengths, 1.0))[groups]
    return scales / (np.sqrt(np.sum((scales * sizes) ** 2)) or 1.0)


def _input_features(
    codes: Float[np.ndarray, "N d"], groups: Int[np.ndarray, " d"] | None,
    length: float, damping: float, linear: float, relevances: tuple[float, ...], rank: int, precision: str,
) -> tuple[InputFeatures, Float[np.ndarray, "N r"]]:  # fmt: skip
    """f with the first functions as landmarks, and its values, which are orthogonal over the functions."""
    scales = scales_of(codes, groups, damping, relevances)
    kernel = InputKernel(*map(np.asarray, (1.0, linear, length, scales)))
    f = InputFeatures.fit(kernel, codes[:rank], min(rank, len(codes)), precision)
    values = f(codes)
    if rank < len(codes):
        _, rotation = np.linalg.eigh(values.T @ values)
        f, values = f.turned(rotation), values @ rotation
    return f, values


def _label_features(data: Samples, lengths: tuple[float, ...], rank: int) -> LocationFeatures:
    """h, orthogonal over the labels."""
    y = np.asarray(data.y.points, np.float64)
    counts = np.ones(len(y))
    if isinstance(data.y, Indexed):
        counts = np.bincount(np.asarray(data.y.index).ravel(), minlength=len(y)).astype(float)
    if isinstance(data.y, Free):
        y = np.unique(y, axis=0)
    h = location_features(data.domain, y, lengths, rank)
    if isinstance(data.y, Free):
        y = np.random.default_rng(0).permutation(y)[:SOME]
        counts = np.ones(len(y))
    return h.turned(y, counts) if isinstance(h, PointFeatures) else h


# ---- blocks ----------------------------------------------------------------------------------------------------------


def in_blocks(
    features: Features,
    f: Float[Numbers, "N r_u"],
    queries: Queries,
    values: Float[Numbers, "S N P"],
    ratio: float,
    keep: int = KEPT,
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
        yield Block(labels, labels.whiten(jnp.asarray(values[:, rows])))


def _in_precision(tree: PyTree, dtype: type = float) -> PyTree:
    """The arrays of a tree as those of JAX, numbers in another precision: by default that of JAX."""

    def converted(leaf: Any) -> Any:
        if eqx.is_inexact_array(leaf):
            return jnp.asarray(np.asarray(leaf), dtype)
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    return jax.tree.map(converted, tree)
