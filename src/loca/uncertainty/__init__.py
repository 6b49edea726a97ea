"""Uncertainty: ensembles, networks with a standard deviation, calibrated bands, and inputs unlike the training data."""

from loca.uncertainty.calibrated import Calibrated, Quantiles, calibrate
from loca.uncertainty.ensemble import Ensemble
from loca.uncertainty.familiarity import ALARM, Familiarity, UnfamiliarInputWarning, warn_unfamiliar
from loca.uncertainty.forecasts import calibrate_rollouts
from loca.uncertainty.probabilistic import Probabilistic

__all__ = [
    "ALARM",
    "Calibrated",
    "Ensemble",
    "Probabilistic",
    "UnfamiliarInputWarning",
    "calibrate",
    "calibrate_rollouts",
]
