"""Symmetries of a Gaussian operator: those that are named, or found with a few solves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from loca.data import Samples, Shared
from loca.durable import Resumable
from loca.encoders import Encoder
from loca.gaussian.equation import PreparedData, Ranks
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.operator import GaussianOperator
from loca.gaussian.trials import ACCURACY
from loca.symmetries import Evidence, Symmetries, SymmetryReport, detect

FUNCTIONS, LABELS, RANKS = 600, 128, Ranks(600, 400)
"""Functions, labels of each and features of the solves that find symmetries, at most."""


def is_auto(symmetries: str | Sequence[str]) -> bool:
    """Whether symmetries are to be found."""
    return symmetries == "auto" or list(symmetries) == ["auto"]


def adopt(
    symmetries: str | Sequence[str], data: Samples, hyper: Hyperparameters, encoder: Encoder | None,
    work: Resumable | None,
) -> tuple[Symmetries, SymmetryReport]:  # fmt: skip
    """The symmetries with these names, or with "auto" those that are found, and the evidence."""
    if not is_auto(symmetries):
        found = Symmetries.of(symmetries, data)
        return found, SymmetryReport(tuple(Evidence(name, adopted=True) for name in found.names))

    def solve(data: Samples, noise: float | None) -> GaussianOperator:
        ranks = Ranks(min(RANKS.inputs, len(data)), RANKS.locations)
        known = {variable.name for variable in (*data.inputs, *data.outputs)}
        transforms = tuple(each for each in hyper.transforms if each[0] in known)
        own = hyper if noise is None else dataclasses.replace(hyper, noise=noise, nugget=0.0)
        prepared = PreparedData.fit(data, transforms, *hyper.of_codes[1:], encoder)
        return prepared.solve(own, ranks, ACCURACY)[0]

    def compute() -> SymmetryReport:
        part = data.take(jnp.arange(min(FUNCTIONS, len(data))))
        if not isinstance(part.y, Shared) and part.y.count > LABELS:
            part = part.observe(jax.random.key(0), LABELS)
        return detect(part, solve)

    report = compute() if work is None else SymmetryReport.from_json(
        work.once("symmetries", lambda: compute().as_json())
    )  # fmt: skip
    return Symmetries.of(report.adopted, data), report
