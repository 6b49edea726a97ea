"""The Gaussian operator: a Gaussian process over pairs (u, y), which is solved for instead of trained."""

from loca.gaussian.adoption import is_auto
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.operator import Conditions, GaussianOperator
from loca.gaussian.search import Trial, transforms_to_try
from loca.gaussian.solve import SolveReport, solve

__all__ = ["GaussianOperator", "Hyperparameters", "SolveReport", "solve"]
