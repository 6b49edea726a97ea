"""What a comparison measured: a row for each model, condition, seed and test, one function to look at, and figures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Samples, Shared, Variable
from loca.domains import domain_from_json
from loca.evaluation import MEASURES, Report
from loca.figures import INK, draw_boxes, draw_line, draw_predictions, line_styles, log_axis, style
from loca.models import Operator
from loca_reproduction.runs import Run, RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DIGITS = 5
"""Significant digits of every stored error: more than agree between machines."""


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
    def of(cls, condition: str, value: float | None, run: Run, result: RunResult) -> list[Row]:
        """The rows of one run, one for each set of test functions."""
        return [
            cls(condition, value, run.model, run.seed, test, run.rate, run.steps, run.batch_size, result.parameters,
                float(rounded(result.validation)), errors_only(report))
            for test, report in result.reports.items()
        ]  # fmt: skip

    def mean(self, metric: str = "relative_l2", channel: int | None = None) -> float:
        """The mean error over functions, and over channels unless one is given."""
        values = self.report.errors[metric]
        return float(np.mean(values if channel is None else values[:, channel]))

    def to_json(self) -> dict[str, Any]:
        """The row as JSON content; errors by metric, as one list of functions per channel."""
        errors = {metric: values.T.tolist() for metric, values in self.report.errors.items()}
        baseline = {metric: values.T.tolist() for metric, values in (self.report.baseline or {}).items()}
        outputs = [variable._asdict() for variable in self.report.outputs]
        return {**vars(self), "report": {"outputs": outputs, "errors": errors, "baseline": baseline}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Row:
        """The row that `to_json` described."""
        report = content["report"]
        errors, baseline = (
            {metric: np.array(values, np.float64).T for metric, values in report[which].items()}
            for which in ("errors", "baseline")
        )
        outputs = tuple(Variable(**variable) for variable in report["outputs"])
        return cls(**{**content, "report": Report(outputs, errors, baseline or None)})


@dataclasses.dataclass(frozen=True, eq=False)
class Results:
    """All rows of a comparison, in the order of its conditions and models."""

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
        """The mean error of each selected row, one per seed."""
        return np.array([row.mean(metric, channel) for row in self.select(**wanted)])

    def kinds(self, name: str) -> list[str]:
        """The different conditions, models or tests, in order."""
        return list(dict.fromkeys(getattr(row, name) for row in self.rows))

    def pooled(self, **wanted: str | int | float) -> Report:
        """The errors of all selected rows in one report, such as those of all seeds."""
        rows = self.select(**wanted)
        errors = {
            metric: np.concatenate([row.report.errors[metric] for row in rows]) for metric in rows[0].report.errors
        }
        return Report(rows[0].report.outputs, errors)

    def to_json(self) -> list[dict[str, Any]]:
        """The rows as JSON content."""
        return [row.to_json() for row in self.rows]

    @classmethod
    def from_json(cls, content: Iterable[Mapping[str, Any]]) -> Results:
        """The results that `to_json` described."""
        return cls(tuple(Row.from_json(row) for row in content))


@dataclasses.dataclass(frozen=True, eq=False)
class Example:
    """One test function, and the predictions of all models for it: the paper's comparison of fields."""

    samples: Samples
    predictions: Mapping[str, Float[Array, "1 P d_s"]]

    @classmethod
    def of(cls, models: Mapping[str, Operator], test: Samples, number: int) -> Example:
        """The function with this number; only at the last time, if outputs depend on time and inputs do not."""
        samples = test.take(jnp.array([number]))
        y = samples.y.points
        if y.shape[1] > arrays_of(samples)["x"].shape[1]:
            last = jnp.flatnonzero(y[:, 0] == y[:, 0].max())
            samples = dataclasses.replace(samples, y=Shared(y[last]), s=samples.s[:, last])
        return cls(samples, {name: model.predict(samples.u, samples.y) for name, model in models.items()})

    def to_json(self) -> dict[str, Any]:
        """The example as JSON content, rounded."""
        arrays = {name: rounded(values).tolist() for name, values in arrays_of(self.samples).items()}
        return {
            "domain": self.samples.domain.to_json(),
            "inputs": [variable._asdict() for variable in self.samples.inputs],
            "outputs": [variable._asdict() for variable in self.samples.outputs],
            "once": {name: arrays[name] for name in ("x", "y")},
            "each": {name: arrays[name] for name in ("s", "u")},
            "answers": {name: rounded(values).tolist() for name, values in self.predictions.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Example:
        """The example that `to_json` described."""
        inputs, outputs = (tuple(Variable(**v) for v in content[which]) for which in ("inputs", "outputs"))
        arrays = {name: jnp.array(values) for name, values in (content["once"] | content["each"]).items()}
        about = {"domain": domain_from_json(content["domain"]), "inputs": inputs, "outputs": outputs}
        samples = Samples(**{**arrays, **about})
        return cls(samples, {name: jnp.array(values) for name, values in content["answers"].items()})

    def figure(self) -> Figure:
        """Input, truth, prediction and error, in a row for each model."""
        rows = self.samples.take(jnp.zeros(len(self.predictions), int))
        return draw_predictions(rows, jnp.concatenate(list(self.predictions.values())), list(self.predictions))


def arrays_of(samples: Samples) -> dict[str, Any]:
    """Inputs and outputs with their locations, of data with common sensors and queries."""
    return {"x": samples.x, "y": samples.y.points, "s": samples.s, "u": samples.u}


def errors_only(report: Report) -> Report:
    """The errors of a report and of its baseline, rounded."""
    baseline = None if report.baseline is None else {k: rounded(v) for k, v in report.baseline.items()}
    return Report(report.outputs, {k: rounded(v) for k, v in report.errors.items()}, baseline)


def rounded(values: Any) -> np.ndarray:
    """Numbers rounded to `DIGITS` significant digits."""
    flat = [float(f"{value:.{DIGITS}g}") for value in np.ravel(values)]
    return np.array(flat).reshape(np.shape(values))


Table = Mapping[str, Mapping[str, int | float]]
"""A number by experiment and model."""


def boxes(results: Results, metric: str = "relative_l2", models: Sequence[str] | None = None) -> Figure:
    """Box plots as in the paper: a panel for each condition and test, a box for each model with all its seeds."""
    from matplotlib.figure import Figure

    names = [m for m in results.kinds("model") if models is None or m in models]
    groups = list(dict.fromkeys((row.condition, row.test) for row in results.rows))
    outputs = results.rows[0].report.outputs
    with style():
        width = (0.3 if len(outputs) > 1 else 0.75) * len(names) * len(outputs)
        columns = min(len(groups), max(1, int(7.6 // width)))  # letters of a wider figure would be too small on a page
        rows = math.ceil(len(groups) / columns)
        figure = Figure(figsize=(0.6 + width * columns, 0.4 + 2.0 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        reports = {}
        for ax, (condition, test) in zip(axes.flat, groups, strict=True):
            reports = {name: results.pooled(condition=condition, test=test, model=name) for name in names}
            draw_boxes(ax, reports, metric, list(range(len(outputs))))
            varied = [condition] * (len(results.kinds("condition")) > 1) + [test] * (len(results.kinds("test")) > 1)
            ax.set_title(", ".join(varied))
        for ax in axes[:, 0]:
            ax.set_ylabel(MEASURES[metric].title)
        if len(outputs) > 1:
            figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=len(names))
        figure.draw_without_rendering()
    return figure


def over_values(results: Results, label: str, *, logarithmic: bool) -> Figure:
    """Mean errors against the varied value, a panel for each condition: medians over seeds, with their range."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    groups = results.kinds("condition")
    places = sorted({row.value for row in results.rows if row.value is not None})
    with style():
        figure = Figure(figsize=(0.6 + 2.4 * len(groups), 2.5), layout="constrained")
        axes = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
        for ax, group in zip(axes, groups, strict=True):
            for model, look in line_styles(results.kinds("model")).items():
                points = [
                    {"value": row.value, "error": row.mean()} for row in results.select(condition=group, model=model)
                ]
                draw_line(ax, points, "value", "error", label=model, **look)
            ax.set_title(group if len(groups) > 1 else "")
            ax.set_xlabel(label)
            if logarithmic:
                ax.set_xscale("log")
            ax.xaxis.set_major_locator(FixedLocator(places))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_formatter("{x:g}")
            log_axis(ax)
        axes[0].set_ylabel(MEASURES["relative_l2"].title)
        handles = axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=3, fontsize=6.0)
        figure.draw_without_rendering()
    return figure


def bars_beside_paper(ours: Table, paper: Table, label: str) -> Figure:
    """A bar for each model in each experiment, with a dash at the paper's number."""
    from matplotlib.figure import Figure

    models = list(next(iter(ours.values())))
    with style():
        figure = Figure(figsize=(0.7 + 0.75 * len(ours), 2.2), layout="constrained")
        ax = figure.subplots()
        for i, (model, look) in enumerate(line_styles(models).items()):
            places = [k + 0.25 * (i - 1) for k in range(len(ours))]
            ax.bar(places, [values[model] for values in ours.values()], 0.22, color=look["color"], label=model)
            ax.plot(places, [paper[name][model] for name in ours], "_", color=INK, markersize=9)
        ax.plot([], [], "_", color=INK, markersize=9, label="paper")
        ax.set_xticks(range(len(ours)), [name.replace("-", "\n") for name in ours])
        ax.set_ylabel(label)
        log_axis(ax)
        figure.legend(loc="outside upper center", ncols=4)
        figure.draw_without_rendering()
    return figure
