"""The paper's experiments, computed by built-in solvers."""

from loca.problems.antiderivative import Antiderivative
from loca.problems.climate import Climate, Climatology
from loca.problems.darcy import Darcy
from loca.problems.mechanical_mnist import MechanicalMNIST
from loca.problems.problem import Problem, generate, generators
from loca.problems.shallow_water import ShallowWater

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
