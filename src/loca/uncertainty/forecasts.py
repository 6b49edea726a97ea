"""Forecasts with a spread: errors of one step that draws add, and their size at each lead time."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np

from loca.data import Trajectories
from loca.models import DivergedWarning, Noise, Stepper
from loca.typing import Key

FIELDS = 64
"""Errors of one step that a stepper keeps, at most."""

LEAST, MOST = 0.1, 10.0
"""Of the factor of the spread."""

NUMBERS = 2**25
"""Values of rollouts in memory, at most."""


def calibrate_rollouts(
    stepper: Stepper,
    held: Trajectories,
    *,
    steps: int | None = None,
    every: int | None = None,
    draws: int = 16,
    key: Key | None = None,
) -> Stepper:
    """The stepper whose draws are as far apart as its forecasts are wrong; `loca.calibrate` calls this function.

    Each step of a draw adds an error of one step on a held-out trajectory, drawn at random with its sign. Then the
    distance of draws from their mean is multiplied at each lead time, and for each field, by the ratio of the error of
    their mean to their spread on rollouts of these trajectories.

    **Arguments:**

    - `stepper`: any; a calibrated one is calibrated anew.
    - `held`: trajectories that were neither fitted to nor used to choose anything.
    - `steps`, `every`: of the rollouts, as for `loca.evaluation.evaluate_rollouts`; by default as long as possible, and
      one for each trajectory. Later lead times have the factor of the last.
    - `draws`, `key`: as for `Stepper.rollout`.
    """
    k = stepper.history
    steps = steps or held.frames - k
    weights = np.asarray(stepper.about.weights)
    inside = weights > 0.0

    def begins(length: int, apart: int) -> tuple[np.ndarray, np.ndarray]:
        first = np.arange(0, held.frames - k - length + 1, apart)
        rows, first = np.meshgrid(np.arange(len(held)), first, indexing="ij")
        return rows.ravel(), first.ravel()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DivergedWarning)
        rows, first = begins(1, 1)
        chosen = np.linspace(0, len(rows) - 1, min(FIELDS, len(rows))).round().astype(int)
        start, truth = stepper.starts(held, rows[chosen], first[chosen], 1)
        _, found, _ = next(stepper.roll(start, 1))
        errors = np.where(inside[:, None], truth[:, 0] - found[:, 0, 0], 0.0)
        stepper = dataclasses.replace(stepper, noise=Noise(jnp.asarray(errors), jnp.ones((1, held.d))))
        rows, first = begins(steps, every or steps)
        size = max(1, NUMBERS // (steps * len(held.y) * held.d * draws))
        squares = variance = np.zeros((steps, held.d))
        for part in np.array_split(np.arange(len(rows)), -(-len(rows) // size)):
            start, truth = stepper.starts(held, rows[part], first[part], steps)
            parts = [frames for _, frames, _ in stepper.roll(start, steps, draws=draws, key=key)]
            members = np.concatenate(parts, axis=2)[..., inside, :].astype(np.float64)
            error = (members.mean(axis=1) - truth[..., inside, :]) ** 2
            squares = squares + np.einsum("slmd,m->ld", error, weights[inside])
            variance = variance + np.einsum("slmd,m->ld", members.var(axis=1, ddof=1), weights[inside])
    factor = np.sqrt(squares / np.maximum(variance * (draws + 1) / draws, np.finfo(float).tiny))
    amplitude = jnp.asarray(np.clip(np.nan_to_num(factor, nan=1.0), LEAST, MOST), jnp.float32)
    assert stepper.noise is not None
    return dataclasses.replace(stepper, noise=dataclasses.replace(stepper.noise, amplitude=amplitude))
