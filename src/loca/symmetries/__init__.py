"""Symmetries of operators: named or found on held-out functions, used in data and in predictions."""

from loca.symmetries.adoption import AugmentedRecords as AugmentedRecords
from loca.symmetries.adoption import Symmetries as Symmetries
from loca.symmetries.detection import Evidence as Evidence
from loca.symmetries.detection import SymmetryReport as SymmetryReport
from loca.symmetries.detection import detect as detect
from loca.symmetries.operators import Homogeneous as Homogeneous
from loca.symmetries.operators import Symmetric as Symmetric
from loca.symmetries.scale import Scale as Scale
from loca.symmetries.symmetry import Frame as Frame
from loca.symmetries.symmetry import Symmetry as Symmetry
from loca.symmetries.symmetry import symmetry as symmetry

__all__ = ["Evidence", "Homogeneous", "Scale", "Symmetric", "Symmetries", "Symmetry", "SymmetryReport", "detect"]
