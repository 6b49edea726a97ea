"""Learn maps between functions from few, noisy measurements, and ask them anywhere."""

from importlib.metadata import version as _version

from loca import attention as attention
from loca import checks as checks
from loca import data as data
from loca import devices as devices
from loca import domains as domains
from loca import encoders as encoders
from loca import evaluation as evaluation
from loca import figures as figures
from loca import kernels as kernels
from loca import losses as losses
from loca import metrics as metrics
from loca import models as models
from loca import nets as nets
from loca import parameters as parameters
from loca import positions as positions
from loca import prediction as prediction
from loca import problems as problems
from loca import rules as rules
from loca import saving as saving
from loca import training as training
from loca.data import Samples as Samples
from loca.evaluation import evaluate as evaluate
from loca.models import FNO as FNO
from loca.models import LOCA as LOCA
from loca.models import DeepONet as DeepONet
from loca.models import Operator as Operator
from loca.saving import load as load
from loca.saving import save as save
from loca.training import fit as fit

__version__ = _version("loca-jax")

__all__ = [
    "FNO",
    "LOCA",
    "DeepONet",
    "Operator",
    "Samples",
    "attention",
    "checks",
    "data",
    "devices",
    "domains",
    "encoders",
    "evaluate",
    "evaluation",
    "figures",
    "fit",
    "kernels",
    "load",
    "losses",
    "metrics",
    "models",
    "nets",
    "parameters",
    "positions",
    "prediction",
    "problems",
    "rules",
    "save",
    "saving",
    "training",
]
