"""Inversion: inputs that explain observations, where to observe next, and which inputs to simulate next."""

from loca.inversion.design import Acquisition, Design, acquire, design
from loca.inversion.errors import surrogate_covariance
from loca.inversion.invert import Diagnostics, Posterior, invert
from loca.inversion.prior import InversionWarning, Prior

__all__ = [
    "Acquisition",
    "Design",
    "InversionWarning",
    "Posterior",
    "Prior",
    "acquire",
    "design",
    "invert",
    "surrogate_covariance",
]
