"""Training: `fit`, the pure step behind it, optimizers, checkpoints, histories and loggers."""

from loca.training.checkpoints import StoppedError
from loca.training.fit import fit
from loca.training.history import History, Moment, Progress, show_progress, show_training
from loca.training.loggers import Logger
from loca.training.optimizers import average_weights, default_optimizer, paper_optimizer
from loca.training.steps import BrokenLossError, Encoded, State, advance, trained

__all__ = [
    "BrokenLossError",
    "Encoded",
    "History",
    "Logger",
    "Progress",
    "State",
    "StoppedError",
    "advance",
    "average_weights",
    "default_optimizer",
    "fit",
    "paper_optimizer",
    "trained",
]
