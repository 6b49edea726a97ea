"""Pictures of functions and of what models make of them, as matplotlib figures in one style."""

from loca.figures.attention import attention as attention
from loca.figures.curves import curves as curves
from loca.figures.fields import fields as fields
from loca.figures.sheet import sheet as sheet
from loca.figures.spread import spread as spread

__all__ = ["attention", "curves", "fields", "sheet", "spread"]
