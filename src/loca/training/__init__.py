"""Training: the state, one pure step, and data prepared for it."""

from loca.training.encoded import Encoded as Encoded
from loca.training.step import Loss as Loss
from loca.training.step import State as State
from loca.training.step import advance as advance

__all__ = ["Encoded", "Loss", "State", "advance"]
