"""Y: where output functions live, with their measure."""

from loca.domains.areas import area_weights as area_weights
from loca.domains.box import Box as Box
from loca.domains.domain import Domain as Domain
from loca.domains.sphere import Sphere as Sphere
from loca.domains.torus import Torus as Torus

__all__ = ["Box", "Domain", "Sphere", "Torus", "area_weights"]
