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
import scipy.linalg
from jaxtyping import Array, Float, Int
from scipy.linalg.blas import dsyrk  # pyright: ignore[reportAttributeAccessIssue]

from loca.data import Free, Indexed, Normalization, Queries, Samples, Shared, check_finite, grid_axes
from loca.encoders import LEAST, LONGEST, along, curvature, slope, smoothing
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

TINY = 0.01
"""Functions smaller than this fraction of the typical one count as if they had this size."""

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


# ---- normal equations ------------------------------------------------------------------------------------------------


class NormalEquations:
    """Σ x xᵀ and Σ x r over labels, in double precision; one sum for each of several parts of the functions."""

    def __init__(self, parts: int, features: int, outputs: int):
        self.matrix = [np.zeros((features, features), order="F") for _ in range(parts)]
        self.right = np.zeros((parts, features, outputs))

    def add(self, part: int, x: Float[np.ndarray, "n K"], r: Float[np.ndarray, "n d_s"]) -> None:
        """Add the sums over some labels."""
        dsyrk(1.0, x.T, beta=1.0, c=self.matrix[part], overwrite_c=1)  # its upper triangle
        self.right[part] += x.T @ r

    def solve(self, strengths: Sequence[float], without: int | None = None) -> Float[np.ndarray, "L K d_s"]:
        """The weights for each penalty, from all parts, or from all but one; infinite if they are not determined."""
        parts = [i for i in range(len(self.matrix)) if i != without]
        matrix, right = sum(self.matrix[i] for i in parts), self.right[parts].sum(axis=0)
        sizes = np.sqrt(np.maximum(np.diag(matrix), 0.0))
        sizes = np.where(sizes > 0.0, sizes, 1.0)[:, None]
        scaled, found = matrix / (sizes * sizes.T), []
        for strength in strengths:
            try:
                factor = scipy.linalg.cho_factor(scaled + strength * np.eye(len(sizes)), check_finite=False)
                found.append(scipy.linalg.cho_solve(factor, right / sizes) / sizes)
            except np.linalg.LinAlgError:
                found.append(np.full_like(right, np.inf))
        return np.stack(found)


class Block(NamedTuple):
    """Inputs and predictions of some functions on the grid, and where their labels are on it."""

    u: Float[Array, "B m d_u"]
    s: Float[Array, "B m d_s"]
    corners: Int[Array, "B c P"]
    weights: Float[Array, "B c P"]


@eqx.filter_jit
def features_of(rule: LocalRule, block: Block) -> Float[Array, "B P K"]:
    """The features at the labels of a block of functions."""
    return jax.vmap(rule.features)(*block)


# ---- corrections -----------------------------------------------------------------------------------------------------

Refit = Callable[[Samples], Operator]
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
    operator: Operator, data: Samples, *, refit: Refit | None = None, together: int = 1
) -> tuple[Operator, CorrectionReport]:
    """The operator with a local correction, if that lowers the error on held-out functions.

    The correction is found by ridge regression of residuals. Inputs are fields on one grid of the output domain;
    otherwise `ValueError` is raised.

    **Arguments:**

    - `operator`: any.
    - `data`: at least ten functions that the operator has not seen, with labels anywhere.
    - `refit`: fits the operator to some functions. `data` are then those that the operator itself was fitted to, and
      residuals those of operators that were fitted to the other four fifths.
    - `together`: so many functions one after the other are images of one another, and stay in one part.

    **Returns:**

    A `Corrected` operator, or the operator itself if that is not better by two percent and three standard errors; and a
    report.
    """
    begun = time.perf_counter()
    check_finite(data)
    residuals = Residuals(operator, adapt(operator, data), refit, together)
    equations, errors, left = residuals.compare()
    best = int(np.argmin(errors[1:].mean(axis=1))) + 1
    change = np.log(np.maximum(errors[best], 1e-30) / np.maximum(errors[0], 1e-30)).reshape(-1, together).mean(axis=1)
    is_certain = change.mean() < -ERRORS * change.std() / math.sqrt(len(change))
    before, error = float(errors[0].mean()), float(errors[best].mean())
    adopted, strength, rule = is_certain and error < GAIN * before, STRENGTHS[best - 1], residuals.rule
    if adopted:
        weights = equations.solve([strength])[0].reshape(rule.weights.shape)
        found = dataclasses.replace(rule, weights=jnp.asarray(weights, rule.weights.dtype))
        amplitude = np.ones(len(rule.sizes))
        if residuals.sigma is not None:
            scores = np.abs(left[best]) / np.maximum(residuals.sigma, 1e-30)
            amplitude = np.quantile(scores, 0.9, axis=(0, 1)) / NORMAL_QUANTILE
        cls: Any = UncertainCorrected if isinstance(operator, Uncertain) else Corrected
        shape = jax.eval_shape(operator.encode, jax.tree.map(lambda array: array[0], residuals.data.u)).shape
        operator = cls(
            operator.normalization, operator, residuals.grid, found,
            jnp.asarray(amplitude, rule.sizes.dtype), shape, signature=operator.signature,
        )  # fmt: skip
    seconds = time.perf_counter() - begun
    return operator, CorrectionReport(bool(adopted), before, error, strength, rule.count, len(data), seconds)


class Residuals:
    """What operators lack at the labels of functions that they have not seen, and the features that may explain it."""

    def __init__(self, operator: Operator, data: Samples, refit: Refit | None, together: int):
        check_correctable(data, together)
        self.grid, whole = grid_of(data), data
        if len(data) * data.y.count > LABELS:
            data = data.observe(jax.random.key(0), max(1, LABELS // len(data)))
        self.data, s = data, np.asarray(data.s, np.float64)
        self.near, self.places = places_on(self.grid, data)
        sizes = np.sqrt(np.mean(s**2, axis=(0, 1)))
        self.sizes = np.where(sizes > 0.0, sizes, 1.0)
        self.u = values_on_grid(operator.normalization.standardized_input(data.u))
        most = min(FEATURES, s.shape[0] * s.shape[1] // PER_FEATURE)
        self.rule = LocalRule.largest(self.grid, self.u.shape[-1], jnp.asarray(self.sizes, data.s.dtype), most)
        part = np.random.default_rng(0).permutation(len(data) // together) % FOLDS
        self.parts = [np.flatnonzero(np.repeat(part, together) == k) for k in range(FOLDS)]
        self.s = np.zeros((len(data), self.u.shape[1], len(self.sizes)), np.asarray(data.s).dtype)
        self.left, self.sigma = s, np.zeros_like(s) if isinstance(operator, Uncertain) else None
        for rows in self.parts:
            own = operator
            if refit is not None:
                own = refit(whole.take(jnp.asarray(np.setdiff1d(np.arange(len(data)), rows))))
            self._predict(own, rows)
        norms = np.sqrt(np.mean((s / self.sizes) ** 2, axis=(1, 2)))
        self.weights = 1.0 / np.maximum(norms, TINY * (np.median(norms) or 1.0))

    def compare(self) -> tuple[NormalEquations, Float[np.ndarray, "L N"], Float[np.ndarray, "L N P d_s"]]:
        """The equations, and errors and residuals of all functions: as they are, and with every penalty."""
        equations = NormalEquations(FOLDS, self.rule.count, len(self.sizes))
        for k, rows in self._blocks():
            weights = np.repeat(self.weights[rows], self.left.shape[1])[:, None]
            x = np.asarray(features_of(self.rule, self._block(rows)), np.float64)[: len(rows)]
            left = (self.left[rows] / self.sizes).reshape(-1, len(self.sizes))
            equations.add(k, weights * x.reshape(-1, self.rule.count), weights * left)
        found, left = [equations.solve(STRENGTHS, k) for k in range(FOLDS)], [self.left]
        left += [np.zeros_like(self.left) for _ in STRENGTHS]
        for k, rows in self._blocks():
            x = np.asarray(features_of(self.rule, self._block(rows)), np.float64)[: len(rows)]
            for i, w in enumerate(found[k]):
                left[i + 1][rows] = self.left[rows] - (x @ w) * self.sizes
        s = np.asarray(self.data.s, np.float64)
        counts = (s != 0.0).any(axis=1)
        norms = np.where(counts, np.sqrt(np.sum(s**2, axis=1)), 1.0)
        errors = [np.mean(np.where(counts, np.sqrt(np.sum(each**2, axis=1)) / norms, 0.0), axis=1) for each in left]
        return equations, np.nan_to_num(np.stack(errors), nan=np.inf), np.stack(left)

    def _predict(self, operator: Operator, rows: Int[np.ndarray, " B"]) -> None:
        """Predictions of an operator on the grid, its residuals at labels, and σ there if it knows it."""
        on_grid, none = Shared(points(self.grid)), jnp.zeros(len(self.sizes))
        for start in range(0, len(rows), BLOCK):
            own = rows[start : start + BLOCK]
            u, y, count = *self._taken(own, BLOCK), len(own)
            self.s[own] = predict(operator, u, on_grid)[:count]
            if isinstance(operator, Uncertain) and self.sigma is not None:
                s, self.sigma[own] = (np.asarray(each)[:count] for each in predict_error_bars(operator, u, y, none)[:2])
            else:
                s = np.asarray(predict(operator, u, y))[:count]
            self.left[own] = self.left[own] - s

    def _taken(self, rows: Int[np.ndarray, " B"], size: int) -> tuple[Input, Queries]:
        """Inputs and queries of some functions, the first of them again where there are fewer than `size`."""
        padded = jnp.asarray(np.resize(rows, size))
        return jax.tree.map(lambda array: array[padded], self.data.u), self.data.y.take(padded)

    @functools.cached_property
    def _size(self) -> int:
        """Functions in a block of features."""
        numbers = self.rule.count * self.left.shape[1] + self.rule.weights.shape[0] * self.u.shape[1]
        return max(1, min(BLOCK, MEMORY // numbers))

    def _blocks(self) -> Iterator[tuple[int, Int[np.ndarray, " B"]]]:
        """The number of the part and functions of every block."""
        for k, rows in enumerate(self.parts):
            for start in range(0, len(rows), self._size):
                yield k, rows[start : start + self._size]

    def _block(self, rows: Int[np.ndarray, " B"]) -> Block:
        """Functions with these numbers, the first of them again where the block is not full."""
        rows = np.resize(rows, self._size)
        index, weight = (np.moveaxis(each[:, self.places[rows]], 1, 0) for each in self.near)
        return Block(self.u[rows], *map(jnp.asarray, (self.s[rows], index, weight)))


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


def check_correctable(data: Samples, together: int = 1) -> None:
    """Raise `ValueError` unless a local correction can be found from some data."""
    if len(data) < FEWEST * together:
        raise ValueError(f"a local correction needs at least {FEWEST} functions, got {len(data) // together}")
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
