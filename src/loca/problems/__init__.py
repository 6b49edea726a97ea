"""The paper's experiments, from solvers of our own: nothing to download."""

from loca.problems.problem import Problem as Problem

__all__ = ["Problem"]
