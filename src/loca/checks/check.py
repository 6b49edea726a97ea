"""All checks of some data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loca.checks import drift, locations, pairs, shapes, values
from loca.checks.channels import inputs_of, outputs_of
from loca.checks.finding import Finding, Report, sort
from loca.data import Samples
from loca.typing import Measurements


def check(train: Samples, test: Samples | None = None) -> Report:
    """Everything that is suspicious about training data, and about test data beside it.

    Functions with NaN or Inf are reported and then left out of all further checks. A report without warnings is no
    proof: the checks look for what goes wrong often, and their limits are set so that sound data passes.

    **Arguments:**

    - `train`: what a model is to learn from.
    - `test`: what it is to be judged by, if there is such a thing yet.
    """
    findings = list(one_part(train, "training"))
    if test is not None:
        findings += one_part(test, "test")
        difference = mismatch(train, test)
        if difference:
            findings.append(Finding("error", "mismatch", f"training and test data differ in {difference}"))
        else:
            findings += pairs.check_shared(train, test)
            findings += drift.check_drift(train, test)
    return Report(sort(iter(findings)))


def one_part(samples: Samples, part: str) -> Iterator[Finding]:
    """What can be found in training data, or in test data, by itself."""
    found = list(_one_part(samples, part))
    if part == "training":
        yield from found
    else:  # what is only good to know has been said of the training data
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
    yield from shapes.check_edges(samples)
    yield from shapes.check_resolution(samples)


def mismatch(train: Samples, test: Samples) -> str:
    """What keeps a model of the training data from answering for the test data; empty if nothing does."""
    if train.inputs != test.inputs:
        return f"their inputs: {names(train.inputs)} and {names(test.inputs)}"
    if train.outputs != test.outputs:
        return f"their outputs: {names(train.outputs)} and {names(test.outputs)}"
    if type(train.u) is not type(test.u):
        return "the form of their inputs: one has sensors shared by all functions, the other has not"
    if train.domain.dimension != test.domain.dimension:
        return f"the dimension of their queries: {train.domain.dimension} and {test.domain.dimension}"
    if not isinstance(train.u, Measurements) and not isinstance(test.u, Measurements):
        if train.u.shape[1] != test.u.shape[1]:
            return f"their numbers of sensors: {train.u.shape[1]} and {test.u.shape[1]}"
        if train.x is not None and test.x is not None and not np.allclose(train.x, test.x):
            return "the places of their sensors"
    return ""


def names(variables: tuple) -> str:
    """`temperature (K), pressure (Pa)`."""
    return ", ".join(f"{v.name} ({v.unit})" if v.unit else v.name for v in variables)
