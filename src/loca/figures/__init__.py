"""Matplotlib figures of data, predictions, errors and attention weights, all in one style.

Besides the figures, this part exports the building blocks with which other parts draw figures of their own.
"""

from loca.figures.comparison import comparison as comparison
from loca.figures.fields import attention as attention
from loca.figures.fields import draw_predictions as draw_predictions
from loca.figures.fields import error_bars as error_bars
from loca.figures.fields import fields as fields
from loca.figures.fields import posterior as posterior
from loca.figures.fields import sheet as sheet
from loca.figures.plots import box_plots as box_plots
from loca.figures.plots import curves as curves
from loca.figures.plots import draw_boxes as draw_boxes
from loca.figures.plots import draw_line as draw_line
from loca.figures.plots import reliability as reliability
from loca.figures.style import INK as INK
from loca.figures.style import line_styles as line_styles
from loca.figures.style import log_axis as log_axis
from loca.figures.style import style as style

__all__ = [
    "INK",
    "attention",
    "box_plots",
    "comparison",
    "curves",
    "draw_boxes",
    "draw_line",
    "draw_predictions",
    "error_bars",
    "fields",
    "line_styles",
    "log_axis",
    "posterior",
    "reliability",
    "sheet",
    "style",
]
