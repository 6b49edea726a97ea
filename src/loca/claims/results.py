"""What a study found: one row for each model, condition, seed and test."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from loca.claims.runs import Outcome, Run
from loca.data import Variable
from loca.evaluation import Report

DIGITS = 5
"""Of every error that is kept: more than differ between machines."""


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One trained model on one set of test functions."""

    condition: str
    value: float | None
    model: str
    seed: int
    test: str
    rate: float
    steps: int
    batch_size: int
    parameters: int
    validation: float
    report: Report

    @classmethod
    def of(cls, condition: str, value: float | None, run: Run, outcome: Outcome) -> list[Row]:
        """All rows of one run."""
        return [
            cls(condition, value, run.model, run.seed, test, run.rate, run.steps, run.batch_size, outcome.parameters,
                float(rounded(outcome.validation)), brief(report))
            for test, report in outcome.reports.items()
        ]  # fmt: skip

    def mean(self, metric: str = "relative_l2", channel: int | None = None) -> float:
        """Over the functions, and over the channels unless one is given."""
        values = self.report.errors[metric]
        return float(np.mean(values if channel is None else values[:, channel]))

    def to_json(self) -> dict[str, Any]:
        """Errors by metric, a list of functions for each channel."""
        errors = {metric: values.T.tolist() for metric, values in self.report.errors.items()}
        baseline = {metric: values.T.tolist() for metric, values in (self.report.baseline or {}).items()}
        outputs = [variable._asdict() for variable in self.report.outputs]
        return {**vars(self), "report": {"outputs": outputs, "errors": errors, "baseline": baseline}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Row:
        """What `to_json` gave."""
        told = content["report"]
        errors, baseline = (
            {metric: np.array(values, np.float64).T for metric, values in told[which].items()}
            for which in ("errors", "baseline")
        )
        outputs = tuple(Variable(**variable) for variable in told["outputs"])
        return cls(**{**content, "report": Report(outputs, errors, baseline or None)})


@dataclasses.dataclass(frozen=True, eq=False)
class Results:
    """All rows of a study, in the order of its conditions and models."""

    rows: tuple[Row, ...]

    def select(self, **wanted: str | int | float) -> tuple[Row, ...]:
        """The rows with these values, such as `model="LOCA"`."""
        found = tuple(row for row in self.rows if all(getattr(row, name) == value for name, value in wanted.items()))
        if not found:
            raise ValueError(f"no row has {wanted}")
        return found

    def means(
        self, metric: str = "relative_l2", channel: int | None = None, **wanted: str | int | float
    ) -> Float[np.ndarray, " K"]:
        """The mean error of every seed."""
        return np.array([row.mean(metric, channel) for row in self.select(**wanted)])

    def kinds(self, name: str) -> list[str]:
        """The conditions, models or tests, in order."""
        return list(dict.fromkeys(getattr(row, name) for row in self.rows))

    def pooled(self, **wanted: str | int | float) -> Report:
        """The errors of all seeds together."""
        rows = self.select(**wanted)
        errors = {
            metric: np.concatenate([row.report.errors[metric] for row in rows]) for metric in rows[0].report.errors
        }
        return Report(rows[0].report.outputs, errors)

    def to_json(self) -> list[dict[str, Any]]:
        """As JSON can hold it."""
        return [row.to_json() for row in self.rows]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> Results:
        """What `to_json` gave."""
        return cls(tuple(Row.from_json(row) for row in content))


def brief(report: Report) -> Report:
    """The errors of a report alone, with the digits that are kept."""
    baseline = None if report.baseline is None else {k: rounded(v) for k, v in report.baseline.items()}
    return Report(report.outputs, {k: rounded(v) for k, v in report.errors.items()}, baseline)


def rounded(values: Any) -> np.ndarray:
    """To so many significant digits."""
    flat = [float(f"{value:.{DIGITS}g}") for value in np.ravel(values)]
    return np.array(flat).reshape(np.shape(values))
