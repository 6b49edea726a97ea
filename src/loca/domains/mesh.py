"""Domains of any shape, made of cells."""

import base64
import contextlib
import io
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Float, Int

from loca.domains.domain import Box, Domain, grid
from loca.domains.sphere import edges_between

ROUNDING = 1e-6
"""How far apart, relative to the extent of a mesh, locations in single precision may be that stand for the same one."""

Corners = Float[np.ndarray, "C k d"]
"""The k = d + 1 corners of C simplices in d dimensions."""

AT_ONCE = 4096
"""Number of locations that are searched for at once; a few times as many pairs of locations and cells are in memory."""

SPLITS: dict[str, tuple[tuple[int, ...], ...]] = {
    "line": ((0, 1),),
    "triangle": ((0, 1, 2),),
    "quad": ((0, 1, 2), (0, 2, 3)),
    "tetra": ((0, 1, 2, 3),),
    "pyramid": ((0, 1, 2, 4), (0, 2, 3, 4)),
    "wedge": ((0, 1, 2, 5), (0, 1, 5, 4), (0, 4, 5, 3)),
    "hexahedron": ((0, 1, 2, 6), (0, 1, 5, 6), (0, 3, 2, 6), (0, 3, 7, 6), (0, 4, 5, 6), (0, 4, 7, 6)),
}
"""The corners of the simplices that make up a cell, by its name in meshio. Cells of higher order begin with the same
corners."""


class Mesh(Domain):
    """Y = ∪ C_k, a union of segments, triangles or tetrahedra, with Lebesgue measure; it may have holes and corners.

    A cell has weight |C_k|, so nothing outside of Y has any. Data at the vertices is weighted by their share of the
    adjacent cells (lumped masses), data at the centers of cells by the cells.

    A shape that is not given by cells comes from points (`from_points`), from a mask on a grid (`from_mask`), or from a
    file (`read`).

    **Arguments:**

    - `vertices`: V locations.
    - `cells`: for every cell the numbers of its d_y + 1 corners. Cells must not overlap.
    - `measures`: |C_k|; computed from the vertices, in double precision, unless given.
    """

    vertices: Float[Array, "V d_y"]
    cells: Int[Array, "C corners"]
    measures: Float[Array, " C"]  # |C_k|
    total: float = eqx.field(static=True)  # |Y|
    is_meshed = True

    def __init__(self, vertices: Any, cells: Any, measures: Any = None):
        points, corners = np.asarray(vertices, np.float64), np.asarray(cells)
        if points.ndim != 2 or corners.shape[1:] != (points.shape[-1] + 1,) or corners.dtype.kind not in "iu":
            raise ValueError(
                f"expected vertices of shape (V, d) and cells of shape (C, d + 1) that number them, got {points.shape} "
                f"and {corners.shape} of type {corners.dtype}; `Mesh.read` also splits other cells into simplices"
            )
        if corners.min(initial=0) < 0 or corners.max(initial=0) >= len(points):
            found = f"{len(corners)} cells with numbers {corners.min()} to {corners.max()}"
            raise ValueError(f"expected cells with numbers of vertices from 0 to {len(points) - 1}, got {found}")
        sizes = measures_of(points[corners]) if measures is None else np.asarray(measures, np.float64)
        if sizes.shape != corners.shape[:1] or not np.isfinite(sizes).all() or not (sizes > 0.0).any():
            raise ValueError(f"the {len(corners)} cells have no finite positive measure; check vertices and corners")
        self.vertices = jnp.asarray(points, dtype=float)
        self.cells = jnp.asarray(corners[sizes > 0.0], dtype=jnp.int32)
        self.measures = jnp.asarray(sizes[sizes > 0.0], dtype=float)
        self.total = float(np.asarray(self.measures, np.float64).sum())

    @classmethod
    def from_points(cls, points: Any, alpha: float = 2.0) -> "Mesh":
        """The shape of a point cloud: the simplices of its Delaunay triangulation that are not too large (α-shape).

        A simplex belongs to Y if the radius of its circumsphere is at most `alpha` times the local spacing, that is the
        distance from one of its corners to the 2·d_y-th nearest point. Holes and inlets wider than a few spacings stay
        open. For points that are much denser in one direction than in another, as in a boundary layer, pass cells.

        **Arguments:**

        - `points`: locations, in two or three dimensions; they are the vertices.
        - `alpha`: larger values close larger holes.
        """
        locations = np.asarray(points, np.float64)
        count, dimension = locations.shape
        cells = scipy.spatial.Delaunay(locations).simplices.astype(np.int64)
        neighbors = min(2 * dimension, count - 1)
        spacing = scipy.spatial.KDTree(locations).query(locations, k=neighbors + 1)[0][:, -1]
        cells = cells[circumradii(locations[cells]) <= alpha * spacing[cells].max(axis=1)]
        if alone := count - len(np.unique(cells)):
            raise ValueError(
                f"{alone} of {count} points belong to no cell with alpha={alpha}: their spacing differs much between "
                "directions, or points occur twice; pass a larger `alpha`, or pass cells to `Mesh`"
            )
        return cls(locations, cells)

    @classmethod
    def from_mask(cls, mask: Any, axes: Sequence[Any]) -> "Mesh":
        """The part of a grid where a mask is true; every grid point stands for the cell around it.

        **Arguments:**

        - `mask`: true in Y, one axis per dimension.
        - `axes`: the coordinates of the grid points along each axis.
        """
        mask, axes = np.asarray(mask, bool), [np.asarray(axis, np.float64) for axis in axes]
        if mask.shape != tuple(len(axis) for axis in axes) or min(mask.shape) < 2:
            sizes = [len(axis) for axis in axes]
            raise ValueError(f"expected an axis of two coordinates or more per dimension, got {mask.shape} and {sizes}")
        edges = [edges_between(axis) for axis in axes]  # halfway to the neighbors
        strides = np.cumprod([1, *(len(edge) for edge in reversed(edges[1:]))])[::-1]
        lowest = np.argwhere(mask) @ strides
        # the simplices of a box are the paths along its edges from the lowest corner to the highest
        paths = [np.cumsum([0, *(strides[i] for i in order)]) for order in itertools.permutations(range(mask.ndim))]
        cells = (lowest[:, None, None] + np.stack(paths)).reshape(-1, mask.ndim + 1)
        used, numbers = np.unique(cells, return_inverse=True)
        return cls(grid(*edges)[used], numbers.reshape(cells.shape))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Mesh":
        """The mesh in a file: VTK (.vtu), Gmsh (.msh), XDMF (.xdmf) and other formats of meshio.

        Quadrilaterals, hexahedra, prisms and pyramids are split into simplices. The vertices are all points of the
        file, in its order; a coordinate that does not vary is left out.
        """
        return cls(*simplices(read_meshio(path)))

    def __repr__(self) -> str:
        return f"Mesh({len(self.vertices)} vertices, {len(self.cells)} cells, {self.dimension}-dimensional)"

    @property
    def dimension(self) -> int:
        return self.vertices.shape[1]

    @property
    def volume(self) -> float:
        return self.total

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        corners = self._corners().reshape(-1, self.dimension)
        return tuple(zip(corners.min(axis=0).tolist(), corners.max(axis=0).tolist(), strict=True))

    @property
    def chart(self) -> Domain:
        low, high = zip(*self.bounds, strict=True)
        return Box(low, high)

    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        """t₁ chooses a cell in proportion to its measure; its remainder and the other coordinates, a point in it."""
        shares = self.measures / jnp.sum(self.measures)
        ends = jnp.cumsum(shares)
        cell = jnp.clip(jnp.searchsorted(ends, t[..., 0], side="right"), 0, len(ends) - 1)
        first = (t[..., 0] - (ends - shares)[cell]) / shares[cell]
        inside = jnp.clip(jnp.concatenate([first[..., None], t[..., 1:]], axis=-1), 0.0, 1.0)
        left, parts = jnp.ones_like(first), []
        for i in range(self.dimension):  # breaking a stick: the rest of length λ has measure λ^(d − i)
            rest = left * inside[..., i] ** (1.0 / (self.dimension - i))
            parts.append(left - rest)
            left = rest
        return jnp.einsum("...k,...kd->...d", jnp.stack([*parts, left], axis=-1), self.vertices[self.cells[cell]])

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        raise ValueError(f"the map from the unit cube to {self} has no inverse here; use that of its `chart`")

    def contains(self, y: Float[np.ndarray, "P d_y"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        """Whether each location lies in a cell, or outside by at most `tolerance` times the extent of the mesh."""
        inside = np.zeros(len(y), bool)
        places, _ = containing(self._corners(), np.asarray(y, np.float64), (tolerance + ROUNDING) * self._extent())
        inside[places] = True
        return inside

    def area_weights(self, y: Float[np.ndarray, "M d_y"]) -> Float[np.ndarray, " M"]:
        """Every cell is divided equally among the locations in it; one without any belongs to the nearest location.

        So all vertices together have their lumped masses, and the centers of all cells the measures of the cells. A
        location outside of Y has weight zero.
        """
        cells, measures = np.asarray(self.cells), np.asarray(self.measures, np.float64)
        distance, vertex = self._nearest_vertex(y)
        used = np.isin(vertex, cells)
        # a vertex is found by its number: its rounded coordinates may lie in other cells where cells are thin
        matched = np.flatnonzero(used & (distance <= ROUNDING * self._extent()))
        others = np.setdiff1d(np.arange(len(y)), matched)
        numbers = np.repeat(np.arange(len(cells)), cells.shape[1])
        around = scipy.sparse.coo_array(
            (np.ones(cells.size), (cells.ravel(), numbers)), (len(self.vertices), len(cells))
        ).tocsr()
        adjacent = around[vertex[matched]].tocoo()
        inner, inside = containing(self._corners(), y[others], ROUNDING * self._extent())
        places = np.concatenate([matched[adjacent.row], others[inner]])
        owners = np.concatenate([adjacent.col, inside])
        if not len(places):
            raise ValueError(f"none of the {len(y)} locations lies in {self}; check the order and units of coordinates")
        counts = np.bincount(owners, minlength=len(cells))
        weights = np.bincount(places, (measures / np.maximum(counts, 1))[owners], minlength=len(y))
        empty = np.flatnonzero(counts == 0)
        if len(empty):
            present = np.unique(places)
            nearest = scipy.spatial.KDTree(y[present]).query(self._corners()[empty].mean(axis=1))[1]
            weights += np.bincount(present[nearest], measures[empty], minlength=len(y))
        return weights / weights.sum()

    def partition(self, count: int) -> tuple[Float[np.ndarray, "Q d_y"], Float[np.ndarray, " Q"]]:
        """A location in each of `count` to 2·`count` parts of nearly equal measure, and the measures of the parts.

        Cells larger than |Y|/`count` are bisected, and a part is one cell with its centroid: exact for linear
        functions, of order two for smooth ones. If there are more than 2·`count` cells, a part consists of several, and
        its location is the centroid of the one nearest to the middle of the part.
        """
        corners, measures = self._corners(), np.asarray(self.measures, np.float64)
        limit = (1.0 + ROUNDING) * measures.sum() / count
        while (large := measures > limit).any():
            corners = np.concatenate([corners[~large], bisected(corners[large])])
            measures = np.concatenate([measures[~large], 0.5 * measures[large], 0.5 * measures[large]])
        middles = corners.mean(axis=1)
        if len(middles) <= 2 * count:
            return middles, measures
        nodes, weights = [], []
        for rows in groups(middles, measures, count):
            weights.append(measures[rows].sum())
            middle = measures[rows] @ middles[rows] / weights[-1]
            nodes.append(middles[rows[np.argmin(np.linalg.norm(middles[rows] - middle, axis=1))]])
        return np.stack(nodes), np.array(weights)

    def triangles(self, y: Float[np.ndarray, "M d_y"]) -> Int[np.ndarray, "T 3"] | None:
        if self.dimension != 2:
            return None
        distance, vertex = self._nearest_vertex(y)
        if distance.max() > ROUNDING * self._extent() or len(np.unique(vertex)) < len(y):
            return None
        place = np.full(len(self.vertices), -1)
        place[vertex] = np.arange(len(y))
        found = place[np.asarray(self.cells)]
        complete = found[(found >= 0).all(axis=1)]
        return complete if len(np.unique(complete)) == len(y) else None

    def to_json(self) -> dict[str, Any]:
        """The arrays bit for bit, in base64."""
        arrays = {name: np.asarray(getattr(self, name)) for name in ("vertices", "cells", "measures")}
        return {"type": "Mesh"} | {
            name: {"dtype": a.dtype.str, "shape": list(a.shape), "base64": base64.b64encode(a.tobytes()).decode()}
            for name, a in arrays.items()
        }

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> "Mesh":
        arrays = {
            name: np.frombuffer(base64.b64decode(part["base64"]), part["dtype"]).reshape(part["shape"])
            for name, part in description.items()
            if name != "type"
        }
        return cls(**arrays)

    def _corners(self) -> Float[np.ndarray, "C corners d_y"]:
        return np.asarray(self.vertices, np.float64)[np.asarray(self.cells)]

    def _nearest_vertex(self, y: Float[np.ndarray, "M d_y"]) -> tuple[Float[np.ndarray, " M"], Int[np.ndarray, " M"]]:
        """The distance to the nearest vertex, and its number."""
        distances, numbers = scipy.spatial.KDTree(np.asarray(self.vertices, np.float64)).query(y)
        return np.asarray(distances), np.asarray(numbers)

    def _extent(self) -> float:
        return max(b - a for a, b in self.bounds)


# ---- simplices -------------------------------------------------------------------------------------------------------


def measures_of(corners: Corners) -> Float[np.ndarray, " C"]:
    """|det(v₁ − v₀, …, v_d − v₀)| / d!: lengths, areas or volumes."""
    edges = corners[:, 1:] - corners[:, :1]
    return np.abs(np.linalg.det(edges)) / math.factorial(corners.shape[-1])


def containing(
    corners: Corners, y: Float[np.ndarray, "P d"], slack: float
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """All pairs (location, cell) where the location lies in the cell, or outside by at most `slack`.

    Cells are searched by their size, so that the large cells of a graded mesh are not compared with every location
    near the small ones.
    """
    middles = corners.mean(axis=1)
    radii = np.linalg.norm(corners - middles[:, None], axis=-1).max(axis=1)
    # barycentric coordinates are λ(y) = ∇λ y + λ(0)
    inverse = np.linalg.inv(np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2))
    slopes = np.concatenate([-inverse.sum(axis=1, keepdims=True), inverse], axis=1)
    constants = np.eye(corners.shape[1])[0] - np.einsum("ckd,cd->ck", slopes, corners[:, 0])
    margins = -slack * np.linalg.norm(slopes, axis=-1)  # λ falls by |∇λ| per unit of distance
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    octave = np.floor(np.log2(radii / radii.min()))
    for cells in (np.flatnonzero(octave == each) for each in np.unique(octave)):
        tree = scipy.spatial.KDTree(middles[cells])
        for start in range(0, len(y), AT_ONCE):
            near = tree.query_ball_point(y[start : start + AT_ONCE], radii[cells].max() + slack, return_sorted=False)
            counts = np.array([len(each) for each in near])
            places = start + np.repeat(np.arange(len(near)), counts)
            candidates = cells[np.concatenate([np.asarray(each, np.int64) for each in near])]
            coordinates = np.einsum("pkd,pd->pk", slopes[candidates], y[places]) + constants[candidates]
            inside = np.all(coordinates >= margins[candidates], axis=1)
            found.append((places[inside], candidates[inside]))
    places, cells = zip(*found, strict=True)
    return np.concatenate(places), np.concatenate(cells)


def bisected(corners: Corners) -> Float[np.ndarray, "2*C k d"]:
    """Both halves of every simplex, cut at the middle of its longest edge."""
    pairs = np.array(list(itertools.combinations(range(corners.shape[1]), 2)))
    lengths = np.linalg.norm(corners[:, pairs[:, 0]] - corners[:, pairs[:, 1]], axis=-1)
    a, b = pairs[np.argmax(lengths, axis=1)].T
    rows = np.arange(len(corners))
    middle = 0.5 * (corners[rows, a] + corners[rows, b])
    first, second = corners.copy(), corners.copy()
    first[rows, a], second[rows, b] = middle, middle
    return np.concatenate([first, second])


def circumradii(corners: Corners) -> Float[np.ndarray, " C"]:
    """The radius of the sphere through the corners of each simplex; infinite for a flat one."""
    edges = corners[:, 1:] - corners[:, :1]
    lengths = np.linalg.norm(edges, axis=-1)
    radii = np.full(len(corners), np.inf)
    solid = measures_of(corners) > 1e-12 * lengths.max(axis=1) ** corners.shape[-1]
    center = np.linalg.solve(2.0 * edges[solid], lengths[solid, :, None] ** 2)
    radii[solid] = np.linalg.norm(center[..., 0], axis=-1)
    return radii


def groups(
    points: Float[np.ndarray, "C d"], measures: Float[np.ndarray, " C"], count: int
) -> Iterator[Int[np.ndarray, " k"]]:
    """The numbers of the points in `count` compact groups of nearly equal measure.

    A group is divided across its longest extent, until there are `count`.
    """
    waiting = [(np.arange(len(points)), count)]
    while waiting:
        rows, parts = waiting.pop()
        if parts == 1 or len(rows) == 1:
            yield rows
            continue
        rows = rows[np.argsort(points[rows, np.argmax(np.ptp(points[rows], axis=0))], kind="stable")]
        total = np.cumsum(measures[rows])
        left = parts // 2
        cut = int(np.clip(np.searchsorted(total, total[-1] * left / parts), 1, len(rows) - 1))
        waiting += [(rows[:cut], left), (rows[cut:], parts - left)]


# ---- cells from files -----------------------------------------------------------------------------------------------


def read_meshio(path: str | os.PathLike[str]) -> Any:
    """The content of a file that meshio reads."""
    try:
        import meshio
    except ImportError as error:
        raise ImportError("reading meshes needs an additional library: pip install loca-jax[mesh]") from error
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told):
            return meshio.read(path)
    except SystemExit:  # meshio prints the reason and ends the process
        raise ValueError(f"{os.fspath(path)} cannot be read as a mesh: {told.getvalue().strip()}") from None
    except (meshio.ReadError, OSError, ValueError, KeyError, SyntaxError, IndexError) as error:
        raise ValueError(f"{os.fspath(path)} cannot be read as a mesh: {error}") from error


def simplices(mesh: Any) -> tuple[Float[np.ndarray, "V d"], Int[np.ndarray, "C k"]]:
    """The vertices and simplices of a mesh of meshio; boundary cells are left out."""
    blocks: dict[int, list[np.ndarray]] = {}
    for block in mesh.cells:
        splits = SPLITS.get(block.type.rstrip("0123456789"))
        if splits is not None:
            corners = np.asarray(block.data, np.int64)
            blocks.setdefault(len(splits[0]) - 1, []).append(split(mesh.points, corners, splits))
    if not blocks:
        kinds = ", ".join(sorted({block.type for block in mesh.cells})) or "none"
        raise ValueError(f"the mesh has no cells of a known kind ({kinds}); expected {', '.join(SPLITS)}")
    dimension = max(blocks)
    cells = np.concatenate(blocks[dimension])
    varying = np.ptp(mesh.points[np.unique(cells)], axis=0) > 0.0
    if varying.sum() != dimension:
        raise ValueError(
            f"the cells of the mesh are {dimension}-dimensional, but {int(varying.sum())} of their coordinates vary; "
            "pass a flat or a solid mesh"
        )
    return np.asarray(mesh.points[:, varying], np.float64), cells


def split(points: Any, corners: Int[np.ndarray, "C k"], splits: tuple[tuple[int, ...], ...]) -> Int[np.ndarray, "_ _"]:
    """The simplices of cells; a quadrilateral with an inward corner is cut at this corner."""
    parts = [corners[:, list(part)] for part in splits]
    if len(splits) == 2 and len(splits[0]) == 3:
        turns = [np.cross(*np.moveaxis(points[part[:, 1:]] - points[part[:, :1]], 1, 0)) for part in parts]
        inward = (turns[0] * turns[1]).reshape(len(corners), -1).sum(axis=1) < 0.0
        parts[0][inward], parts[1][inward] = corners[inward][:, [0, 1, 3]], corners[inward][:, [1, 2, 3]]
    return np.concatenate(parts)
