"""What is the same at every place: regression on features of a neighborhood, and operators that it corrects.

Features are products of filters of the input and of a prediction, smoothed over distances from none to a quarter of the
domain, times low cosines of the location. Their weights solve normal equations, which are summed over functions block
by block.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import Free, Indexed, Normalization, Part, Queries, Records, Samples, Shared, check_finite, grid_axes
from loca.encoders import LEAST, LONGEST, along, curvature, slope, smoothing
from loca.local.equations import NormalEquations, flat
from loca.models import Grid, Operator, Uncertain, Wrapper, adapt, interpolate, predict, predict_error_bars
from loca.parameters import Fixed
from loca.typing import Input, Key, Measurements, MultiInput, values_of

__all__ = ["Corrected", "CorrectionReport", "correct"]

FOLDS = 5
"""Parts of the functions, each of which is predicted by an operator that has not seen it."""

STRENGTHS = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2)
"""Penalties of which that with the least error on held-out functions is chosen, for features of size 1."""

GAIN, ERRORS = 0.98, 3.0
"""A correction must lower the error on held-out functions by two percent, and by three standard errors."""

FEATURES, PER_FEATURE = 1300, 4
"""Features, at most, and labels for each of them, at least."""

FEWEST = 10
"""Functions, at least."""

LABELS = 2**17
"""Labels that are used, at most, unless there are more functions: others of the same functions tell little more."""

BLOCK, MEMORY = 100, 2**25
"""Functions at a time, and numbers that their features may have: 256 MB in double precision."""

EXAMPLES = 4096
"""Functions of a file that determine the grid, the sizes of outputs and the number of labels."""

EXACT, TINY = 1e-4, 0.01
"""The weight of a function is inverse to its residual, or to this fraction of its outputs if that is more; its outputs
count as at least this fraction of the typical ones."""

ROUNDING = 1e-4
"""Weights of an interpolation below this are round-off of locations on the grid."""

NORMAL_QUANTILE = 1.6449
"""Of the absolute value of a standard normal variable: 90 % are below."""

LADDER = (
    ((0.0, 1.0), (0.0, 1 / 16, 1 / 8, 1 / 4), 3),
    ((0.0, 1.0), (0.0, 1 / 8), 3),
    ((0.0,), (0.0, 1 / 8), 3),
    ((0.0,), (0.0, 1 / 8), 2),
    ((0.0,), (0.0,), 2),
    ((0.0,), (0.0,), 1),
)
"""`widths`, `reaches` and `cosines` of a rule, from the most features to the fewest."""


# ---- features --------------------------------------------------------------------------------------------------------


class LocalRule(Fixed):
    """c(y) = Σ w_abgk (G_g ∗ (A_a u · B_b ŝ))(y) cos(πk·y): what a prediction ŝ of an input u lacks at y.

    A are values and slopes of the input, B values, slopes and the curvature of the prediction, and both contain the
    number 1. So it is a perturbation of first order of an equation whose coefficients and solution are u and ŝ.

    **Arguments:**

    - `shape`, `periodic`: the number of points of each axis of the grid, and whether its ends meet; there the rule does
      not depend on the location.
    - `widths`: of the smoothing of u, in cells.
    - `reaches`: of the smoothings G, as fractions of each axis.
    - `cosines`: the number of cosines along each axis that is not periodic.
    - `sizes`: of the outputs, in units of which they enter.
    - `weights`: w, one row per product and smoothing.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)
    widths: tuple[float, ...] = eqx.field(static=True)
    reaches: tuple[float, ...] = eqx.field(static=True)
    cosines: int = eqx.field(static=True)
    sizes: Float[Array, " d_s"]
    weights: Float[Array, "k C d_s"]

    @classmethod
    def largest(cls, grid: Grid, inputs: int, sizes: Float[Array, " d_s"], most: int) -> LocalRule:
        """The rule with as many features as possible, but no more than `most`; its weights are zero."""
        d, periodic = len(grid.shape), tuple(period is not None for period in grid.periods)
        for widths, reaches, cosines in LADDER:
            products = (1 + inputs * len(widths) * (1 + d)) * (1 + len(sizes) * (2 + d)) * len(reaches)
            weights = jnp.zeros((products, cosines ** periodic.count(False), len(sizes)), sizes.dtype)
            if weights.shape[0] * weights.shape[1] <= most:
                return cls(grid.shape, periodic, widths, reaches, cosines, sizes, weights)
        raise ValueError(
            f"a local correction of {inputs} input and {len(sizes)} output channels has more than {most} features; "
            f"pass fewer channels, or more functions: it needs {PER_FEATURE} labels for each feature"
        )

    @property
    def count(self) -> int:
        """The number of features."""
        return self.weights.shape[0] * self.weights.shape[1]

    @property
    def places(self) -> Float[np.ndarray, "C m"]:
        """cos(πk·y) at all points."""
        factors = []
        for n, wraps in zip(self.shape, self.periodic, strict=True):
            k = np.arange(1 if wraps else self.cosines)
            factors.append(np.cos(np.pi * k[:, None] * np.arange(n) / (n - 1)))
        return functools.reduce(np.kron, factors)

    def products(self, u: Float[Array, "m d_u"], s: Float[Array, "m d_s"]) -> Iterator[Float[Array, "k m"]]:
        """G ∗ (A u · B ŝ) at all points, for one smoothing after the other."""
        inputs, outputs = (each.T.reshape(-1, *self.shape) for each in (u, s / self.sizes))
        axes, one = range(len(self.shape)), jnp.ones((1, *self.shape), s.dtype)
        a, b = [one], [one, outputs, *(along(outputs, self._on(axis, slope)) for axis in axes)]
        b.append(sum((along(outputs, self._on(axis, curvature)) for axis in axes), jnp.zeros_like(outputs)))
        for width in self.widths:
            smooth = along(inputs, self._smoothing([width for _ in axes]))
            a += [smooth, *(along(smooth, self._on(axis, slope)) for axis in axes)]
        found = (jnp.concatenate(a)[:, None] * jnp.concatenate(b)).reshape(-1, *self.shape)
        for reach in self.reaches:
            yield along(found, self._smoothing([reach * n for n in self.shape])).reshape(len(found), -1)

    def __call__(self, u: Float[Array, "m d_u"], s: Float[Array, "m d_s"]) -> Float[Array, "m d_s"]:
        """c at all points."""
        places, parts = jnp.asarray(self.places, s.dtype), jnp.split(self.weights, len(self.reaches))
        each = zip(self.products(u, s), parts, strict=True)
        found = sum(jnp.einsum("km,kms->ms", x, jnp.einsum("kcs,cm->kms", w, places)) for x, w in each)
        return jnp.asarray(found) * self.sizes

    def features(
        self, u: Float[Array, "m d_u"], s: Float[Array, "m d_s"], index: Int[Array, "c P"], weight: Float[Array, "c P"]
    ) -> Float[Array, "P K"]:
        """All features at labels, by interpolation from points with these numbers."""
        x, places = jnp.concatenate(list(self.products(u, s))), jnp.asarray(self.places, s.dtype)
        corners = (
            w[:, None, None] * x[:, i].T[:, :, None] * places[:, i].T[:, None]
            for i, w in zip(index, weight, strict=True)
        )
        return functools.reduce(jnp.add, corners).reshape(-1, self.count)

    def _on(self, axis: int, matrix: Callable[[int, bool], np.ndarray]) -> list[np.ndarray | None]:
        """A filter along one axis."""
        return [matrix(n, self.periodic[i]) if i == axis else None for i, n in enumerate(self.shape)]

    def _smoothing(self, widths: Sequence[float]) -> list[np.ndarray | None]:
        each = zip(self.shape, widths, self.periodic, strict=True)
        return [smoothing(n, width, wraps) if width else None for n, width, wraps in each]


# ---- operators -------------------------------------------------------------------------------------------------------


class Corrected(Wrapper):
    """F(u)(y) = F₀(u)(y) + c(y), with a rule c for what F₀ lacks, which is the same at every place.

    c is computed on a grid, and interpolated. Build it with `correct`.

    **Arguments:**

    - `normalization`: that of the operator.
    - `operator`: F₀.
    - `grid`: of the sensors.
    - `rule`: c.
    - `amplitude`: of the error of F in units of σ of F₀, for each channel.
    - `shape`: that of an input that F₀ has encoded.
    """

    normalization: Normalization
    operator: Operator
    grid: Grid
    rule: LocalRule
    amplitude: Float[Array, " d_s"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def encode(self, u: Input) -> Float[Array, " d"]:
        code, outputs = self.operator.encode(u), self.normalization.at(Shared(points(self.grid)))
        s = outputs.restore(self.operator.respond(code[None], Shared(points(self.grid)))[0])
        c = self.rule(values_on_grid(self.normalization.standardize_input(u)), s)
        return jnp.concatenate([code.ravel(), jax.jvp(outputs.standardize, (s,), (c,))[1].ravel()])

    def respond(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        c = codes[:, math.prod(self.shape) :].reshape(codes.shape[0], -1, len(self.amplitude))
        near = self.grid.interpolation(queries.points)
        return self.operator.respond(self.inner(codes), queries) + interpolate(near, queries, c)

    def inner(self, codes: Float[Array, "N d"]) -> Float[Array, "N ..."]:
        """Inputs as F₀ has encoded them."""
        return codes[:, : math.prod(self.shape)].reshape(codes.shape[0], *self.shape)


class UncertainCorrected(Uncertain, Corrected):
    """A corrected operator with the error bars of F₀, which are multiplied by the amplitude."""

    normalization: Normalization
    operator: Uncertain

    def spread(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        return self.amplitude * self.operator.spread(self.inner(codes), queries)

    def radius(self, level: float, *, simultaneous: bool = False) -> Float[Array, " d_s"]:
        return self.operator.radius(level, simultaneous=simultaneous)

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        """Draws of F₀, with their distance from F₀ multiplied by the amplitude, plus the correction of F₀."""
        each = self.operator.draws(key, count)
        return tuple(CorrectedDraw(self.normalization, self, draw, signature=self.signature) for draw in each)


class CorrectedDraw(Wrapper):
    """F + a (D − F₀) for a draw D of F₀."""

    normalization: Normalization
    operator: UncertainCorrected
    draw: Operator

    def respond(self, codes: Float[Array, "N d"], queries: Queries) -> Float[Array, "N P d_s"]:
        inner, corrected = self.operator.inner(codes), self.operator
        change = self.draw.respond(inner, queries) - corrected.operator.respond(inner, queries)
        return corrected.respond(codes, queries) + corrected.amplitude * change


def points(grid: Grid) -> Float[Array, "m d"]:
    """All points of a grid."""
    return jnp.stack(jnp.meshgrid(*grid.axes, indexing="ij"), axis=-1).reshape(-1, len(grid.axes))


def values_on_grid(u: Input) -> Float[Array, "*N m d_u"]:
    """The channels of all fields."""
    return (
        jnp.concatenate([values_of(field)[0] for field in u.fields], axis=-1)
        if isinstance(u, MultiInput)
        else values_of(u)[0]
    )


# ---- corrections -----------------------------------------------------------------------------------------------------

Refit = Callable[[Samples | Records], Operator]
"""From some of the functions to the operator that is fitted to them."""


class CorrectionReport(NamedTuple):
    """What a correction gains on held-out functions, and whether it was adopted."""

    adopted: bool
    before: float  # the mean relative L2 error at labels
    error: float  # the same with the correction
    strength: float  # its penalty
    features: int
    functions: int
    seconds: float

    def __str__(self) -> str:
        change = f"{100.0 * self.before:.4g} % to {100.0 * self.error:.4g} % on held-out functions"
        return (
            f"local correction {'adopted' if self.adopted else 'not adopted'}: {change}, {self.features} features, "
            f"penalty {self.strength:g}; {self.seconds:.1f} s"
        )


def correct(
    operator: Operator,
    data: Samples | Records,
    *,
    refit: Refit | None = None,
    together: int = 1,
    mesh: Mesh | None = None,
) -> tuple[Operator, CorrectionReport]:
    """The operator with a local correction, if that lowers the error on held-out functions.

    The correction is found by ridge regression of residuals. Inputs are fields on one grid of the output domain;
    otherwise `ValueError` is raised.

    **Arguments:**

    - `operator`: any.
    - `data`: at least ten functions that the operator has not seen, with labels anywhere. Those in a file are read
      block by block, twice, so that memory does not grow with their number.
    - `refit`: fits the operator to some functions. `data` are then those that the operator itself was fitted to, and
      residuals those of operators that were fitted to the other four fifths.
    - `together`: so many functions one after the other are images of one another, and stay in one part.
    - `mesh`: devices that share the functions of the normal equations.

    **Returns:**

    A `Corrected` operator, or the operator itself if that is not better by two percent and three standard errors; and a
    report.
    """
    begun = time.perf_counter()
    residuals = Residuals(operator, adapt(operator, data), refit, together, mesh)
    equations, errors, scores = residuals.compare()
    best = int(np.argmin(errors[1:].mean(axis=1))) + 1
    change = np.log(np.maximum(errors[best], 1e-30) / np.maximum(errors[0], 1e-30)).reshape(-1, together).mean(axis=1)
    is_certain = change.mean() < -ERRORS * change.std() / math.sqrt(len(change))
    before, error = float(errors[0].mean()), float(errors[best].mean())
    adopted, strength, rule = is_certain and error < GAIN * before, STRENGTHS[best - 1], residuals.rule
    if adopted:
        weights = equations.solve([strength])[0].reshape(rule.weights.shape)
        found = dataclasses.replace(rule, weights=jnp.asarray(weights, rule.weights.dtype))
        is_known = isinstance(operator, Uncertain)
        amplitude = np.quantile(scores[best], 0.9, axis=0) / NORMAL_QUANTILE if is_known else np.ones(len(rule.sizes))
        cls: Any = UncertainCorrected if is_known else Corrected
        shape = jax.eval_shape(operator.encode, jax.tree.map(lambda array: array[0], residuals.example.u)).shape
        operator = cls(
            operator.normalization, operator, residuals.grid, found,
            jnp.asarray(amplitude, rule.sizes.dtype), shape, signature=operator.signature,
        )  # fmt: skip
    seconds = time.perf_counter() - begun
    return operator, CorrectionReport(bool(adopted), before, error, strength, rule.count, len(data), seconds)


class Block(NamedTuple):
    """Inputs and predictions of some functions on the grid, and their residuals at labels."""

    u: Float[Array, "B m d_u"]
    s: Float[Array, "B m d_s"]
    corners: Int[Array, "B c P"]  # points around labels
    weights: Float[Array, "B c P"]  # of the corners
    left: Float[Array, "B P d_s"]  # residuals in units of the sizes of outputs
    weight: Float[Array, "B 1 1"]  # of each function


def weighted(rule: LocalRule, block: Block) -> tuple[Float[Array, "B P K"], Float[Array, "B P d_s"]]:
    """Features and residuals, both times the weight of their function."""
    return jax.vmap(rule.features)(*block[:4]) * block.weight, block.left * block.weight


class Held(NamedTuple):
    """Functions of one part, which the operator that predicts them has not seen; others may fill the block."""

    part: int
    rows: Int[np.ndarray, " n"]
    block: Block
    norms: Float[np.ndarray, "n d_s"]  # of outputs in units of their sizes
    sigma: Float[np.ndarray, "n P d_s"] | None  # in the same units, if the operator knows it


class Residuals:
    """What operators lack at the labels of functions that they have not seen, and the features that may explain it."""

    def __init__(
        self, operator: Operator, data: Samples | Records, refit: Refit | None, together: int, mesh: Mesh | None
    ):
        numbers, whole, self.mesh = np.arange(len(data)), data, mesh
        part = np.random.default_rng(0).permutation(len(data) // together) % FOLDS
        self.parts = [np.flatnonzero(np.repeat(part, together) == k) for k in range(FOLDS)]
        example = data if isinstance(data, Samples) else data.load(slice(0, EXAMPLES))
        check_finite(example)
        check_correctable(example, len(data) // together)
        self.grid, labels, key = grid_of(example), max(1, LABELS // len(data)), jax.random.key(0)
        if example.y.count > labels:
            example = example.observe(key, labels)
            data = example if isinstance(data, Samples) else Part(data, numbers, key=key, labels=labels)
        self.data, self.example, s = data, example, np.asarray(example.s, np.float64)
        sizes = np.sqrt(np.mean(s**2, axis=(0, 1)))
        self.sizes = np.where(sizes > 0.0, sizes, 1.0)
        self.typical = float(np.median(np.linalg.norm(s / self.sizes, axis=(1, 2)))) or 1.0
        self.normalization = operator.normalization
        inputs = self._inputs(example.take(jnp.arange(1))).shape[-1]
        most = min(FEATURES, len(data) * s.shape[1] // PER_FEATURE)
        self.rule = LocalRule.largest(self.grid, inputs, jnp.asarray(self.sizes, example.s.dtype), most)
        self.operators = [operator] * FOLDS
        if refit is not None:
            others = [np.setdiff1d(numbers, rows) for rows in self.parts]
            few = (whole.select(k) if isinstance(whole, Records) else whole.take(jnp.asarray(k)) for k in others)
            self.operators = [refit(each) for each in few]

    def compare(self) -> tuple[NormalEquations, Float[np.ndarray, "L N"], Float[np.ndarray, "L n d_s"]]:
        """The equations, and as predicted and with every penalty: errors of all functions and residuals over σ."""
        equations = NormalEquations(FOLDS, self.rule.count, len(self.sizes), self.mesh)
        size = self._size(equations.multiple)
        blocks = functools.partial(self._blocks, size)
        if isinstance(self.data, Samples):
            kept = list(blocks())
            blocks = kept.__iter__
        for held in blocks():
            equations.add(held.part, weighted, self.rule, held.block, len(held.rows))
        found = [equations.solve(STRENGTHS, k) for k in range(FOLDS)]
        errors, scores = np.zeros((len(STRENGTHS) + 1, len(self.data))), []
        for held in blocks():
            count, weight = len(held.rows), np.asarray(held.block.weight, np.float64)[: len(held.rows)]
            x, r = flat(weighted, self.rule, held.block, count)
            left = np.stack([r, *(r - x @ w for w in found[held.part])]).reshape(
                len(errors), count, -1, len(self.sizes)
            )
            left /= weight
            norms = np.where(
                held.norms > 0.0, np.linalg.norm(left, axis=2) / np.where(held.norms > 0.0, held.norms, 1.0), 0.0
            )
            errors[:, held.rows] = np.nan_to_num(norms.mean(axis=2), nan=np.inf)
            if held.sigma is not None and sum(each.shape[1] for each in scores) < LABELS:
                scores.append((np.abs(left) / np.maximum(held.sigma, 1e-30)).reshape(len(errors), -1, len(self.sizes)))
        return equations, errors, np.concatenate(scores, axis=1) if scores else np.zeros((len(errors), 0, 0))

    def _size(self, multiple: int) -> int:
        """Functions in a block."""
        numbers = self.rule.count * self.example.y.count + self.rule.weights.shape[0] * math.prod(self.rule.shape)
        return multiple * max(1, min(BLOCK, MEMORY // numbers) // multiple)

    def _blocks(self, size: int) -> Iterator[Held]:
        """All functions, part by part."""
        for part, (operator, rows) in enumerate(zip(self.operators, self.parts, strict=True)):
            for start in range(0, len(rows), size):
                yield self._held(part, operator, rows[start : start + size], size)

    def _inputs(self, data: Samples) -> Float[Array, "N m d_u"]:
        return values_on_grid(self.normalization.standardized_input(data.u))

    def _held(self, part: int, operator: Operator, rows: Int[np.ndarray, " n"], size: int) -> Held:
        """Predictions and residuals of some functions; the first of them fill the block."""
        fill = np.resize(np.arange(len(rows)), size)
        data = self.data.load(rows) if isinstance(self.data, Records) else self.data.take(jnp.asarray(rows))
        data = data.take(jnp.asarray(fill))
        check_finite(data)
        (corners, weights), places = places_on(self.grid, data)
        corners, weights = (np.moveaxis(each[:, places], 1, 0) for each in (corners, weights))
        on_grid, sigma = predict(operator, data.u, Shared(points(self.grid))), None
        if isinstance(operator, Uncertain):
            found, sigma = predict_error_bars(operator, data.u, data.y, jnp.zeros(len(self.sizes)))[:2]
            sigma = np.asarray(sigma)[: len(rows)] / self.sizes
        else:
            found = predict(operator, data.u, data.y)
        s = np.asarray(data.s, np.float64) / self.sizes
        left = s - np.asarray(found, np.float64) / self.sizes
        sizes, lacks = (np.linalg.norm(each, axis=(1, 2))[:, None, None] for each in (s, left))
        numbers = left, 1.0 / np.maximum(lacks, EXACT * np.maximum(sizes, TINY * self.typical))
        numbers = corners, weights, *(each.astype(data.s.dtype) for each in numbers)
        block = Block(self._inputs(data), on_grid, *map(jnp.asarray, numbers))
        return Held(part, rows, block, np.linalg.norm(s, axis=1)[: len(rows)], sigma)


def grid_of(data: Samples) -> Grid:
    """The grid of all fields; raise `ValueError` unless there is one that covers the labels."""
    places = [None if isinstance(field, Measurements) else x for field, x in data.fields]
    x = places[0] if places and all(each is not None for each in places) else None
    same = x is not None and all(np.array_equal(x, each) for each in places if each is not None)
    axes = grid_axes(x) if same and x is not None else None
    counts = None if axes is None else tuple(map(len, axes))
    if axes is None or len(axes) != data.domain.dimension or not all(LEAST <= len(each) <= LONGEST for each in axes):
        given = "their sensors form no such grid" if counts is None else f"got {' × '.join(map(str, counts))} points"
        raise ValueError(
            f"a local correction needs inputs on one grid of the {data.domain.dimension}-dimensional output domain, "
            f"with {LEAST} to {LONGEST} points along each axis, but {given}; interpolate them, or leave it out"
        )
    y = np.asarray(data.y.points)
    for i, (axis, period) in enumerate(zip(axes, data.domain.periods, strict=True)):
        spacing = np.ptp(axis) / (len(axis) - 1)
        if period is None and (y[:, i].min() < axis.min() - spacing or y[:, i].max() > axis.max() + spacing):
            raise ValueError(
                f"a local correction needs labels where the sensors are, but those of coordinate {i + 1} are between "
                f"{y[:, i].min():g} and {y[:, i].max():g}, sensors between {axis.min():g} and {axis.max():g}"
            )
    return Grid(tuple(jnp.asarray(axis, data.s.dtype) for axis in axes), tuple(data.domain.periods))


def check_correctable(data: Samples, count: int) -> None:
    """Raise `ValueError` unless a local correction can be found from so many functions, of which some are given."""
    if count < FEWEST:
        raise ValueError(f"a local correction needs at least {FEWEST} functions, got {count}")
    grid_of(data)


def is_on_grid(data: Samples) -> bool:
    """Whether inputs and labels of some data are on one grid, as a local correction needs."""
    try:
        grid_of(data)
    except ValueError:
        return False
    return True


def places_on(grid: Grid, data: Samples) -> tuple[tuple[np.ndarray, np.ndarray], Int[np.ndarray, "N P"]]:
    """Interpolation from the grid to all stored locations, without points of no weight, and those of each function."""
    near = grid.interpolation(data.y.points)
    order = np.argsort(-np.asarray(near.weight), axis=0, kind="stable")
    index, weight = (np.take_along_axis(np.asarray(each), order, axis=0) for each in (near.index, near.weight))
    kept = np.any(weight > ROUNDING, axis=1)
    weight = np.where(weight > ROUNDING, weight, 0.0)[kept]
    match data.y:
        case Indexed():
            places = np.asarray(data.y.index)
        case Free():
            places = np.arange(len(data.y.points)).reshape(len(data), -1)
        case _:
            places = np.tile(np.arange(data.y.count), (len(data), 1))
    return (index[kept], (weight / weight.sum(axis=0)).astype(weight.dtype)), places
