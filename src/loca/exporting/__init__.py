"""Programs for other software: models as StableHLO and ONNX files that run without this package."""

from loca.exporting.artifact import SUFFIXES as SUFFIXES
from loca.exporting.artifact import Artifact as Artifact
from loca.exporting.artifact import read_artifact as read_artifact
from loca.exporting.export import TOLERANCE as TOLERANCE
from loca.exporting.export import compare as compare
from loca.exporting.export import export as export
from loca.exporting.program import Program as Program

__all__ = [
    "Artifact",
    "compare",
    "export",
    "read_artifact",
]
