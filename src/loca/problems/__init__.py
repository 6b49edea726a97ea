"""The paper's experiments, computed by built-in solvers."""

from loca.problems.antiderivative import Antiderivative as Antiderivative
from loca.problems.climate import Climate as Climate
from loca.problems.climate import Climatology as Climatology
from loca.problems.darcy import Darcy as Darcy
from loca.problems.mechanical_mnist import MechanicalMNIST as MechanicalMNIST
from loca.problems.problem import Problem as Problem
from loca.problems.problem import generate as generate
from loca.problems.problem import generators as generators
from loca.problems.shallow_water import ShallowWater as ShallowWater

PROBLEMS: dict[str, type[Problem]] = {
    "antiderivative": Antiderivative,
    "darcy": Darcy,
    "mechanical-mnist": MechanicalMNIST,
    "shallow-water": ShallowWater,
    "climate": Climate,
}
"""The experiments by their names on the command line."""

__all__ = [
    "PROBLEMS",
    "Antiderivative",
    "Climate",
    "Climatology",
    "Darcy",
    "MechanicalMNIST",
    "Problem",
    "ShallowWater",
    "generate",
]
