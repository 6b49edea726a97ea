"""Reports and studies as tables that fit into 80 columns, in color or plain."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from loca.evaluation.distribution import Distribution
from loca.evaluation.measures import BANDS, MEASURES

if TYPE_CHECKING:
    from rich.table import Table

    from loca.data import Variable
    from loca.evaluation.report import Report

WIDTH = 80
"""Columns of a plain table."""

Row = list[str]


def report_table(report: Report) -> Table:
    """For each channel one row per metric: mean, quartiles, the worst and its number in the data, outliers.

    Parts of the RMSE are set in below it, and the errors of a reference field below those of the model.
    """
    weighted = ", weighted" if report.is_weighted else ""
    source = f" of {report.source}" if report.source else ""
    title = f"Errors of {len(report)} functions{source}{weighted}"
    heads = ["", "mean", "25 %", "median", "75 %", "worst", "outliers"]
    return stacked(title, heads, report.outputs, [list(report_rows(report, c)) for c in range(len(report.outputs))])


def report_rows(report: Report, channel: int) -> Iterator[Row]:
    """What a report says of a channel."""
    for metric in report.errors:
        is_part = metric in BANDS and "rmse" in report.errors
        inset, name = ("  ", MEASURES[metric].title.removeprefix("RMSE, ")) if is_part else ("", MEASURES[metric].title)
        found = report.distribution(metric, channel)
        number = int(report.worst(metric, channel, 1)[0])
        worst = f"{short(float(report.of(metric, channel)[number]))} (#{number})"
        yield [inset + name, *middle(found), worst, str(len(found.outliers))]
        if report.baseline is not None and metric in report.baseline:
            yield [f"{inset}  reference", *middle(Distribution.of(report.baseline[metric][:, channel])), "", ""]


def middle(found: Distribution) -> Row:
    """Mean and quartiles."""
    return [short(value) for value in (found.mean, found.lower_quartile, found.median, found.upper_quartile)]


def stacked(title: str, heads: Row, channels: Sequence[Variable], blocks: list[list[Row]]) -> Table:
    """One table for each channel, with columns of the same widths, one below the other."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text  # brackets in names and units are no markup

    widths = [max(map(len, column)) for column in zip(heads, *(row for block in blocks for row in block), strict=True)]
    whole = Table.grid()
    whole.add_row(Text(title, style="italic"))
    for variable, block in zip(channels, blocks, strict=True):
        whole.add_row("")
        name = f"{variable.name} ({variable.unit})" if variable.unit else variable.name
        whole.add_row(Text(name, style="bold"))
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column(heads[0])  # where a terminal is narrow, words go on in the next line, but no number does
        for head, width in zip(heads[1:], widths[1:], strict=True):
            table.add_column(head, min_width=width, justify="right", no_wrap=True)
        for row in block:
            table.add_row(*map(Text, row))
        whole.add_row(table)
    return whole


def short(value: float) -> str:
    """Three digits, which is more than errors are worth, in at most seven letters: 0.0312, 1230, 1.23e-4."""
    rounded = float(f"{value:.3g}")
    if rounded == 0.0 or 1e-3 <= abs(rounded) < 1e3 or not math.isfinite(rounded):
        return f"{rounded:g}"
    if 1e3 <= abs(rounded) < 1e6:
        return f"{rounded:.0f}"
    digits, exponent = f"{rounded:.2e}".split("e")
    return f"{digits}e{int(exponent)}"


def plain(table: Table) -> str:
    """A table in letters alone."""
    from rich.console import Console

    with io.StringIO() as text:
        Console(file=text, width=WIDTH, color_system=None, force_terminal=False).print(table)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
