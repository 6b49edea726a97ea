"""Matplotlib figures of data, predictions, errors and attention weights, all in one style.

Besides the figures, this part exports the building blocks with which other parts draw figures of their own.
"""

from loca.figures.fields import attention, draw_predictions, error_bars, fields, posterior, sheet
from loca.figures.plots import box_plots, comparison, curves, draw_boxes, draw_line, reliability
from loca.figures.rollouts import animation, lead_times, over_time, spectra
from loca.figures.style import INK, line_styles, log_axis, style

__all__ = [
    "INK",
    "animation",
    "attention",
    "box_plots",
    "comparison",
    "curves",
    "draw_boxes",
    "draw_line",
    "draw_predictions",
    "error_bars",
    "fields",
    "lead_times",
    "line_styles",
    "log_axis",
    "over_time",
    "posterior",
    "reliability",
    "sheet",
    "spectra",
    "style",
]
