"""What is the same at every place: regression on features of a neighborhood, operators it corrects, steps of time."""

from loca.local.corrections import Corrected, CorrectionReport, check_correctable, correct, is_on_grid
from loca.local.steps import LocalStep, StepReport, solve_steps

__all__ = ["Corrected", "CorrectionReport", "LocalStep", "StepReport", "correct"]
