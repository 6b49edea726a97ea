"""What a trained operator is worth: errors of every function, their spread, and how both change with the data."""

from loca.evaluation.baseline import mean_field as mean_field
from loca.evaluation.distribution import Distribution as Distribution
from loca.evaluation.evaluate import evaluate as evaluate
from loca.evaluation.measures import MEASURES as MEASURES
from loca.evaluation.measures import Measure as Measure
from loca.evaluation.predictions import QueryGrid as QueryGrid
from loca.evaluation.predictions import predict_to as predict_to
from loca.evaluation.report import Report as Report
from loca.evaluation.scenarios import InputNoise as InputNoise
from loca.evaluation.scenarios import LabelFraction as LabelFraction
from loca.evaluation.scenarios import OtherTest as OtherTest
from loca.evaluation.scenarios import Resolution as Resolution
from loca.evaluation.scenarios import Scenario as Scenario
from loca.evaluation.study import Study as Study
from loca.evaluation.study import Trial as Trial
from loca.evaluation.study import run as run

__all__ = [
    "MEASURES",
    "Distribution",
    "InputNoise",
    "LabelFraction",
    "Measure",
    "OtherTest",
    "QueryGrid",
    "Report",
    "Resolution",
    "Scenario",
    "Study",
    "Trial",
    "evaluate",
    "mean_field",
    "predict_to",
    "run",
]
