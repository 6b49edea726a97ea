"""e(y): features of a location, one encoding per kind of domain."""

from loca.positions.defaults import position_on as position_on
from loca.positions.harmonic import Harmonic as Harmonic
from loca.positions.periodic import Periodic as Periodic
from loca.positions.position import Position as Position
from loca.positions.spherical import Spherical as Spherical

__all__ = ["Harmonic", "Periodic", "Position", "Spherical", "position_on"]
