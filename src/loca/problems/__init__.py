"""The paper's experiments, computed by built-in solvers."""

from loca.problems.antiderivative import Antiderivative
from loca.problems.darcy import Darcy
from loca.problems.problem import Problem, generate, generators
from loca.problems.shallow_water import ShallowWater

PROBLEMS: dict[str, type[Problem]] = {
    "antiderivative": Antiderivative,
    "darcy": Darcy,
    "shallow-water": ShallowWater,
}
"""The experiments by their names on the command line."""

__all__ = [
    "PROBLEMS",
    "Antiderivative",
    "Darcy",
    "Problem",
    "ShallowWater",
    "generate",
]
