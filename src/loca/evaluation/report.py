"""What an evaluation found."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from loca.data import Variable
from loca.evaluation.distribution import Distribution
from loca.evaluation.measures import MEASURES
from loca.evaluation.numbers import from_numbers, to_numbers

if TYPE_CHECKING:
    from rich.table import Table

FORMAT = 1
"""Of the JSON; a reader refuses later ones."""

Errors = Mapping[str, Float[np.ndarray, "N d_s"]]
"""By the name of the metric: one number per function and output channel."""


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """Errors of every function and output channel by the name of the metric, in the units of the data.

    **Arguments:**

    - `outputs`: names and units of the channels.
    - `errors`: of the model; names are those of `MEASURES`.
    - `baseline`: of the reference field, if one was given.
    - `is_weighted`: whether means over queries are weighted, such as by area.
    - `source`: the file that was evaluated, empty for data in memory.
    """

    outputs: tuple[Variable, ...]
    errors: Errors
    baseline: Errors | None = None
    is_weighted: bool = False
    source: str = ""

    def __len__(self) -> int:
        """N, how many functions were evaluated."""
        return len(next(iter(self.errors.values())))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Report):
            return NotImplemented
        about = (self.outputs, self.is_weighted, self.source)
        return (
            about == (other.outputs, other.is_weighted, other.source)
            and are_equal(self.errors, other.errors)
            and are_equal(self.baseline or {}, other.baseline or {})
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def of(self, metric: str = "relative_l2", channel: int | str = 0) -> Float[np.ndarray, " N"]:
        """One error of all functions, in a channel given by number or name."""
        if metric not in self.errors:
            raise ValueError(f"this report has no `{metric}`; it has {', '.join(self.errors)}")
        return self.errors[metric][:, self._channel(channel)]

    def distribution(self, metric: str = "relative_l2", channel: int | str = 0) -> Distribution:
        """How that error is spread over the functions."""
        return Distribution.of(self.of(metric, channel))

    def worst(self, metric: str = "relative_l2", channel: int | str = 0, count: int = 5) -> Int[np.ndarray, " _"]:
        """Numbers of the functions with the worst errors, the worst first; those without a finite one come before."""
        values = self.of(metric, channel)
        badness = -values if MEASURES[metric].larger_is_better else values
        return np.argsort(-np.where(np.isfinite(values), badness, np.inf), kind="stable")[:count]

    def overall_skill(self, channel: int | str = 0) -> float:
        """1 − Σ RMSE² / Σ RMSE² of the reference, over all functions together."""
        if self.baseline is None or "rmse" not in self.errors:
            raise ValueError("skill needs `rmse` and a reference; evaluate with `reference=mean_field(train)`")
        c = self._channel(channel)
        return float(1.0 - np.sum(self.errors["rmse"][:, c] ** 2) / np.sum(self.baseline["rmse"][:, c] ** 2))

    def unit(self, metric: str, channel: int | str = 0) -> str:
        """The unit of that error; empty for relative ones."""
        return self.outputs[self._channel(channel)].unit if MEASURES[metric].in_units else ""

    def _channel(self, channel: int | str) -> int:
        names = [variable.name for variable in self.outputs]
        if isinstance(channel, str) and channel in names:
            return names.index(channel)
        if isinstance(channel, int) and 0 <= channel < len(names):
            return channel
        raise ValueError(f"there is no channel {channel!r}; there are {', '.join(names)}, or 0 to {len(names) - 1}")

    def to_json(self) -> dict[str, Any]:
        """All numbers and, for whoever reads the file, their distributions, as JSON can hold them."""
        return {
            "format": FORMAT,
            "source": self.source,
            "functions": len(self),
            "is_weighted": self.is_weighted,
            "outputs": [variable._asdict() for variable in self.outputs],
            "summary": {
                metric: {
                    variable.name: summary(self.distribution(metric, channel))
                    for channel, variable in enumerate(self.outputs)
                }
                for metric in self.errors
            },
            "errors": {metric: to_numbers(values) for metric, values in self.errors.items()},
            "baseline": self.baseline and {metric: to_numbers(values) for metric, values in self.baseline.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Report:
        """The report that `to_json` described; the summary is not read, since it follows from the rest."""
        found = content.get("format")
        if found != FORMAT:
            raise ValueError(
                f"this is not a report that this version of loca reads: it has format {found!r}, expected {FORMAT}; "
                "evaluate again, or upgrade with `pip install --upgrade loca-jax`"
            )
        outputs = tuple(Variable(**variable) for variable in content["outputs"])
        shape = (content["functions"], len(outputs))

        def read(errors: Mapping[str, Any]) -> dict[str, np.ndarray]:
            return {metric: from_numbers(values, shape) for metric, values in errors.items()}

        baseline = content["baseline"]
        return cls(
            outputs=outputs,
            errors=read(content["errors"]),
            baseline=None if baseline is None else read(baseline),
            is_weighted=content["is_weighted"],
            source=content["source"],
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON, without loss."""
        Path(path).write_text(json.dumps(self.to_json(), allow_nan=False, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Report:
        """Read a report that `save` wrote."""
        return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))

    def __rich__(self) -> Table:
        """A table with one row per metric and channel."""
        from loca.evaluation.tables import report_table

        return report_table(self)

    def __str__(self) -> str:
        from loca.evaluation.tables import plain

        return plain(self.__rich__())


def are_equal(a: Errors, b: Errors) -> bool:
    """Whether two sets of errors are the same numbers; not a number equals itself."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)


def summary(distribution: Distribution) -> dict[str, Any]:
    """A distribution as JSON can hold it."""
    values = dataclasses.asdict(distribution)
    return {name: to_numbers(np.array(v)) if isinstance(v, float) else list(v) for name, v in values.items()}
