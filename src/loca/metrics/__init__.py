"""How far predictions are from the truth, per function and output channel, in the units of the data.

All take JAX or NumPy arrays, compute in their precision, and may be compiled. Weights, where they are taken, say how
much of Y each query stands for (`loca.domains.area_weights`); a common factor of all does not matter.
"""

from loca.metrics.bands import Bands as Bands
from loca.metrics.bands import rmse_bands as rmse_bands
from loca.metrics.relative import relative_l2 as relative_l2
from loca.metrics.relative import relative_l2_squared as relative_l2_squared
from loca.metrics.skills import overall_skill as overall_skill
from loca.metrics.skills import skill as skill
from loca.metrics.spectral import spectral as spectral
from loca.metrics.units import max_absolute as max_absolute
from loca.metrics.units import rmse as rmse

__all__ = [
    "Bands",
    "max_absolute",
    "overall_skill",
    "relative_l2",
    "relative_l2_squared",
    "rmse",
    "rmse_bands",
    "skill",
    "spectral",
]
