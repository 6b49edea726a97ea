"""Bands whose coverage was measured on held-out functions: split conformal prediction for functions."""

import math
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Records, Samples, Trajectories
from loca.domains import area_weights
from loca.encoders import Encoder
from loca.models import Adaptation, Halves, Loss, Operator, Stepper, Uncertain, Wrapper, blocks, standardized_errors
from loca.parameters import Fixed
from loca.typing import Input, Key, has_own_sensors
from loca.uncertainty.familiarity import Familiarity
from loca.uncertainty.forecasts import calibrate_rollouts

STEPS = 1000  # levels are multiples of 1/1000; others are rounded up
ONE_SIGMA = 0.683  # the level of a band of one standard deviation to each side

FLOOR = 1e-4
"""The least σ, in standard deviations of the data: where a model claims to be exact, it may be wrong by this."""

FEWEST, BLOCK, MOST_TRAINING = 10, 100, 1000
"""Calibration functions at least, functions in memory at once, and training functions for principal components."""


class Quantiles(Fixed):
    """Half the widths of bands by level, in units of σ: (L, d_s), for the levels 0.001, 0.002, … 0.999.

    Infinite for levels above N/(N + 1), which N calibration functions cannot guarantee.
    """

    radii: Float[Array, "L d_s"]

    @classmethod
    def of(cls, scores: Float[np.ndarray, "N P d_s"], weights: Float[np.ndarray, "N P"]) -> "Quantiles":
        """Quantiles of all scores, those of a function weighted by its row, in which every function counts 1/(N + 1).

        A new function counts as one whose scores are infinite.
        """
        N, P, channels = scores.shape
        levels = np.arange(1, STEPS) / STEPS
        shares = (weights / weights.sum(axis=1, keepdims=True)).ravel() / (N + 1.0)
        radii = np.full((len(levels), channels), np.inf)
        for c in range(channels):
            order = np.argsort(scores[:, :, c], axis=None)
            place = np.searchsorted(np.cumsum(shares[order]), levels - 1e-9)  # sums are rounded
            reached = place < N * P
            radii[reached, c] = scores[:, :, c].ravel()[order][place[reached]]
        return cls(jnp.asarray(radii, jnp.float32))

    def __call__(self, level: float) -> Float[Array, " d_s"]:
        """The radius of each channel."""
        return self.radii[min(max(math.ceil(level * STEPS - 1e-6), 1), STEPS - 1) - 1]


class Calibrated(Uncertain, Wrapper):
    """An operator with bands whose coverage was measured on held-out functions; made by `loca.calibrate`.

    **Arguments:**

    - `normalization`: that of the operator.
    - `operator`: any. σ is its own if it is `Uncertain`, and otherwise the same for all functions and queries.
    - `pointwise`, `simultaneous`: half the widths of bands in units of that σ.
    - `familiarity`: whether inputs are like those of the calibration functions.
    """

    normalization: Normalization
    operator: Operator
    pointwise: Quantiles
    simultaneous: Quantiles
    familiarity: Familiarity

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return self.operator.respond(codes, queries)

    def halves(self, y: Float[Array, "P d_y"]) -> Halves:
        return self.operator.halves(y)

    def spread(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        """Half the width of the pointwise 68.3 % band: σ of the operator times a factor for each channel."""
        sigma = jnp.ones((codes.shape[0], queries.count, len(self.outputs)))
        if isinstance(self.operator, Uncertain):
            sigma = jnp.maximum(self.operator.spread(codes, queries), FLOOR)
        return self._unit * sigma

    def radius(self, level: float, *, simultaneous: bool = False) -> Float[Array, " d_s"]:
        return (self.simultaneous if simultaneous else self.pointwise)(level) / self._unit

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        """Draws of the operator itself, which calibration does not change; F + ε σ if it has none."""
        if isinstance(self.operator, Uncertain):
            return self.operator.draws(key, count)
        return super().draws(key, count)

    def in_distribution(self, u: Input) -> Float[Array, " N"]:
        """The p-value of each of many input functions, small for those unlike the calibration functions."""
        return self.familiarity.p_values(u)

    def objective(
        self, loss: Loss, codes: Float[Array, "N ..."], queries: Queries, s: Float[Array, "N P d_s"], *weights: Array
    ) -> Float[Array, ""]:
        raise ValueError("training changes the errors that were calibrated; train `model.operator`, then calibrate it")

    @property
    def _unit(self) -> Float[Array, " d_s"]:
        return jnp.maximum(self.pointwise(ONE_SIGMA), FLOOR**2)


@overload
def calibrate(operator: Stepper, held: Trajectories, **options: Any) -> Stepper: ...
@overload
def calibrate(operator: Operator, held: Samples | Records, **options: Any) -> Calibrated: ...
def calibrate(  # pyright: ignore[reportInconsistentOverload]  (options are the other parameters)
    operator: Operator,
    held: Samples | Records | Trajectories,
    *,
    train: Samples | Records | None = None,
    weights: Float[Array | np.ndarray, " M"] | None = None,
    regrid: bool = False,
    **options: Any,
) -> Calibrated | Stepper:
    """The operator with bands that cover new functions with a known probability, whatever the operator.

    For each label of a held-out function, the score is |s − F(u)(y)|/σ(u)(y) in standardized units. The radius of a
    band is a quantile of the scores. Each channel has its own.

    Let the N held-out functions and a new one be exchangeable, such as independent draws from one distribution, none of
    them used for training or for choosing the operator, and let the labels of the new function be placed as theirs.

    - A *pointwise* band of level p contains, on average over held-out and new functions, at least the share p of the
      labels of the new function, by weight. It is that of Lee, Barber and Willett (2023) for repeated measurements.
    - A *simultaneous* band contains all labels of the new function with a probability of at least p. With ties
      excluded, the probability is less than p + 1/(N + 1) + 1/1000, since levels are rounded up to multiples of 1/1000.

    Both hold for few labels per function too, but then only for as many labels: between P labels a function may leave a
    simultaneous band more often. Hold out functions with all labels if the band must contain the whole function. For
    one input or one location no guarantee is made. N functions have finite bands for levels up to N/(N + 1).

    **Arguments:**

    - `operator`: any; its own σ, if it has one, determines where bands are wide. An operator that is calibrated already
      is calibrated anew.
    - `held`: at least 10 functions. Use 100 or more for levels around 0.9.
    - `train`: training functions, for the principal components of `Familiarity`; by default every second function of
      `held`, and then p-values come from the others.
    - `weights`: one for each location in `held.y.points`, for pointwise bands; by default the area that it represents.
    - `regrid`: whether to interpolate inputs at other sensors to those of the operator; see `loca.models.adapt`.
    - `options`: of a stepper, which is calibrated on `Trajectories`; see `loca.uncertainty.calibrate_rollouts`.
    """
    if isinstance(held, Trajectories):
        if not isinstance(operator, Stepper):
            raise ValueError("trajectories calibrate a stepper; make one with `loca.fit(operator, trajectories)`")
        return calibrate_rollouts(operator, held, **options)
    if options:
        raise TypeError(f"{', '.join(options)} are options for trajectories; leave them out")
    operator = operator.operator if isinstance(operator, Calibrated) else operator
    adaptation = Adaptation.of(operator, held, regrid=regrid)
    if len(held) < FEWEST or adaptation.is_unsolved:
        found = "functions without outputs" if adaptation.is_unsolved else f"{len(held)} functions"
        raise ValueError(f"calibration needs at least {FEWEST} held-out functions with outputs, got {found}")
    held, weights = adaptation.apply(held), adaptation.weights(weights)
    scores, shares, inputs = [], [], []
    for block in blocks(held, BLOCK):
        operator.normalization.check_output(block.s, operator.outputs)
        errors = standardized_errors(operator, block.u, block.y, block.s, FLOOR)
        scores.append(np.asarray(errors, np.float64))
        points = block.y.points
        w = jnp.asarray(area_weights(block.domain, points) if weights is None else weights, jnp.float32)
        shares.append(np.broadcast_to(np.asarray(block.y.gather(w), np.float64), scores[-1].shape[:2]))
        inputs.append(block.u)
    r, w = np.concatenate(scores), np.concatenate(shares)
    u: Input = jax.tree.map(lambda *parts: jnp.concatenate(parts), *inputs)
    return Calibrated(
        operator.normalization,
        operator,
        Quantiles.of(r, w),
        Quantiles.of(r.max(axis=1, keepdims=True), np.ones((len(r), 1))),
        familiarity_of(operator, u, train),
        signature=operator.signature,
    )


def familiarity_of(operator: Operator, held: Input, train: Samples | Records | None) -> Familiarity:
    """The familiarity of inputs, from held-out functions and, if given, training functions."""
    encoder = None
    if has_own_sensors(held):
        parts = jax.tree.leaves(operator, is_leaf=lambda part: isinstance(part, Encoder))
        encoder = next((part for part in parts if isinstance(part, Encoder)), None)
        if encoder is None:
            raise ValueError(
                f"every function has its own sensors, but {type(operator).__name__} has no encoder for them; calibrate "
                "a model with an encoder, such as LOCA"
            )
    if train is None:
        one, held = (jax.tree.map(lambda array, start=start: array[start::2], held) for start in (0, 1))
        return Familiarity.fit(operator.normalization, one, held, encoder)
    train = Adaptation.of(operator, train).apply(train)
    first = next(blocks(train, min(MOST_TRAINING, len(train))))
    return Familiarity.fit(operator.normalization, first.u, held, encoder)
