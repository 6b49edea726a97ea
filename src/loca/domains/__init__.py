"""Y: where output functions live, with their measure."""

from loca.domains.domain import (
    Box,
    Domain,
    OutsideDomainWarning,
    Torus,
    area_weights,
    domain_from_json,
    grid,
    warn_outside,
)
from loca.domains.mesh import Mesh, read_meshio, simplices
from loca.domains.sphere import Sphere, embed, unit_vectors

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
