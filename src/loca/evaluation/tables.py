"""Tables that fit into 80 columns, in color or in plain text."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from loca.data import Variable

WIDTH = 80
"""Columns of a plain table."""

Row = list[str]


def stacked(title: str, heads: Row, channels: Sequence[Variable], blocks: list[list[Row]]) -> Table:
    """One table per channel, one below the other, with columns of equal widths."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text  # brackets in names and units are not markup

    widths = [max(map(len, column)) for column in zip(heads, *(row for block in blocks for row in block), strict=True)]
    whole = Table.grid()
    whole.add_row(Text(title, style="italic"))
    for variable, block in zip(channels, blocks, strict=True):
        whole.add_row("")
        name = f"{variable.name} ({variable.unit})" if variable.unit else variable.name
        whole.add_row(Text(name, style="bold"))
        table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column(heads[0])  # on a narrow terminal words wrap, numbers do not
        for head, width in zip(heads[1:], widths[1:], strict=True):
            table.add_column(head, min_width=width, justify="right", no_wrap=True)
        for row in block:
            table.add_row(*map(Text, row))
        whole.add_row(table)
    return whole


def short(value: float) -> str:
    """A number with three digits in at most seven characters: 0.0312, 1230, 1.23e-4."""
    rounded = float(f"{value:.3g}")
    if rounded == 0.0 or 1e-3 <= abs(rounded) < 1e3 or not math.isfinite(rounded):
        return f"{rounded:g}"
    if 1e3 <= abs(rounded) < 1e6:
        return f"{rounded:.0f}"
    digits, exponent = f"{rounded:.2e}".split("e")
    return f"{digits}e{int(exponent)}"


def plain(table: Table) -> str:
    """A table as plain text."""
    from rich.console import Console

    with io.StringIO() as text:
        Console(file=text, width=WIDTH, color_system=None, force_terminal=False).print(table)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
