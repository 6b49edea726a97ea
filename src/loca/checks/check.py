"""All checks of training and test data."""

from collections.abc import Iterator

import numpy as np

from loca.checks import locations, pairs, values
from loca.checks.findings import FEW, CheckReport, Finding
from loca.data import Samples, channels
from loca.typing import Measurements, values_of


def check(train: Samples, test: Samples | None = None) -> CheckReport:
    """Check training data, and test data if given, for common defects.

    Functions with NaN or Inf are reported and then left out of all other checks. A report without warnings is no
    proof: the checks look for common mistakes, and their limits are set so that sound data passes.

    **Arguments:**

    - `train`: the data to train on.
    - `test`: the data to evaluate on.
    """
    findings = list(checks(train, "training"))
    if test is not None:
        findings += [
            Finding(each.level, each.name, f"test data: {each.message}")
            for each in checks(test, "test")
            if each.level != "note"  # the notes have already been made about the training data
        ]
        difference = mismatch(train, test)
        if difference:
            findings.append(Finding("error", "mismatch", f"training and test data differ in {difference}"))
        else:
            findings += pairs.check_shared(train, test)
            findings += pairs.check_drift(train, test)
    return CheckReport.of(findings)


def checks(samples: Samples, part: str) -> Iterator[Finding]:
    """All checks of one data set."""
    every = list(channels(samples))
    if part == "training" and len(samples) < FEW:
        message = f"there are only {len(samples)} functions; models need dozens at least, and most problems hundreds"
        yield Finding("warning", "few", message)
    yield from values.check_finite(every)
    yield from locations.check_locations(samples)
    yield from locations.check_repeated_queries(samples)
    for side in ("input", "output"):
        finite = [channel for channel in (each.finite() for each in every if each.side == side) if len(channel.values)]
        yield from values.check_fill_values(finite)
        yield from values.check_constant(finite)
        yield from values.check_precision(finite)
        yield from values.check_scales(finite)
        yield from values.check_outliers(finite)
    yield from pairs.check_repeated(samples, part)
    yield from pairs.check_copy(samples)
    yield from pairs.check_related(samples)
    yield from locations.check_edges(samples)
    yield from locations.check_periodic(samples)
    yield from locations.check_resolution(samples)
    yield from values.check_transforms(samples)


def mismatch(train: Samples, test: Samples) -> str:
    """The difference that keeps a model of the training data from predicting the test data; empty if there is none."""
    for what in ("inputs", "outputs"):
        here, there = getattr(train, what), getattr(test, what)
        if here != there:
            return f"their {what}: {', '.join(map(str, here))} and {', '.join(map(str, there))}"
    if train.domain.dimension != test.domain.dimension:
        return f"the dimension of their queries: {train.domain.dimension} and {test.domain.dimension}"
    if len(train.parts) != len(test.parts):
        return f"the number of their inputs: {len(train.parts)} and {len(test.parts)}"
    for one, other in zip(train.parts, test.parts, strict=True):
        if isinstance(one.u, Measurements) != isinstance(other.u, Measurements):
            return "the form of their inputs: only one of them has the same sensors for all functions"
        sensors, others = (values_of(each.u)[0].shape[1] for each in (one, other))
        if not isinstance(one.u, Measurements) and sensors != others:
            return f"their numbers of sensors: {sensors} and {others}"
        if one.x is not None and other.x is not None and not np.allclose(np.asarray(one.x), np.asarray(other.x)):
            return "the locations of their sensors"
    return ""
