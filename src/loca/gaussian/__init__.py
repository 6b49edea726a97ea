"""The Gaussian operator: a Gaussian process over pairs (u, y), which is solved for instead of trained."""

from loca.gaussian.adoption import is_auto as is_auto
from loca.gaussian.hyperparameters import Hyperparameters as Hyperparameters
from loca.gaussian.operator import Conditions as Conditions
from loca.gaussian.operator import GaussianOperator as GaussianOperator
from loca.gaussian.search import Trial as Trial
from loca.gaussian.search import transforms_to_try as transforms_to_try
from loca.gaussian.solve import SolveReport as SolveReport
from loca.gaussian.solve import solve as solve

__all__ = ["GaussianOperator", "Hyperparameters", "SolveReport", "solve"]
