"""𝒟: from an input function to a vector."""

from loca.encoders.encoder import Encoder as Encoder
from loca.encoders.encoder import Joined as Joined
from loca.encoders.encoder import Sensors as Sensors
from loca.encoders.encoder import Standardized as Standardized
from loca.encoders.principal import PrincipalComponents as PrincipalComponents
from loca.encoders.projection import Projection as Projection
from loca.encoders.scattering import Scattering1D as Scattering1D
from loca.encoders.scattering import Scattering2D as Scattering2D

__all__ = [
    "Encoder",
    "Joined",
    "PrincipalComponents",
    "Projection",
    "Scattering1D",
    "Scattering2D",
    "Sensors",
    "Standardized",
]
