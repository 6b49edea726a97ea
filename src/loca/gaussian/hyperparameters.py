"""The numbers of a Gaussian operator that are chosen on held-out functions, and those that differ by one move."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

TUPLES = "location_lengths", "amplitudes", "relevances"


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """What `solve` chooses on held-out functions.

    **Arguments:**

    - `length`: of the kernel on inputs, whose codes have mean square length 1.
    - `damping`: every component of a code is multiplied by its root mean square to this power. Damping −1 makes all
      components equal, 0 leaves them as they are.
    - `linear`: the weight of linear operators relative to the Matérn term.
    - `noise`: λ, the variance of the noise of labels relative to that of the prior.
    - `location_lengths`: of the kernel on locations: for each coordinate, a fraction of its extent; on a sphere one
      number, in units of the radius.
    - `transforms`: of the variables, as pairs (name, transform).
    - `amplitudes`: σ² of each channel relative to that of maximum likelihood. Without them, `solve` chooses them on
      held-out functions; (1.0,) is maximum likelihood.
    - `nugget`: the variance of the error that each function has of its own, for example because its input is noisy,
      relative to that of the prior. It is correlated over locations as the prior is.
    - `structure`: the weight of the structure tensor of inputs on grids beside their principal components.
    - `relevances`: the root mean square of each scalar, of each number of an input with few of them, and of each other
      input, in a code: 1/relevance is a length of its own. Without them, all inputs have one length.
    """

    length: float = 2.0
    damping: float = 0.0
    linear: float = 0.3
    noise: float = 1e-4
    location_lengths: tuple[float, ...] = (0.5,)
    transforms: tuple[tuple[str, str], ...] = ()
    amplitudes: tuple[float, ...] = ()
    nugget: float = 0.0
    structure: float = 0.0
    relevances: tuple[float, ...] = ()

    def __post_init__(self):
        positive = self.length, self.noise, *self.location_lengths, *self.amplitudes, *self.relevances
        if not (all(each > 0.0 for each in positive) and min(self.linear, self.nugget, self.structure) >= 0.0):
            raise ValueError(
                "expected length, noise, location_lengths, amplitudes and relevances above 0, and linear, nugget and "
                f"structure of at least 0, got {self}"
            )

    @property
    def of_codes(self) -> tuple[tuple[tuple[str, str], ...], float, bool]:
        """What the codes of inputs depend on, unless an encoder is given."""
        return self.transforms, self.structure, bool(self.relevances)

    @property
    def of_inputs(self) -> tuple[Any, ...]:
        """What the kernel on inputs depends on."""
        return self.length, self.damping, self.linear, self.relevances

    @property
    def numbers(self) -> dict[str, Array]:
        """All but the transforms."""
        names = (field.name for field in dataclasses.fields(self) if field.name != "transforms")
        return {name: jnp.asarray(getattr(self, name), float) for name in names}

    @classmethod
    def of(cls, given: Any) -> Hyperparameters:
        """Those of a report or of an operator, or from a dictionary of them or a line of `trials.jsonl`."""
        while hasattr(given, "operator"):  # with symmetries
            given = given.operator
        given = getattr(given, "hyperparameters", given)
        if isinstance(given, Hyperparameters):
            return given
        content = given.get("hyperparameters", given) if isinstance(given, Mapping) else None
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(content, Mapping) or not set(content) <= set(names):
            raise TypeError(
                "expected Hyperparameters, a report, a Gaussian operator, a dictionary or a line of trials.jsonl, got "
                f"{given!r}; the names of hyperparameters are {', '.join(names)}"
            )
        tuples = {name: tuple(content[name]) for name in TUPLES if name in content}
        pairs = dict(content.get("transforms", ())).items()
        return cls(**{**content, **tuples, "transforms": tuple(pairs)})


Pair = tuple[Hyperparameters, Hyperparameters]
"""Hyperparameters in which one number is larger, and the same in which it is smaller."""


def moves(hyper: Hyperparameters, factor: float, few: bool) -> list[Pair]:
    """All hyperparameters in which one number is larger or smaller by a factor.

    If `few`, only the noise and lengths, which depend on the number of functions and features.
    """

    def changed(**change: Any) -> Hyperparameters:
        return dataclasses.replace(hyper, **change)

    def scaled(name: str) -> Pair:
        value = getattr(hyper, name)
        return changed(**{name: value * factor}), changed(**{name: value * (1.0 / factor)})

    def stretched(*axes: int) -> Pair:
        def lengths(by: float) -> tuple[float, ...]:
            return tuple(each * by if i in axes else each for i, each in enumerate(hyper.location_lengths))

        return changed(location_lengths=lengths(factor)), changed(location_lengths=lengths(1.0 / factor))

    axes = range(len(hyper.location_lengths))
    found = [scaled("noise"), scaled("length"), stretched(*axes)]
    if not few:
        step = 0.25 * math.log2(factor)
        found += [(changed(damping=hyper.damping + step), changed(damping=hyper.damping - step)), scaled("linear")]
        found += [stretched(axis) for axis in axes] if len(axes) > 1 else []
        found += [scaled("nugget")] if hyper.nugget else []
        found += [scaled("structure")] if hyper.structure else []
    return found


def with_nugget(hyper: Hyperparameters) -> list[Hyperparameters]:
    """The same with a nugget: as large as the noise, larger, or in place of most of the noise."""
    noise = hyper.noise
    sizes = (noise, noise), (16.0 * noise, noise), (noise, 0.1 * noise)
    return [dataclasses.replace(hyper, nugget=nugget, noise=noise) for nugget, noise in sizes]
