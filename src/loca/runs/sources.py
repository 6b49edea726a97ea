"""Where the functions of a run come from."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping

import jax
import numpy as np

from loca.configuration import DataConfiguration
from loca.data import Part, Records, Samples
from loca.data import open as open_data

MAX_VALIDATION = 1000
"""The largest number of functions that are set aside from a file for validation."""

EXAMPLES = 1000
"""The number of functions from which a model takes shapes and normalization if its data is streamed."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunData:
    """The data of one run, for training, validation and testing.

    **Arguments:**

    - `train`: training functions, in memory or streamed from files.
    - `validation`: functions by whose error settings are chosen; never trained on.
    - `tests`: test functions by name, at full resolution.
    """

    train: Samples | Records
    validation: Samples
    tests: Mapping[str, Samples | Records]

    @property
    def is_streamed(self) -> bool:
        """Whether training reads its batches from files."""
        return not isinstance(self.train, Samples)

    @functools.cached_property
    def example(self) -> Samples:
        """Functions from which a model takes shapes and normalization: all in memory, or the first of a stream."""
        return self.train if isinstance(self.train, Samples) else self.train.load(slice(EXAMPLES))


@dataclasses.dataclass(frozen=True)
class FileSource:
    """Functions from files.

    The seed determines which functions are set aside for validation, and which labels are kept.
    """

    files: DataConfiguration

    def load(self, seed: int) -> RunData:
        """Load the functions of a seed."""
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
