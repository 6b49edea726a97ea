"""Measurements that anyone can repeat."""

from loca.benchmarks.prediction import PredictionFigures as PredictionFigures
from loca.benchmarks.prediction import measure_prediction as measure_prediction
from loca.benchmarks.step import STEP_SETTINGS as STEP_SETTINGS
from loca.benchmarks.step import StepTimes as StepTimes
from loca.benchmarks.step import time_step as time_step

__all__ = ["STEP_SETTINGS", "PredictionFigures", "StepTimes", "measure_prediction", "time_step"]
