"""Evaluation: the errors of every function, their distribution, and the mean field as a baseline."""

from loca.evaluation.evaluate import evaluate, mean_field
from loca.evaluation.lead_times import LeadTimes, evaluate_rollouts
from loca.evaluation.report import MEASURES, RELIABILITY_LEVELS, Distribution, Measure, Report, short

__all__ = ["MEASURES", "Distribution", "LeadTimes", "Report", "evaluate", "evaluate_rollouts"]
