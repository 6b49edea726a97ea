"""Metrics by name, and the report of an evaluation: every error, as JSON and as a table."""

import dataclasses
import io
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loca.data import Variable
from loca.metrics import BAND_EDGES


class Measure(NamedTuple):
    """A metric: its title, whether it has the unit of its channel, and whether larger values are better."""

    title: str
    in_units: bool = False
    larger_is_better: bool = False


MEASURES = {
    "relative_l2": Measure("relative L2"),
    "relative_l2_squared": Measure("relative L2, squared"),
    "spectral": Measure("relative spectral norm"),
    "rmse": Measure("RMSE", in_units=True),
    "rmse_low": Measure("RMSE, |k| < 5", in_units=True),
    "rmse_mid": Measure("RMSE, 5 ≤ |k| < 13", in_units=True),
    "rmse_high": Measure("RMSE, 13 ≤ |k|", in_units=True),
    "max_absolute": Measure("largest error", in_units=True),
    "skill": Measure("skill", larger_is_better=True),
    "coverage": Measure("coverage", larger_is_better=True),
    "contained": Measure("contained", larger_is_better=True),
    "width": Measure("band width", in_units=True),
    "std": Measure("σ", in_units=True),
    "crps": Measure("CRPS", in_units=True),
}
"""All metrics, in the order of a report."""

RELIABILITY_LEVELS = tuple(np.round(np.arange(0.05, 1.0, 0.05), 2).tolist())
"""The levels at which the coverage of bands is counted."""

BANDS = {"rmse_low": 0, "rmse_mid": BAND_EDGES[0], "rmse_high": BAND_EDGES[1]}  # the lowest wavenumber |k| of each band

REACH = 1.5
"""Values further from the quartiles than this many interquartile ranges are outliers (Tukey 1977), as in the paper."""


@dataclasses.dataclass(frozen=True)
class Distribution:
    """Mean, quartiles and outliers of one number per function.

    **Arguments:**

    - `outliers`: numbers of the functions beyond 1.5 interquartile ranges of the quartiles.
    - `missing`: numbers of the functions whose value is infinite or NaN; everything else is computed without them.
    """

    mean: float
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float
    outliers: tuple[int, ...]
    missing: tuple[int, ...]

    @classmethod
    def of(cls, values: Float[np.ndarray, " N"]) -> "Distribution":
        """The distribution of the values; quartiles by linear interpolation."""
        finite = np.isfinite(values)
        known, missing = values[finite], tuple(np.flatnonzero(~finite).tolist())
        if not known.size:
            return cls(*[math.nan] * 6, outliers=(), missing=missing)
        minimum, lower, median, upper, maximum = np.quantile(known, [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
        reach = REACH * (upper - lower)
        beyond = finite & ((values < lower - reach) | (values > upper + reach))
        outliers = tuple(np.flatnonzero(beyond).tolist())
        return cls(float(known.mean()), minimum, lower, median, upper, maximum, outliers, missing)


WIDTH = 80  # columns of a plain table


def short(value: float) -> str:
    """A number with three digits in at most seven characters: 0.0312, 1230, 1.23e-4."""
    rounded = float(f"{value:.3g}")
    if rounded == 0.0 or 1e-3 <= abs(rounded) < 1e3 or not math.isfinite(rounded):
        return f"{rounded:g}"
    if 1e3 <= abs(rounded) < 1e6:
        return f"{rounded:.0f}"
    digits, exponent = f"{rounded:.2e}".split("e")
    return f"{digits}e{int(exponent)}"


FORMAT = 1  # version of the JSON; later versions are refused

Errors = Mapping[str, Float[np.ndarray, "N d_s"]]
"""By metric: one number per function and output channel."""


@dataclasses.dataclass(frozen=True, eq=False)
class Report:
    """Errors of every function and output channel by metric, in the units of the data.

    **Arguments:**

    - `outputs`: names and units of the channels.
    - `errors`: of the model, by the names in `MEASURES`.
    - `baseline`: of the reference field, if one was given.
    - `is_weighted`: whether means over queries are weighted, such as by area.
    - `source`: the file that was evaluated; empty for data in memory.
    - `level`: of the bands of a model that knows its error.
    - `reliability`: the share of labels inside `pointwise` bands and of functions inside `simultaneous` bands of the
      levels in `RELIABILITY_LEVELS`.
    """

    outputs: tuple[Variable, ...]
    errors: Errors
    baseline: Errors | None = None
    is_weighted: bool = False
    source: str = ""
    level: float | None = None
    reliability: Mapping[str, Float[np.ndarray, "L d_s"]] | None = None

    def __len__(self) -> int:
        """N, the number of functions."""
        return len(next(iter(self.errors.values())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.to_json() == other.to_json()

    def of(self, metric: str = "relative_l2", channel: int | str = 0) -> Float[np.ndarray, " N"]:
        """One metric for all functions, in a channel given by number or name."""
        if metric not in self.errors:
            raise ValueError(f"this report has no `{metric}`; it has {', '.join(self.errors)}")
        return self.errors[metric][:, self._channel(channel)]

    def distribution(self, metric: str = "relative_l2", channel: int | str = 0) -> Distribution:
        """The distribution of one metric over the functions."""
        return Distribution.of(self.of(metric, channel))

    def worst(self, metric: str = "relative_l2", channel: int | str = 0, count: int = 5) -> Int[np.ndarray, " _"]:
        """Numbers of the functions with the worst errors, worst first; those that are not finite come before all."""
        values = self.of(metric, channel)
        badness = -values if MEASURES[metric].larger_is_better else values
        return np.argsort(-np.where(np.isfinite(values), badness, np.inf), kind="stable")[:count]

    def overall_skill(self, channel: int | str = 0) -> float:
        """1 − Σ RMSE² / Σ RMSE² of the reference, summed over all functions."""
        if self.baseline is None or "rmse" not in self.errors:
            raise ValueError("skill needs `rmse` and a reference; evaluate with `reference=mean_field(train)`")
        c = self._channel(channel)
        return float(1.0 - np.sum(self.errors["rmse"][:, c] ** 2) / np.sum(self.baseline["rmse"][:, c] ** 2))

    def rank_correlation(self, channel: int | str = 0) -> float:
        """Spearman's correlation of σ and RMSE over the functions: 1 if σ orders them as their errors do.

        NaN if one of the two is the same for all functions, as σ is for many models.
        """
        if "rmse" not in self.errors or "std" not in self.errors:
            raise ValueError("this needs `rmse` and `std`; evaluate a model that knows its error with both metrics")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
            found: Any = scipy.stats.spearmanr(self.of("std", channel), self.of("rmse", channel))
        return float(found.statistic)

    def unit(self, metric: str, channel: int | str = 0) -> str:
        """The unit of a metric; empty for relative errors."""
        return self.outputs[self._channel(channel)].unit if MEASURES[metric].in_units else ""

    def _channel(self, channel: int | str) -> int:
        names = [variable.name for variable in self.outputs]
        if isinstance(channel, str) and channel in names:
            return names.index(channel)
        if isinstance(channel, int) and 0 <= channel < len(names):
            return channel
        raise ValueError(f"there is no channel {channel!r}; there are {', '.join(names)}, or 0 to {len(names) - 1}")

    def to_json(self) -> dict[str, Any]:
        """All errors and, for human readers, their distributions, as JSON values."""
        return {
            "format": FORMAT,
            "source": self.source,
            "functions": len(self),
            "is_weighted": self.is_weighted,
            "outputs": [variable._asdict() for variable in self.outputs],
            "summary": {
                metric: {
                    variable.name: {
                        name: _to_numbers(np.array(value)) if isinstance(value, float) else list(value)
                        for name, value in dataclasses.asdict(self.distribution(metric, channel)).items()
                    }
                    for channel, variable in enumerate(self.outputs)
                }
                for metric in self.errors
            },
            "errors": {metric: _to_numbers(values) for metric, values in self.errors.items()},
            "level": self.level,
            "rank_correlation": [_to_numbers(np.array(self.rank_correlation(c))) for c in range(len(self.outputs))]
            if "rmse" in self.errors and "std" in self.errors
            else None,
            "reliability": self.reliability and {name: _to_numbers(each) for name, each in self.reliability.items()},
            "baseline": self.baseline and {metric: _to_numbers(values) for metric, values in self.baseline.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Report":
        """The report from its JSON; the summary is ignored, because it follows from the errors."""
        found = content.get("format")
        if found != FORMAT:
            raise ValueError(
                f"this report has format {found!r}, but this version of loca reads format {FORMAT}; "
                "evaluate again, or upgrade with `pip install --upgrade loca-jax`"
            )
        outputs = tuple(Variable(**variable) for variable in content["outputs"])

        def read(arrays: Mapping[str, Any] | None, functions: int) -> dict[str, np.ndarray]:
            return {name: _from_numbers(each, (functions, len(outputs))) for name, each in (arrays or {}).items()}

        return cls(
            outputs=outputs,
            errors=read(content["errors"], content["functions"]),
            baseline=read(content["baseline"], content["functions"]) or None,
            is_weighted=content["is_weighted"],
            source=content["source"],
            level=content.get("level"),
            reliability=read(content.get("reliability"), len(RELIABILITY_LEVELS)) or None,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON, without loss."""
        Path(path).write_text(json.dumps(self.to_json(), allow_nan=False, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Report":
        """Read a report that `save` wrote."""
        return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))

    def __rich__(self) -> Table:
        """One table per channel with a row per metric: mean, quartiles, the worst function and its number, outliers.

        Bands of the RMSE are indented below it, and the errors of a reference field below those of the model.
        """
        weighted = ", weighted" if self.is_weighted else ""
        source = f" of {self.source}" if self.source else ""
        bands = "" if self.level is None else f", {100 * self.level:g} % bands"
        heads = ("", "mean", "25 %", "median", "75 %", "worst", "outliers")
        blocks = [list(self._rows(c)) for c in range(len(self.outputs))]
        widths = [max(map(len, each)) for each in zip(heads, *(row for block in blocks for row in block), strict=True)]
        whole = Table.grid()
        # as text, because brackets in names and units are not markup
        whole.add_row(Text(f"Errors of {len(self)} functions{source}{weighted}{bands}", style="italic"))
        for variable, block in zip(self.outputs, blocks, strict=True):
            whole.add_row("")
            whole.add_row(Text(str(variable), style="bold"))
            table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
            table.add_column(heads[0])  # on a narrow terminal words wrap, numbers do not
            for head, width in zip(heads[1:], widths[1:], strict=True):
                table.add_column(head, min_width=width, justify="right", no_wrap=True)
            for row in block:
                table.add_row(*map(Text, row))
            whole.add_row(table)
        return whole

    def _rows(self, channel: int) -> Iterator[list[str]]:
        for metric in self.errors:
            indent, name = "", MEASURES[metric].title
            if metric in BANDS and "rmse" in self.errors:
                indent, name = "  ", name.removeprefix("RMSE, ")
            found = self.distribution(metric, channel)
            number = int(self.worst(metric, channel, 1)[0])
            worst = f"{short(float(self.of(metric, channel)[number]))} (#{number})"
            yield [indent + name, *_middle(found), worst, str(len(found.outliers))]
            if self.baseline is not None and metric in self.baseline:
                reference = Distribution.of(self.baseline[metric][:, channel])
                yield [f"{indent}  reference", *_middle(reference), "", ""]
        if "rmse" in self.errors and "std" in self.errors and math.isfinite(order := self.rank_correlation(channel)):
            yield ["σ rank corr.", short(order), "", "", "", "", ""]

    def __str__(self) -> str:
        with io.StringIO() as text:
            Console(file=text, width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False).print(self)
            return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _middle(found: Distribution) -> list[str]:
    return [short(value) for value in (found.mean, found.lower_quartile, found.median, found.upper_quartile)]


def _to_numbers(values: Float[np.ndarray, "..."]) -> Any:
    """An array as nested lists, without loss: null for NaN, strings for infinite numbers, which JSON does not have."""
    return json.loads(json.dumps(values.tolist()), parse_constant=lambda word: None if word == "NaN" else word)


def _from_numbers(values: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    array = np.asarray(values, np.float64)  # which reads null as NaN, and both strings as infinite numbers
    if array.shape != shape:
        raise ValueError(f"expected numbers of shape {shape} in a report, found {array.shape}; the file was changed")
    return array
