"""The paper's experiments, from solvers of our own: nothing to download."""

from loca.problems.antiderivative import Antiderivative as Antiderivative
from loca.problems.darcy import Darcy as Darcy
from loca.problems.darcy_flow import DarcyFlow as DarcyFlow
from loca.problems.fields import GaussianProcess as GaussianProcess
from loca.problems.fields import MaternField as MaternField
from loca.problems.problem import Problem as Problem
from loca.problems.shallow_water import ShallowWater as ShallowWater

PROBLEMS: dict[str, type[Problem]] = {
    "antiderivative": Antiderivative,
    "darcy": Darcy,
    "shallow-water": ShallowWater,
}
"""The experiments by the names that the command line uses."""

__all__ = [
    "PROBLEMS",
    "Antiderivative",
    "Darcy",
    "DarcyFlow",
    "GaussianProcess",
    "MaternField",
    "Problem",
    "ShallowWater",
]
