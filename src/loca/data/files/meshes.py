"""Files of meshes: one run per file, with point data as fields. They are read with meshio, and .vtu is written too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from loca.data.files.labeled import Functions, spanned
from loca.domains import Domain, Mesh, read_meshio, simplices
from loca.durable import write_atomically

if TYPE_CHECKING:
    import meshio
    import xarray

    from loca.data.files.datasets import Layout, Roles

SUFFIXES = (".vtu", ".vtk", ".msh", ".xdmf")
"""Endings of the names of these files, by which meshio recognizes them as well."""


def read_mesh(path: Path, roles: Roles) -> Layout:
    """One sample: s is all point data, unless the user says otherwise, on the nodes of the mesh, which is the domain.

    The file is read completely.
    """
    import xarray

    from loca.data.files.datasets import Layout, numbered

    mesh, sample = read_meshio(path), roles.sample or "sample"
    points = np.asarray(mesh.points, np.float64)
    axes = [i for i in range(points.shape[1]) if np.ptp(points[:, i]) > 0.0]
    coords = {"xyz"[i]: xarray.Variable("node", points[:, i]) for i in axes}
    coords["file"] = xarray.Variable(sample, [path.stem])
    parts, found = {}, {}
    for name, values in mesh.point_data.items():
        if not name.startswith("gmsh:"):
            dims = (sample, "node", "channel")[: 1 + np.ndim(values)]
            channels = numbered(name, xarray.Variable(dims, np.asarray(values)[None]))
            parts[name] = tuple(channels)
            found |= channels
    if not found:
        others = ", ".join(mesh.cell_data) or "none"
        raise ValueError(f"{path} has no point data (cell data: {others}); fields are read at the nodes, so write them")
    outputs = tuple(name for name in found if name not in roles.inputs)
    return Layout(
        xarray.Dataset(found, coords), sample, (), outputs, parts=parts, domain=lambda: domain_of(mesh, len(axes))
    )


def domain_of(mesh: meshio.Mesh, dimension: int) -> Domain | None:
    """The mesh; None if its cells do not fill the space, as those of a surface."""
    try:
        domain = Mesh(*simplices(mesh))
    except ValueError:
        return None
    return domain if domain.dimension == dimension else None


def write_vtu(found: xarray.Dataset, path: Path, domain: Domain, sample: str) -> list[Path]:
    """Write functions on nodes or points, such as predictions, as one .vtu file each, and return the paths.

    A single function is in FILE.vtu, several are in FILE_0.vtu, FILE_1.vtu, …, for programs such as ParaView.

    **Arguments:**

    - `found`: the functions; all variables with locations become point data.
    - `path`: FILE.vtu.
    - `domain`: Y; if it is a `Mesh` with these vertices, its cells are written, otherwise single points.
    - `sample`: the dimension that counts the functions.
    """
    if path.suffix != ".vtu":
        raise ValueError(f"expected a name that ends in .vtu, got {path.name}")
    import meshio

    names = [str(name) for name, array in found.data_vars.items() if spanned(array, sample)]
    functions = Functions(found, names, sample)
    count = found.sizes[sample]
    width = len(str(count - 1))
    paths = [path if count == 1 else path.with_name(f"{path.stem}_{i:0{width}d}.vtu") for i in range(count)]
    for i, file in enumerate(paths):
        values, points = functions.all_values(slice(i, i + 1))[0], functions.all_points(slice(i, i + 1))
        points = points[0] if functions.moving else points
        cells: list[tuple[str, ArrayLike] | meshio.CellBlock] = [("vertex", np.arange(len(points))[:, None])]
        vertices = np.asarray(domain.vertices) if isinstance(domain, Mesh) else np.empty(0)
        is_meshed = points.shape == vertices.shape and np.allclose(points, vertices, atol=1e-6 * np.ptp(vertices))
        if isinstance(domain, Mesh) and is_meshed:
            kind = {2: "line", 3: "triangle", 4: "tetra"}[domain.cells.shape[1]]
            cells = [(kind, np.asarray(domain.cells))]
        space = np.pad(points.astype(np.float64), ((0, 0), (0, 3 - points.shape[1])))
        data = dict(zip(names, np.ascontiguousarray(values.T), strict=True))
        mesh = meshio.Mesh(space, cells, point_data=data)
        write_atomically(file, lambda opened, mesh=mesh: meshio.write(opened.name, mesh, file_format="vtu"))
    return paths
