"""𝒟: from an input function to a vector."""

from loca.encoders.encoder import Encoder, Joined, PrincipalComponents, Sensors, Standardized
from loca.encoders.projection import Projection
from loca.encoders.scattering import Scattering1D, Scattering2D
from loca.encoders.structure import LEAST, LONGEST, Beside, StructureTensor, along, curvature, slope, smoothing

__all__ = [
    "Beside",
    "Encoder",
    "Joined",
    "PrincipalComponents",
    "Projection",
    "Scattering1D",
    "Scattering2D",
    "Sensors",
    "Standardized",
    "StructureTensor",
]
