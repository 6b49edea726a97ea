"""Y: where output functions live, with their measure."""

from loca.domains.domain import Domain as Domain
from loca.domains.domain import OutsideDomainWarning as OutsideDomainWarning
from loca.domains.domain import area_weights as area_weights
from loca.domains.domain import domain_from_json as domain_from_json
from loca.domains.domain import grid as grid
from loca.domains.domain import warn_outside as warn_outside
from loca.domains.flat import Box as Box
from loca.domains.flat import Torus as Torus
from loca.domains.mesh import Mesh as Mesh
from loca.domains.mesh import read_meshio as read_meshio
from loca.domains.mesh import simplices as simplices
from loca.domains.sphere import Sphere as Sphere
from loca.domains.sphere import embed as embed
from loca.domains.sphere import unit_vectors as unit_vectors

__all__ = [
    "Box",
    "Domain",
    "Mesh",
    "OutsideDomainWarning",
    "Sphere",
    "Torus",
    "area_weights",
    "domain_from_json",
    "grid",
]
