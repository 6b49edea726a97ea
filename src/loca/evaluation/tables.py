"""Reports and studies as tables, in color or plain."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from loca.evaluation.distribution import Distribution
from loca.evaluation.measures import MEASURES

if TYPE_CHECKING:
    from rich.table import Table

    from loca.evaluation.report import Report
    from loca.evaluation.study import Study

WIDTH = 140
"""Columns of a plain table."""


def report_table(report: Report) -> Table:
    """One row per metric and channel: mean, quartiles, the worst, outliers, and the reference beside it."""
    from rich.text import Text  # brackets in names and units are no markup

    weighted = ", weighted" if report.is_weighted else ""
    source = f" of {report.source}" if report.source else ""
    numbers = ["mean", "median", "quartiles", "worst", "which", "outliers"]
    references = ["reference"] if report.baseline is not None else []
    table = empty(f"Errors of {len(report)} functions{source}{weighted}", ["metric", "channel"], numbers + references)
    for metric in report.errors:
        for channel, variable in enumerate(report.outputs):
            spread = report.distribution(metric, channel)
            number = int(report.worst(metric, channel, 1)[0])
            unit = report.unit(metric, channel)
            cells = [MEASURES[metric].title, f"{variable.name} ({unit})" if unit else variable.name]
            cells += [short(spread.mean), short(spread.median)]
            cells += [f"{short(spread.lower_quartile)} – {short(spread.upper_quartile)}"]
            cells += [short(float(report.of(metric, channel)[number])), str(number), str(len(spread.outliers))]
            if report.baseline is not None and metric in report.baseline:
                cells.append(short(Distribution.of(report.baseline[metric][:, channel]).mean))
            table.add_row(*map(Text, cells))
    return table


def study_table(study: Study) -> Table:
    """One row per scenario and channel: the mean of the first metric over functions, and its spread over seeds."""
    from rich.text import Text

    first = study.trials[0].report
    metric = next(iter(first.errors))
    title = f"{MEASURES[metric].title}, mean over functions"
    table = empty(title, ["scenario", "channel"], ["seeds", "mean", "lowest", "highest"])
    for label in study.labels:
        for channel, variable in enumerate(first.outputs):
            means = [report.distribution(metric, channel).mean for report in study.reports(label)]
            numbers = (sum(means) / len(means), min(means), max(means))
            table.add_row(*map(Text, (label, variable.name, str(len(means)), *map(short, numbers))))
    return table


def empty(title: str, words: list[str], numbers: list[str]) -> Table:
    """A table without rows: columns of words, then columns of numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in words:
        table.add_column(name)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def short(value: float) -> str:
    """Three digits, which is more than errors are worth."""
    return f"{value:.3g}"


def plain(table: Table) -> str:
    """A table in letters alone."""
    from rich.console import Console

    with io.StringIO() as text:
        Console(file=text, width=WIDTH, color_system=None, force_terminal=False).print(table)
        return text.getvalue().rstrip("\n")
