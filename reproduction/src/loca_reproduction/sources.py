"""Where the functions of a run come from: solvers and climate records."""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import filelock
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Samples, Store
from loca.problems import Antiderivative, Darcy, Problem, ShallowWater, generate
from loca_reproduction.problems import Climate, Climatology, MechanicalMNIST

TEST_SEED = 1_000_000
"""The seed of test functions: the same for every run, and larger than any seed of a run."""

MIN_CACHED_BLOCKS = 3
"""Blocks of work, of about a second each, above which drawn functions are cached in a file."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunData:
    """The data of one run, for training, validation and testing.

    **Arguments:**

    - `train`: training functions.
    - `validation`: functions by whose error settings are chosen; never trained on.
    - `tests`: test functions by name, at full resolution.
    - `weights`: how much each query counts in test errors, such as its area.
    - `reference`: a prediction to beat for every test function, such as the climatology of its day.
    """

    train: Samples
    validation: Samples
    tests: Mapping[str, Samples]
    weights: Float[np.ndarray, " M"] | None = None
    reference: Float[np.ndarray, "N M d_s"] | None = None


class DataSource(abc.ABC):
    """Where the functions of a run come from: a frozen dataclass of plain arguments."""

    @property
    @abc.abstractmethod
    def key(self) -> dict[str, Any]:
        """Everything that the functions depend on, as JSON content.

        Its names are part of the names of run directories; those of classes and fields are not.
        """

    @abc.abstractmethod
    def load(self, seed: int, cache: Path) -> RunData:
        """Load the functions of a seed; `cache` is a directory for functions that are expensive to compute."""


@dataclasses.dataclass(frozen=True)
class Drawn(DataSource):
    """Functions drawn from a problem and solved.

    **Arguments:**

    - `problem`: the problem.
    - `functions`: N, the number of training functions. Every seed draws its own, unless `same`; the functions that
        follow in the seed's sequence are for validation.
    - `labels`: P, the number of labels drawn for each function without replacement; None for all.
    - `train_noise`: standard deviation of the noise on the inputs for training and validation.
    - `tests`: sets of test functions by name; by default one set, of the same problem without noise.
    - `validation`, `test`: the number of validation functions, and of functions in each test set.
    - `same`: whether all seeds share their functions, and differ only in labels and initial weights.
    """

    problem: Problem
    functions: int
    labels: int | None = None
    train_noise: float = 0.0
    tests: tuple[tuple[str, Unseen], ...] = ()
    validation: int = 200
    test: int = 1000
    same: bool = False

    @property
    def key(self) -> dict[str, Any]:
        return {
            "problem": problem_key(self.problem),
            "functions": self.functions,
            "labels": self.labels,
            "noise": self.train_noise,
            "tests": [[name, test.problem and problem_key(test.problem), test.noise] for name, test in self.tests],
            "validation": self.validation,
            "test": self.test,
            "same": self.same,
        }

    def load(self, seed: int, cache: Path) -> RunData:
        label_key, noise_key = jax.random.split(jax.random.key(seed))
        samples = draw(self.problem, self.functions + self.validation, 0 if self.same else seed, cache)
        if self.train_noise:
            samples = samples.corrupt(noise_key, self.train_noise)
        train = samples.take(jnp.arange(self.functions))
        validation = samples.take(jnp.arange(self.functions, len(samples)))
        if self.labels is not None and self.labels < train.y.count:
            train = train.observe(label_key, self.labels)
        tests = {name: test.load(self.problem, self.test, cache) for name, test in self.tests or (("test", Unseen()),)}
        return RunData(train, validation, tests)


@dataclasses.dataclass(frozen=True)
class Unseen:
    """A set of test functions.

    **Arguments:**

    - `problem`: the problem they are drawn from; that of the training functions unless given.
    - `noise`: standard deviation of the noise on their inputs.
    """

    problem: Problem | None = None
    noise: float = 0.0

    def load(self, problem: Problem, count: int, cache: Path) -> Samples:
        """Load `count` test functions; `problem` is that of the training functions."""
        samples = draw(self.problem or problem, count, TEST_SEED, cache)
        return samples.corrupt(jax.random.key(TEST_SEED), self.noise) if self.noise else samples


@dataclasses.dataclass(frozen=True)
class Recorded(DataSource):
    """Days of a climate record: training on the first half, validation on its last days, tests on the second half.

    **Arguments:**

    - `problem`: the record.
    - `labels`: P, the number of labels drawn for each day; None for all.
    - `validation`: the number of days at the end of the first half that are set aside.
    """

    problem: Climate
    labels: int | None = None
    validation: int = 180

    @property
    def key(self) -> dict[str, Any]:
        return {"problem": problem_key(self.problem), "labels": self.labels, "validation": self.validation}

    def load(self, seed: int, cache: Path) -> RunData:
        problem = self.problem
        samples, days = problem.train, problem.split - self.validation
        train, validation = samples.take(jnp.arange(days)), samples.take(jnp.arange(days, problem.split))
        climatology = Climatology.fit(problem.time[:days], train.s)
        if self.labels is not None:
            train = train.observe(jax.random.key(seed), self.labels)
        return RunData(
            train, validation, {"test": problem.test}, problem.weights, climatology(problem.time[-problem.split :])
        )


def problem_key(problem: Problem) -> list[Any]:
    """The name of a problem and the values of its arguments, as JSON content."""
    match problem:
        case Antiderivative():
            return ["antiderivative", problem.length, problem.variance, problem.sensors, problem.queries]
        case Darcy():
            measure = [problem.amplitude, problem.rate, problem.exponent, problem.modes]
            solved = [problem.fine] if problem.preset == "piecewise" else ["neumann"]
            return ["darcy", problem.resolution, problem.preset, *measure, *solved]
        case MechanicalMNIST():
            loads = [problem.input_load, problem.output_load]
            return ["mechanical-mnist", problem.split, *loads, problem.refinement, str(problem.digits)]
        case ShallowWater():
            shape = [problem.height, problem.width, problem.center]
            return ["shallow-water", problem.resolution, problem.gravity, problem.time_step, problem.times, *shape]
        case Climate():
            return ["climate", problem.source, problem.years, str(problem.path)]
    raise TypeError(f"expected one of the problems of the paper, got {type(problem).__name__}; add it to `problem_key`")


def draw(problem: Problem, count: int, seed: int, cache: Path) -> Samples:
    """Draw the first pairs of a seed's sequence; those that are expensive to compute are cached in a file."""
    if count <= MIN_CACHED_BLOCKS * problem.block:
        return sample(problem, count, seed)
    name, *_ = key = problem_key(problem)
    path = cache / f"{name}-{digest([key, seed, count])}.zarr"
    cache.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache / ".lock"):  # other runs may need the same functions
        if not path.exists():
            generate(problem, count, path, seed=seed, workers=os.cpu_count() or 1)
    return Store.open(path).load()


@functools.lru_cache(maxsize=4)
def sample(problem: Problem, count: int, seed: int) -> Samples:
    """Draw a few pairs; models that are compared in turn need the same ones."""
    return problem.sample(jax.random.key(seed), count)


def digest(content: Any) -> str:
    """Ten hexadecimal digits that identify JSON content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
