"""`solve`: a Gaussian operator from data, with hyperparameters chosen on held-out functions."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization, Samples
from loca.encoders import Encoder, PrincipalComponents
from loca.metrics import relative_l2
from loca.models import GaussianOperator, InputFeatures, InputKernel, LocationFeatures, Signature, location_features
from loca.solving.conjugate_gradients import Solution, conjugate_gradients
from loca.solving.labels import Labels, labels

COMPONENTS = 256
"""Principal components of the inputs, at most."""

DAMPED = 20.0
"""The index of the component from which on damping counts: component k is divided by (1 + k/20)^damping."""


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """What `solve` chooses on held-out functions.

    **Arguments:**

    - `length`: of the kernel on inputs, where codes have mean square length 1.
    - `damping`: component k of a code is divided by (1 + k/20)^damping.
    - `linear`: the weight of linear operators relative to the Matérn term.
    - `location_length`: of the kernel on locations, as a fraction of the extent of the domain.
    - `noise`: λ, the variance of the labels' noise relative to that of the prior.
    """

    length: float = 3.0
    damping: float = 0.5
    linear: float = 1.0
    location_length: float = 0.5
    noise: float = 1e-4

    def neighbors(self, factor: float) -> Iterator[Hyperparameters]:
        """All hyperparameters that differ in one number, by a factor, or by 0.5 in the damping."""
        for name in ("noise", "location_length", "length", "linear"):
            for each in (factor, 1.0 / factor):
                yield dataclasses.replace(self, **{name: getattr(self, name) * each})
        for each in (0.5, -0.5):
            if self.damping + each >= 0.0:
                yield dataclasses.replace(self, damping=self.damping + each)


class Trial(NamedTuple):
    """One row of the search."""

    hyperparameters: Hyperparameters
    functions: int
    ranks: tuple[int, int]
    error: float
    iterations: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class SolveReport:
    """How an operator was found: all trials, and the final solve."""

    trials: tuple[Trial, ...]
    hyperparameters: Hyperparameters
    iterations: int
    residual: float
    seconds: float


class Problem:
    """The data of a solve in double precision, with what the trials share."""

    def __init__(self, data: Samples, normalization: Normalization, encoder: Encoder):
        self.data, self.normalization, self.encoder = data, normalization, encoder
        codes = jax.vmap(lambda u: encoder(normalization.standardize_input(u)))
        self.codes = jnp.asarray(np.asarray(jax.lax.map(lambda u: codes(u[None])[0], data.u, batch_size=256)), float)
        self.values = jnp.moveaxis(jnp.asarray(np.asarray(normalization.standardize_output(data.s)), float), 2, 0)
        self.queries = jax.tree.map(in_double, data.y)
        self._locations: dict[tuple[float, int], LocationFeatures] = {}

    def location_features(self, length: float, rank: int) -> LocationFeatures:
        """h, which only depends on its length and rank."""
        key = (length, rank)
        if key not in self._locations:
            self._locations = {key: location_features(self.data.domain, self.queries.points, length, rank)}
        return self._locations[key]

    def input_features(self, hyper: Hyperparameters, rank: int) -> InputFeatures:
        """f, with the first functions as landmarks; they are in random order."""
        rates = (1.0 + jnp.arange(self.codes.shape[1]) / DAMPED) ** -hyper.damping / hyper.length
        kernel = InputKernel(jnp.asarray(1.0), jnp.asarray(hyper.linear), rates)
        return InputFeatures.fit(kernel, self.codes[: max(rank, min(len(self.codes), 2 * rank))], rank)


def in_double(leaf: Array) -> Array:
    """An array of real numbers in double precision."""
    return jnp.asarray(np.asarray(leaf), float) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf


@eqx.filter_jit
def find_coefficients(
    design: Labels, values: Float[Array, "S N P"], noise: float, tolerance: float, limit: int
) -> Solution:
    """argmin_C Σ (values − f(u)ᵀ C h(y))² + λ‖C‖²."""
    power = jnp.sum(design.f**2, axis=0)[:, None] * design.squares[None, :]

    def apply(c: Float[Array, "S r_u r_y"]) -> Float[Array, "S r_u r_y"]:
        return design.adjoint(design(c)) + noise * c

    return conjugate_gradients(apply, design.adjoint(values), 1.0 / (power + noise), tolerance, limit)


def solve_with(
    problem: Problem, hyper: Hyperparameters, ranks: tuple[int, int], tolerance: float, limit: int
) -> tuple[GaussianOperator, Solution]:
    """The operator with given hyperparameters."""
    f = problem.input_features(hyper, ranks[0])
    h = problem.location_features(hyper.location_length, ranks[1])
    design = labels(f(problem.codes), h, problem.queries)
    # features that are orthogonal over the functions make the preconditioner exact where all labels are there
    _, turn = np.linalg.eigh(np.asarray(design.f.T @ design.f))
    f = eqx.tree_at(lambda f: f.projection, f, f.projection @ turn)
    design = eqx.tree_at(lambda d: d.f, design, design.f @ turn)
    found = find_coefficients(design, problem.values, hyper.noise, tolerance, limit)
    operator = GaussianOperator(
        problem.normalization, problem.encoder, f, h, found.x, signature=Signature.of(problem.data)
    )
    return operator, found


def solve(
    data: Samples,
    *,
    validation: Samples | None = None,
    hyperparameters: Hyperparameters | None = None,
    ranks: tuple[int, int] = (2048, 1024),
    tolerance: float = 1e-5,
    limit: int = 200,
    seed: int = 0,
    report: Callable[[Trial], None] | None = None,
) -> tuple[GaussianOperator, SolveReport]:
    """Find the operator that explains data best, without training."""
    start = time.perf_counter()
    data = data.take(jax.random.permutation(jax.random.key(seed), len(data)))
    held = validation
    if held is None:
        count = min(max(len(data) // 5, 1), 200)
        held, rest = data.take(jnp.arange(count)), data.take(jnp.arange(count, len(data)))
    else:
        rest = data
    normalization = Normalization.fit(data)
    u = normalization.standardize_input(data.u)
    encoder = PrincipalComponents.fit(u, COMPONENTS)
    trials: list[Trial] = []
    with jax.enable_x64(True):
        best = hyperparameters
        if best is None:
            best = Hyperparameters()
            for functions, small, factor in ((400, 300, 4.0), (len(rest), 400, 2.0)):
                part = Problem(rest.take(jnp.arange(min(functions, len(rest)))), normalization, encoder)
                best = search(part, held, best, (min(small, ranks[0]), min(small, ranks[1])), factor, trials, report)
        operator, found = solve_with(Problem(data, normalization, encoder), best, ranks, tolerance, limit)
    single = jax.tree.map(lambda a: jnp.asarray(np.asarray(a), jnp.float32) if eqx.is_inexact_array(a) else a, operator)
    return single, SolveReport(
        tuple(trials), best, int(found.iterations), float(found.residual.max()), time.perf_counter() - start
    )


def search(
    problem: Problem,
    held: Samples,
    start: Hyperparameters,
    ranks: tuple[int, int],
    factor: float,
    trials: list[Trial],
    report: Callable[[Trial], None] | None,
) -> Hyperparameters:
    """Move to the best neighbor as long as the error on held-out functions falls."""
    known: dict[Hyperparameters, float] = {}
    held_u = jax.tree.map(in_double, held.u)
    queries = jax.tree.map(in_double, held.y)

    def error(hyper: Hyperparameters) -> float:
        if hyper not in known:
            begun = time.perf_counter()
            operator, found = solve_with(problem, hyper, ranks, 1e-3, 60)
            operator = jax.tree.map(lambda a: in_double(a) if eqx.is_array(a) else a, operator)
            s = operator.predict(held_u, queries)
            known[hyper] = float(jnp.mean(relative_l2(s, jnp.asarray(np.asarray(held.s), float))))
            trial = Trial(hyper, len(problem.data), ranks, known[hyper], int(found.iterations), time.perf_counter() - begun)
            trials.append(trial)
            if report is not None:
                report(trial)
        return known[hyper]

    best, moved = start, True
    error(best)
    while moved:
        moved = False
        for neighbor in best.neighbors(factor):
            if error(neighbor) < 0.995 * known[best]:
                best, moved = neighbor, True
    return best

