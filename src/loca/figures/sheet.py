"""A sheet of pairs: one function per row, its inputs on the left and its outputs on the right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loca.data import Samples
from loca.figures.columns import columns_of
from loca.figures.layout import draw_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sheet(samples: Samples, rows: int = 4) -> Figure:
    """The first functions of some data, one per row: every input channel, then every output channel.

    Curves have axes of their own. The fields of a column share one color scale: viridis, or a diverging map centered
    at 0 where values are signed. Two channels named like the components of a vector are drawn as one: arrows over
    its size, or the deformed grid if the name says displacement. Fields on the sphere are maps; fields with one more
    coordinate are shown at up to three of its values.

    **Arguments:**

    - `samples`: the data.
    - `rows`: how many functions.
    """
    if rows < 1:
        raise ValueError(f"a sheet needs at least one row, got rows={rows}")
    return draw_columns(columns_of(samples, rows), min(rows, len(samples)))
