"""Sensitivities: training with derivatives from a solver, and Sobol indices of the inputs.

Derivatives themselves are methods of every operator: `jvp`, `vjp`, `gradient` and `dy`.
"""

from loca.sensitivity.sobol import SobolIndices as SobolIndices
from loca.sensitivity.sobol import sobol as sobol
from loca.sensitivity.tangent import Tangent as Tangent
from loca.sensitivity.tangent import tangents as tangents

__all__ = ["SobolIndices", "Tangent", "sobol", "tangents"]
