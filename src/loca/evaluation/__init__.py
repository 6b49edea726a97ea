"""What a trained operator is worth: errors of every function, their spread, and how both change with the data."""

from loca.evaluation.baseline import mean_field as mean_field
from loca.evaluation.distribution import Distribution as Distribution
from loca.evaluation.evaluate import evaluate as evaluate
from loca.evaluation.measures import MEASURES as MEASURES
from loca.evaluation.measures import Measure as Measure
from loca.evaluation.report import Report as Report

__all__ = [
    "MEASURES",
    "Distribution",
    "Measure",
    "Report",
    "evaluate",
    "mean_field",
]
