"""Where the functions of a run come from: files, solvers and climate records."""

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

from loca.configuration import DataConfiguration
from loca.data import Part, Records, Samples, Store
from loca.data import open as open_data
from loca.durable import lock
from loca.problems import Climate, Climatology, Problem, generate

MAX_VALIDATION = 1000
"""The largest number of functions that are set aside from a file for validation."""

EXAMPLES = 1000
"""The number of functions from which a model takes shapes and normalization if its data is streamed."""

TEST_SEED = 1_000_000
"""The seed of test functions: the same for every run, and larger than any seed of a run."""

MIN_CACHED_BLOCKS = 3
"""Blocks of work, of about a second each, above which drawn functions are cached in a file."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunData:
    """The data of one run, for training, validation and testing.

    **Arguments:**

    - `train`: training functions, in memory or streamed from files.
    - `validation`: functions by whose error settings are chosen; never trained on.
    - `tests`: test functions by name, at full resolution.
    - `weights`: how much each query counts in test errors, such as its area.
    - `reference`: a prediction to beat for every test function, such as the climatology of its day.
    """

    train: Samples | Records
    validation: Samples
    tests: Mapping[str, Samples | Records]
    weights: Float[np.ndarray, " M"] | None = None
    reference: Float[np.ndarray, "N M d_s"] | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether training reads its batches from files."""
        return not isinstance(self.train, Samples)

    @functools.cached_property
    def example(self) -> Samples:
        """Functions from which a model takes shapes and normalization: all in memory, or the first of a stream."""
        return self.train if isinstance(self.train, Samples) else self.train.load(slice(EXAMPLES))


class DataSource(abc.ABC):
    """Where the functions of a run come from.

    A frozen dataclass of plain arguments, so that a run can record what it depends on.
    """

    @abc.abstractmethod
    def load(self, seed: int, cache: Path) -> RunData:
        """Load the functions of a seed; `cache` is a directory for functions that are expensive to compute."""

    def prepare(self, cache: Path) -> None:  # noqa: B027
        """Compute what is expensive before several runs need it at once; by default nothing is."""


@dataclasses.dataclass(frozen=True)
class FileSource(DataSource):
    """Functions from files.

    The seed determines which functions are set aside for validation, and which labels are kept.
    """

    files: DataConfiguration

    def load(self, seed: int, cache: Path | None = None) -> RunData:
        files, key = self.files, jax.random.key(seed)
        roles = {"inputs": files.inputs, "outputs": files.outputs, "sample": files.sample, "format": files.format}
        records = open_data(files.path, **roles)
        order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(records)))
        if files.validation is not None:
            others = open_data(files.validation, **roles)
            validation = Part(others, np.arange(min(len(others), MAX_VALIDATION)))
        else:
            count = min(max(1, round(files.validation_fraction * len(records))), MAX_VALIDATION)
            if count >= len(records):
                raise ValueError(
                    f"{files.path} has {len(records)} functions, too few to set one aside for validation; "
                    "give a file with validation data"
                )
            order, validation = order[:-count], Part(records, order[-count:])
        labels = {} if files.labels is None else {"key": jax.random.fold_in(key, 1), "labels": files.labels}
        part = Part(records, order, **labels)
        tests = {} if files.test is None else {"test": open_data(files.test, **roles)}
        is_streamed = num_bytes(part) > physical_memory() / 2 if files.stream is None else files.stream
        return RunData(part if is_streamed else part.load(), validation.load(), tests)


def num_bytes(records: Records) -> int:
    """The memory that all functions would take."""
    one = records.load(slice(0, 1))
    return len(records) * sum(array.nbytes for array in jax.tree.leaves((one.u, one.s)))


def physical_memory() -> int:
    """The memory of the machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# The names of the next three classes and of their fields are part of the names of run directories.


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
    tests: tuple[tuple[str, Test], ...] = ()
    validation: int = 200
    test: int = 1000
    same: bool = False

    def prepare(self, cache: Path) -> None:
        if self.same:
            self.load(0, cache)

    def load(self, seed: int, cache: Path) -> RunData:
        label_key, noise_key = jax.random.split(jax.random.key(seed))
        samples = draw(self.problem, self.functions + self.validation, 0 if self.same else seed, cache)
        if self.train_noise:
            samples = samples.corrupt(noise_key, self.train_noise)
        train = samples.take(jnp.arange(self.functions))
        validation = samples.take(jnp.arange(self.functions, len(samples)))
        if self.labels is not None and self.labels < train.y.count:
            train = train.observe(label_key, self.labels)
        tests = {name: test.load(self.problem, self.test, cache) for name, test in self.tests or (("test", Test()),)}
        return RunData(train, validation, tests)


@dataclasses.dataclass(frozen=True)
class Test:
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

    def load(self, seed: int, cache: Path) -> RunData:
        problem = self.problem
        samples, days = problem.train, problem.split - self.validation
        train, validation = samples.take(jnp.arange(days)), samples.take(jnp.arange(days, problem.split))
        climatology = Climatology.fit(problem.train_time[:days], train.s)
        if self.labels is not None:
            train = train.observe(jax.random.key(seed), self.labels)
        return RunData(train, validation, {"test": problem.test}, problem.weights, climatology(problem.test_time))


def draw(problem: Problem, count: int, seed: int, cache: Path) -> Samples:
    """Draw the first pairs of a seed's sequence; those that are expensive to compute are cached in a file."""
    if count <= MIN_CACHED_BLOCKS * problem.block:
        return sample(problem, count, seed)
    description = json.dumps([type(problem).__name__, problem.arguments, seed, count], sort_keys=True, default=str)
    path = cache / f"{type(problem).__name__}-{hashlib.sha256(description.encode()).hexdigest()[:12]}.zarr"
    if not path.exists():
        with lock(cache, wait=True):  # other runs may need the same functions, and each generation uses all cores
            generate(problem, count, path, seed=seed, workers=os.cpu_count() or 1)
    return Store.open(path).load()


@functools.lru_cache(maxsize=4)
def sample(problem: Problem, count: int, seed: int) -> Samples:
    """Draw a few pairs; models that are compared in turn need the same ones."""
    return problem.sample(jax.random.key(seed), count)
