"""Training: the run, the state, one pure step, and data prepared for it."""

from loca.training import loggers as loggers
from loca.training.averaging import Averaged as Averaged
from loca.training.averaging import average_weights as average_weights
from loca.training.averaging import trained as trained
from loca.training.checkpoints import Checkpoints as Checkpoints
from loca.training.encoded import Encoded as Encoded
from loca.training.fit import BrokenLossError as BrokenLossError
from loca.training.fit import Progress as Progress
from loca.training.fit import fit as fit
from loca.training.history import History as History
from loca.training.history import Moment as Moment
from loca.training.interrupts import Interrupts as Interrupts
from loca.training.keeping import StoppedError as StoppedError
from loca.training.schedules import default_optimizer as default_optimizer
from loca.training.schedules import paper_optimizer as paper_optimizer
from loca.training.step import Loss as Loss
from loca.training.step import State as State
from loca.training.step import advance as advance

__all__ = [
    "Averaged",
    "BrokenLossError",
    "Checkpoints",
    "Encoded",
    "History",
    "Interrupts",
    "Loss",
    "Moment",
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
