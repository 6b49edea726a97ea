"""Symmetries of operators: named or found on held-out functions, used in data and in predictions."""

from loca.symmetries.adoption import AugmentedRecords, Symmetries
from loca.symmetries.detection import Evidence, SymmetryReport, detect
from loca.symmetries.operators import Homogeneous, Symmetric
from loca.symmetries.scale import Scale
from loca.symmetries.symmetry import Frame, Symmetry, symmetry

__all__ = ["Evidence", "Homogeneous", "Scale", "Symmetric", "Symmetries", "Symmetry", "SymmetryReport", "detect"]
