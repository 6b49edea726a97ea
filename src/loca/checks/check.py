"""All checks of training and test data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loca.checks import locations, pairs, values
from loca.checks.findings import CheckReport, Finding, inputs_of, outputs_of, sort
from loca.data import Samples
from loca.typing import Measurements


def check(train: Samples, test: Samples | None = None) -> CheckReport:
    """Check training data, and test data if given, for common defects.

    Functions with NaN or Inf are reported and then left out of all other checks. A report without warnings is no
    proof: the checks look for common mistakes, and their limits are set so that sound data passes.

    **Arguments:**

    - `train`: the data to train on.
    - `test`: the data to evaluate on.
    """
    findings = list(one_part(train, "training"))
    if test is not None:
        findings += one_part(test, "test")
        difference = mismatch(train, test)
        if difference:
            findings.append(Finding("error", "mismatch", f"training and test data differ in {difference}"))
        else:
            findings += pairs.check_shared(train, test)
            findings += pairs.check_drift(train, test)
    return CheckReport(sort(iter(findings)))


def one_part(samples: Samples, part: str) -> Iterator[Finding]:
    """The findings in training data alone, or in test data alone."""
    found = list(_one_part(samples, part))
    if part == "training":
        yield from found
    else:  # the notes have already been made about the training data
        yield from (Finding(f.level, f.name, f"test data: {f.message}") for f in found if f.level != "note")


def _one_part(samples: Samples, part: str) -> Iterator[Finding]:
    yield from values.check_finite([*inputs_of(samples), *outputs_of(samples)])
    yield from locations.check_locations(samples)
    yield from locations.check_repeated_queries(samples)
    for side in (inputs_of(samples), outputs_of(samples)):
        finite = [channel for channel in (each.finite() for each in side) if len(channel.values)]
        yield from values.check_fill_values(finite)
        yield from values.check_constant(finite)
        yield from values.check_precision(finite)
        yield from values.check_scales(finite)
        yield from values.check_outliers(finite)
    yield from pairs.check_repeated(samples, part)
    yield from pairs.check_copy(samples)
    yield from pairs.check_related(samples)
    yield from locations.check_edges(samples)
    yield from locations.check_resolution(samples)
    yield from values.check_transforms(samples)


def mismatch(train: Samples, test: Samples) -> str:
    """The difference that keeps a model of the training data from predicting the test data; empty if there is none."""
    if train.inputs != test.inputs:
        return f"their inputs: {names(train.inputs)} and {names(test.inputs)}"
    if train.outputs != test.outputs:
        return f"their outputs: {names(train.outputs)} and {names(test.outputs)}"
    if type(train.u) is not type(test.u):
        return "the form of their inputs: only one of them has the same sensors for all functions"
    if train.domain.dimension != test.domain.dimension:
        return f"the dimension of their queries: {train.domain.dimension} and {test.domain.dimension}"
    if not isinstance(train.u, Measurements) and not isinstance(test.u, Measurements):
        if train.u.shape[1] != test.u.shape[1]:
            return f"their numbers of sensors: {train.u.shape[1]} and {test.u.shape[1]}"
        if train.x is not None and test.x is not None and not np.allclose(train.x, test.x):
            return "the locations of their sensors"
    return ""


def names(variables: tuple) -> str:
    """`temperature (K), pressure (Pa)`."""
    return ", ".join(f"{v.name} ({v.unit})" if v.unit else v.name for v in variables)
