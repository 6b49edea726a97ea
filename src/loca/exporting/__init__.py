"""Programs for other software: models as StableHLO and ONNX files that run without this package."""

from loca.exporting.artifact import SUFFIXES, Artifact, read_artifact
from loca.exporting.export import TOLERANCE, compare, export
from loca.exporting.program import Program

__all__ = [
    "Artifact",
    "compare",
    "export",
    "read_artifact",
]
