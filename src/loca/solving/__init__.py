"""Solving: operators in closed form or by conjugate gradients, without training."""

from loca.solving.solve import Hyperparameters as Hyperparameters
from loca.solving.solve import SolveReport as SolveReport
from loca.solving.solve import solve as solve

__all__ = ["Hyperparameters", "SolveReport", "solve"]
