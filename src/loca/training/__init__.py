"""Training: `fit`, the pure step behind it, optimizers, checkpoints, histories and loggers."""

from loca.training.checkpoints import StoppedError as StoppedError
from loca.training.fit import fit as fit
from loca.training.history import History as History
from loca.training.history import Moment as Moment
from loca.training.history import Progress as Progress
from loca.training.history import every_few_seconds as every_few_seconds
from loca.training.history import show_training as show_training
from loca.training.loggers import Logger as Logger
from loca.training.optimizers import average_weights as average_weights
from loca.training.optimizers import default_optimizer as default_optimizer
from loca.training.optimizers import paper_optimizer as paper_optimizer
from loca.training.steps import BrokenLossError as BrokenLossError
from loca.training.steps import Encoded as Encoded
from loca.training.steps import Loss as Loss
from loca.training.steps import State as State
from loca.training.steps import advance as advance
from loca.training.steps import trained as trained

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
