"""𝒟: from an input function to a vector."""

from loca.encoders.composed import Joined as Joined
from loca.encoders.composed import Scalars as Scalars
from loca.encoders.composed import Standardized as Standardized
from loca.encoders.encoder import Encoder as Encoder
from loca.encoders.encoder import HarmonicSensors as HarmonicSensors
from loca.encoders.encoder import Sensors as Sensors
from loca.encoders.fourier import Fourier as Fourier
from loca.encoders.principal import PrincipalComponents as PrincipalComponents
from loca.encoders.projection import Projection as Projection
from loca.encoders.scattering1d import Band as Band
from loca.encoders.scattering1d import Scattering1D as Scattering1D
from loca.encoders.scattering2d import Axis as Axis
from loca.encoders.scattering2d import Scattering2D as Scattering2D
from loca.encoders.wavelet import Wavelet as Wavelet

__all__ = [
    "Axis",
    "Band",
    "Encoder",
    "Fourier",
    "HarmonicSensors",
    "Joined",
    "PrincipalComponents",
    "Projection",
    "Scalars",
    "Scattering1D",
    "Scattering2D",
    "Sensors",
    "Standardized",
    "Wavelet",
]
