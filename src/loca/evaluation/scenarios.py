"""Ways of making training and testing harder, for any data."""

from __future__ import annotations

import abc
import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from loca.data import Samples, Shared, grid_shape
from loca.typing import Key, Measurements


class Scenario(abc.ABC):
    """A change of the data: what is trained on, what is tested on, and what to call it.

    A scenario that leaves the training data alone must return it as it is: a model is then trained once for all such.
    """

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """What tables and figures call it."""

    @property
    def value(self) -> float | None:
        """The number that is varied, for curves; None if there is none."""
        return None

    def train(self, samples: Samples, key: Key) -> Samples:
        """What to train on."""
        return samples

    def test(self, samples: Samples, key: Key) -> Samples:
        """What to test on."""
        return samples


@dataclasses.dataclass(frozen=True)
class LabelFraction(Scenario):
    """Train on some of the labels of each function, drawn at random; test on all.

    **Arguments:**

    - `fraction`: of the labels, at least one of which is kept.
    """

    fraction: float

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction <= 1.0:
            raise ValueError(f"a fraction of labels lies above 0 and is at most 1, got {self.fraction}")

    @property
    def label(self) -> str:
        return f"{100.0 * self.fraction:.3g} % of labels"

    @property
    def value(self) -> float:
        return self.fraction

    def train(self, samples: Samples, key: Key) -> Samples:
        return samples.observe(key, max(1, round(self.fraction * samples.y.count)))


@dataclasses.dataclass(frozen=True)
class InputNoise(Scenario):
    """Gaussian noise on the inputs, in the units of u: train clean and test noisy, or both noisy.

    **Arguments:**

    - `test_std`: standard deviation while testing.
    - `train_std`: standard deviation while training.
    """

    test_std: float
    train_std: float = 0.0

    @property
    def label(self) -> str:
        return f"noise {self.train_std:g} → {self.test_std:g}"

    @property
    def value(self) -> float:
        return self.test_std

    def train(self, samples: Samples, key: Key) -> Samples:
        return samples.corrupt(key, self.train_std) if self.train_std else samples

    def test(self, samples: Samples, key: Key) -> Samples:
        return samples.corrupt(key, self.test_std) if self.test_std else samples


@dataclasses.dataclass(frozen=True, eq=False)
class OtherTest(Scenario):
    """Test on functions drawn from another distribution.

    **Arguments:**

    - `name`: what to call it.
    - `samples`: the test data.
    - `shift`: how far away it is, for curves.
    """

    name: str
    samples: Samples
    shift: float | None = None

    @property
    def label(self) -> str:
        return self.name

    @property
    def value(self) -> float | None:
        return self.shift

    def test(self, samples: Samples, key: Key) -> Samples:
        return self.samples


@dataclasses.dataclass(frozen=True)
class Resolution(Scenario):
    """Train on labels, or see inputs, at every k-th point of their grids only; test on all labels.

    **Arguments:**

    - `labels`: k along every axis of the grid of queries, while training.
    - `sensors`: k along every axis of the grid of sensors, while training and testing, since a model is made for its
        sensors.
    """

    labels: int = 1
    sensors: int = 1

    @property
    def label(self) -> str:
        parts = (f"{name} 1/{k}" for name, k in (("labels", self.labels), ("sensors", self.sensors)) if k > 1)
        return ", ".join(parts) or "full resolution"

    @property
    def value(self) -> float:
        return float(max(self.labels, self.sensors))

    def train(self, samples: Samples, key: Key) -> Samples:
        samples = self.test(samples, key)
        if self.labels == 1:
            return samples
        if not isinstance(samples.y, Shared):
            raise ValueError(f"functions must share their queries to be labeled at each {self.labels}th of a grid")
        keep = every(self.labels, samples.y.y, "queries")
        return dataclasses.replace(samples, y=Shared(samples.y.y[keep]), s=samples.s[:, keep])

    def test(self, samples: Samples, key: Key) -> Samples:
        if self.sensors == 1:
            return samples
        if isinstance(samples.u, Measurements) or samples.x is None:
            raise ValueError(f"functions must share known sensors to be seen at each {self.sensors}th of a grid")
        keep = every(self.sensors, samples.x, "sensors")
        return dataclasses.replace(samples, u=samples.u[:, keep], x=samples.x[keep])


def every(k: int, points: Array, what: str) -> Int[Array, " _"]:
    """Numbers of the points of a grid at every k-th place along every axis."""
    shape = grid_shape(points)
    if shape is None:
        raise ValueError(f"the {what} do not form a grid in row-major order, so there is no coarser one")
    return jnp.asarray(np.arange(len(points)).reshape(shape)[(slice(None, None, k),) * len(shape)].ravel())
