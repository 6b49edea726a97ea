"""Training on trajectories: operators that predict the increment of a step, or of several steps in a row."""

import dataclasses
from typing import Any

import numpy as np

from loca.data import Samples, Trajectories
from loca.models import Operator, Stepper, Unrolled


def pairs_of(
    stepper: Stepper, data: Trajectories, validate: Trajectories | None, *, noise: float, unroll: int, seed: int
) -> tuple[Operator, Any, dict[str, Any]]:
    """What `fit` trains for a stepper, on which pairs, and its options that follow from the trajectories.

    Pairs of trajectories in memory are in memory, those of others are streamed.
    """
    steps = data.steps(stepper.history, ahead=unroll, noise=noise, seed=seed)
    pairs = steps.load() if isinstance(data.s, np.ndarray) else steps
    held: Samples | None = None if validate is None else validate.steps(stepper.history, ahead=unroll).load()
    options: dict[str, Any] = {"validate": held}
    if data.mask is not None:
        options["weights"] = data.mask.astype(np.float32)
    return stepper.operator if unroll == 1 else Unrolled.of(stepper, unroll), pairs, options


def with_trained(stepper: Stepper, trained: Operator) -> Stepper:
    """The stepper with what was trained of it."""
    inner = trained.operator.operator if isinstance(trained, Unrolled) else trained
    return dataclasses.replace(stepper, operator=inner)
