"""Operators: LOCA, DeepONet, FNO, and what they have in common."""

from loca.models.deeponet import DeepONet as DeepONet
from loca.models.fno import FNO as FNO
from loca.models.fno import FieldAtQueries as FieldAtQueries
from loca.models.fno import SpectralLayer as SpectralLayer
from loca.models.interpolation import Grid as Grid
from loca.models.interpolation import Interpolation as Interpolation
from loca.models.loca import LOCA as LOCA
from loca.models.operator import Operator as Operator
from loca.models.separable import AtQueries as AtQueries
from loca.models.separable import SeparableOperator as SeparableOperator
from loca.models.settings import SETTINGS as SETTINGS
from loca.models.settings import Setting as Setting
from loca.models.simple import Proportional as Proportional
from loca.models.simple import Regression as Regression
from loca.models.spread import Spread as Spread
from loca.models.spread import spread as spread

__all__ = [
    "FNO",
    "LOCA",
    "SETTINGS",
    "AtQueries",
    "DeepONet",
    "FieldAtQueries",
    "Grid",
    "Interpolation",
    "Operator",
    "Proportional",
    "Regression",
    "SeparableOperator",
    "Setting",
    "SpectralLayer",
    "Spread",
    "spread",
]
