"""Uncertainty: ensembles, networks with a standard deviation, calibrated bands, and inputs unlike the training data."""

from loca.uncertainty.calibrated import Calibrated as Calibrated
from loca.uncertainty.calibrated import Quantiles as Quantiles
from loca.uncertainty.calibrated import calibrate as calibrate
from loca.uncertainty.ensemble import Ensemble as Ensemble
from loca.uncertainty.familiarity import ALARM as ALARM
from loca.uncertainty.familiarity import Familiarity as Familiarity
from loca.uncertainty.familiarity import UnfamiliarInputWarning as UnfamiliarInputWarning
from loca.uncertainty.familiarity import warn_unfamiliar as warn_unfamiliar
from loca.uncertainty.probabilistic import Probabilistic as Probabilistic

__all__ = ["ALARM", "Calibrated", "Ensemble", "Probabilistic", "UnfamiliarInputWarning", "calibrate"]
