"""Inversion: inputs that explain observations, where to observe next, and which inputs to simulate next."""

from loca.inversion.design import Acquisition as Acquisition
from loca.inversion.design import Design as Design
from loca.inversion.design import acquire as acquire
from loca.inversion.design import design as design
from loca.inversion.errors import surrogate_covariance as surrogate_covariance
from loca.inversion.invert import invert as invert
from loca.inversion.posterior import Diagnostics as Diagnostics
from loca.inversion.posterior import Posterior as Posterior
from loca.inversion.prior import InversionWarning as InversionWarning
from loca.inversion.prior import Prior as Prior

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
