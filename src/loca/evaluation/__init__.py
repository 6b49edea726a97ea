"""Evaluation: the errors of every function, their distribution, and the mean field as a baseline."""

from loca.evaluation.evaluate import evaluate as evaluate
from loca.evaluation.evaluate import mean_field as mean_field
from loca.evaluation.report import MEASURES as MEASURES
from loca.evaluation.report import RELIABILITY_LEVELS as RELIABILITY_LEVELS
from loca.evaluation.report import Distribution as Distribution
from loca.evaluation.report import Measure as Measure
from loca.evaluation.report import Report as Report
from loca.evaluation.report import short as short

__all__ = ["MEASURES", "Distribution", "Report", "evaluate"]
