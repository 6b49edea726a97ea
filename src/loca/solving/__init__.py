"""Solving: operators without training."""

from loca.solving.hyperparameters import Hyperparameters as Hyperparameters
from loca.solving.search import Trial as Trial
from loca.solving.solve import SolveReport as SolveReport
from loca.solving.solve import solve as solve

__all__ = ["Hyperparameters", "SolveReport", "Trial", "solve"]
