"""Training: `fit`, the pure step behind it, optimizers, checkpoints, histories and loggers."""

from loca.training import loggers as loggers
from loca.training.fit import fit as fit
from loca.training.history import Callback as Callback
from loca.training.history import History as History
from loca.training.history import Moment as Moment
from loca.training.history import Progress as Progress
from loca.training.history import progress_bar as progress_bar
from loca.training.optimizers import average_weights as average_weights
from loca.training.optimizers import default_optimizer as default_optimizer
from loca.training.optimizers import paper_optimizer as paper_optimizer
from loca.training.recovery import BrokenLossError as BrokenLossError
from loca.training.run_directory import StoppedError as StoppedError
from loca.training.steps import Encoded as Encoded
from loca.training.steps import Loss as Loss
from loca.training.steps import State as State
from loca.training.steps import advance as advance
from loca.training.steps import trained as trained

__all__ = [
    "BrokenLossError",
    "Encoded",
    "History",
    "Progress",
    "State",
    "StoppedError",
    "advance",
    "average_weights",
    "default_optimizer",
    "fit",
    "loggers",
    "paper_optimizer",
    "trained",
]
