"""The functions that a study trains, validates and tests on."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Samples
from loca.durable import lock
from loca.problems import Climate, Climatology, Problem, generate

TEST = 1_000_000
"""Seed of test functions: the same for every seed of a study, and none of those."""

WORTH_KEEPING = 3
"""Pieces of work, of about a second each, from which on functions are kept in a file."""


@dataclasses.dataclass(frozen=True, eq=False)
class Functions:
    """What one run may look at: to train on, to choose by, and, when all is chosen, to be judged by.

    **Arguments:**

    - `tests`: by name; each is at full resolution.
    - `weights`: how much each query counts in errors, such as its area.
    - `reference`: what to beat at every test function, such as the climatology of its day.
    """

    train: Samples
    validation: Samples
    tests: Mapping[str, Samples]
    weights: Float[np.ndarray, " M"] | None = None
    reference: Float[np.ndarray, "N M d_s"] | None = None


class Source(abc.ABC):
    """Where functions come from: a frozen dataclass of plain arguments, so that a run can say what it depends on."""

    @abc.abstractmethod
    def load(self, seed: int, keep: Path) -> Functions:
        """The functions of a seed; `keep` is a directory for those that take long to make."""

    def prepare(self, keep: Path) -> None:  # noqa: B027
        """Make what takes long, before several runs ask for it at once; by default nothing does."""


@dataclasses.dataclass(frozen=True)
class Drawn(Source):
    """Functions from the solver of an experiment.

    **Arguments:**

    - `problem`: the experiment.
    - `functions`: N, how many to train on; every seed draws its own unless they are `same`. Those after them in the
        seed's sequence are for validation.
    - `labels`: P, drawn for every function without replacement; None for all.
    - `train_noise`: standard deviation of noise on the inputs to train and validate on.
    - `tests`: what is changed about the test functions, by name; by default nothing.
    - `validation`, `test`: how many of each.
    - `same`: whether all seeds have the same functions, and differ in labels and weights only.
    """

    problem: Problem
    functions: int
    labels: int | None = None
    train_noise: float = 0.0
    tests: tuple[tuple[str, Test], ...] = ()
    validation: int = 200
    test: int = 1000
    same: bool = False

    def prepare(self, keep: Path) -> None:
        if self.same:
            self.load(0, keep)

    def load(self, seed: int, keep: Path) -> Functions:
        label_key, noise_key = jax.random.split(jax.random.key(seed))
        whole = draw(self.problem, self.functions + self.validation, 0 if self.same else seed, keep)
        if self.train_noise:
            whole = whole.corrupt(noise_key, self.train_noise)
        train = whole.take(jnp.arange(self.functions))
        validation = whole.take(jnp.arange(self.functions, len(whole)))
        if self.labels is not None and self.labels < train.y.count:
            train = train.observe(label_key, self.labels)
        tests = {name: test.load(self.problem, self.test, keep) for name, test in self.tests or (("test", Test()),)}
        return Functions(train, validation, tests)


@dataclasses.dataclass(frozen=True)
class Test:
    """Test functions: of another problem if one is given, with noise of this standard deviation on their inputs."""

    problem: Problem | None = None
    noise: float = 0.0

    def load(self, problem: Problem, count: int, keep: Path) -> Samples:
        """So many of them."""
        samples = draw(self.problem or problem, count, TEST, keep)
        return samples.corrupt(jax.random.key(TEST), self.noise) if self.noise else samples


@dataclasses.dataclass(frozen=True)
class Recorded(Source):
    """Days of a climate record: the first half to train on, its end to validate on, the second half to test on.

    **Arguments:**

    - `problem`: the record.
    - `labels`: P, drawn for every day.
    - `validation`: how many of the last training days are set aside.
    """

    problem: Climate
    labels: int | None = None
    validation: int = 180

    def load(self, seed: int, keep: Path) -> Functions:
        problem = self.problem
        whole, days = problem.train, problem.split - self.validation
        train, validation = whole.take(jnp.arange(days)), whole.take(jnp.arange(days, problem.split))
        climatology = Climatology.fit(problem.train_time[:days], train.s)
        if self.labels is not None:
            train = train.observe(jax.random.key(seed), self.labels)
        return Functions(train, validation, {"test": problem.test}, problem.weights, climatology(problem.test_time))


def draw(problem: Problem, count: int, seed: int, keep: Path) -> Samples:
    """The first pairs of a seed's sequence, kept in a file if they take long to compute."""
    if count <= WORTH_KEEPING * problem.block:
        return sample(problem, count, seed)
    described = json.dumps([type(problem).__name__, problem.arguments, seed, count], sort_keys=True, default=str)
    path = keep / f"{type(problem).__name__}-{hashlib.sha256(described.encode()).hexdigest()[:12]}.zarr"
    with lock(keep, wait=True):  # other runs may need the same functions; and each generation takes all cores
        return generate(problem, count, path, seed=seed, workers=os.cpu_count() or 1).load()


@functools.lru_cache(maxsize=4)
def sample(problem: Problem, count: int, seed: int) -> Samples:
    """Few pairs: models that are compared, one after the other, need the same ones."""
    return problem.sample(jax.random.key(seed), count)
