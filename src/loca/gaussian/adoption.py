"""Symmetries of a Gaussian operator: those that are named, or found with a few solves."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from loca.data import Samples, Shared
from loca.durable import Resumable
from loca.encoders import Encoder
from loca.gaussian.equation import PreparedData, Ranks
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.operator import GaussianOperator
from loca.gaussian.trials import ACCURACY, Fold
from loca.symmetries import Evidence, Symmetries, SymmetryReport, detect

FUNCTIONS, HELD, LABELS, RANKS = 300, 200, 128, Ranks(600, 400)
"""Functions, held-out functions, labels of each and features of the solves that find symmetries, at most."""


def is_auto(symmetries: str | Sequence[str]) -> bool:
    """Whether symmetries are to be found."""
    return symmetries == "auto" or list(symmetries) == ["auto"]


def adopt(
    symmetries: str | Sequence[str], fold: Fold, hyper: Hyperparameters, encoder: Encoder | None, work: Resumable | None
) -> tuple[Symmetries, SymmetryReport]:
    """The symmetries with these names, or with "auto" those that hold on a fold, and the evidence."""
    if not is_auto(symmetries):
        found = Symmetries.of(symmetries, fold.train)
        return found, SymmetryReport(tuple(Evidence(name, adopted=True) for name in found.names))

    def solve(data: Samples) -> GaussianOperator:
        ranks = Ranks(min(RANKS.inputs, len(data)), RANKS.locations)
        return PreparedData.fit(data, hyper.transforms, encoder).solve(hyper, ranks, ACCURACY)[0]

    def compute() -> SymmetryReport:
        train, held = (
            part.take(jnp.arange(min(most, len(part)))) for part, most in ((fold.train, FUNCTIONS), (fold.held, HELD))
        )
        if not isinstance(train.y, Shared) and train.y.count > LABELS:
            train = train.observe(jax.random.key(0), LABELS)
        return detect(train, held, solve)

    report = compute() if work is None else SymmetryReport.from_json(
        work.once("symmetries", lambda: compute().as_json())
    )  # fmt: skip
    return Symmetries.of(report.adopted, fold.train), report
