"""Pictures of functions: what goes in beside what comes out."""

from loca.figures.sheet import sheet as sheet

__all__ = ["sheet"]
