"""Solving: operators without training, and the choice of the best model."""

from loca.solving.choose import REPORT_FILE as REPORT_FILE
from loca.solving.choose import ChoiceReport as ChoiceReport
from loca.solving.choose import Entry as Entry
from loca.solving.choose import choose as choose
from loca.solving.choose import competitor_directory as competitor_directory
from loca.solving.competitors import fit_ridge as fit_ridge
from loca.solving.problem import Hyperparameters as Hyperparameters
from loca.solving.search import Trial as Trial
from loca.solving.solve import SolveReport as SolveReport
from loca.solving.solve import solve as solve

__all__ = [
    "REPORT_FILE",
    "ChoiceReport",
    "Entry",
    "Hyperparameters",
    "SolveReport",
    "Trial",
    "choose",
    "competitor_directory",
    "fit_ridge",
    "solve",
]
