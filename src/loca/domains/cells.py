"""Cells of meshes: made from points, masks and files, and the geometry of simplices."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from loca.domains.sphere import edges_between

Corners = Float[np.ndarray, "C k d"]
"""The k = d + 1 corners of C simplices in d dimensions."""

AT_ONCE = 4096
"""Number of locations that are searched for at once; a few times as many pairs of locations and cells are in memory."""


def measures_of(corners: Corners) -> Float[np.ndarray, " C"]:
    """|det(v₁ − v₀, …, v_d − v₀)| / d!: lengths, areas or volumes."""
    edges = corners[:, 1:] - corners[:, :1]
    return np.abs(np.linalg.det(edges)) / math.factorial(corners.shape[-1])


def barycentric(corners: Corners) -> tuple[Float[np.ndarray, "C k d"], Float[np.ndarray, "C k"]]:
    """(∇λ, λ(0)) of the barycentric coordinates λ(y) = ∇λ y + λ(0) of each simplex."""
    inverse = np.linalg.inv(np.swapaxes(corners[:, 1:] - corners[:, :1], 1, 2))
    slopes = np.concatenate([-inverse.sum(axis=1, keepdims=True), inverse], axis=1)
    at_first = np.zeros(corners.shape[:2])
    at_first[:, 0] = 1.0
    return slopes, at_first - np.einsum("ckd,cd->ck", slopes, corners[:, 0])


def containing(
    corners: Corners, y: Float[np.ndarray, "P d"], slack: float
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """All pairs (location, cell) where the location lies in the cell, or outside by at most `slack`.

    Cells are searched by their size, so that the large cells of a graded mesh are not compared with every location
    near the small ones.
    """
    from scipy.spatial import KDTree  # slow to import

    middles = corners.mean(axis=1)
    radii = np.linalg.norm(corners - middles[:, None], axis=-1).max(axis=1)
    slopes, constants = barycentric(corners)
    margins = -slack * np.linalg.norm(slopes, axis=-1)  # λ falls by |∇λ| per unit of distance
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for cells in by_size(radii):
        tree = KDTree(middles[cells])
        for start in range(0, len(y), AT_ONCE):
            near = tree.query_ball_point(y[start : start + AT_ONCE], radii[cells].max() + slack, return_sorted=False)
            counts = np.array([len(each) for each in near])
            if not counts.any():
                continue
            places = start + np.repeat(np.arange(len(near)), counts)
            candidates = cells[np.concatenate([np.asarray(each, np.int64) for each in near])]
            coordinates = np.einsum("pkd,pd->pk", slopes[candidates], y[places]) + constants[candidates]
            inside = np.all(coordinates >= margins[candidates], axis=1)
            found.append((places[inside], candidates[inside]))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate([places for places, _ in found]), np.concatenate([cells for _, cells in found])


def by_size(radii: Float[np.ndarray, " C"]) -> Iterator[Int[np.ndarray, " k"]]:
    """The numbers of the cells whose radii differ by less than a factor of two, group by group."""
    octave = np.floor(np.log2(radii / radii.min())).astype(np.int64)
    for each in np.unique(octave):
        yield np.flatnonzero(octave == each)


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


VertexArray = Float[np.ndarray, "V d"]
CellArray = Int[np.ndarray, "C k"]

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


def cells_of_points(points: VertexArray, alpha: float) -> CellArray:
    """The simplices of a Delaunay triangulation that are not too large for the spacing of the points.

    A simplex belongs to the shape if the radius of its circumsphere is at most `alpha` times the spacing at one of its
    corners: the distance to the 2d-th nearest other point.
    """
    from scipy.spatial import Delaunay, KDTree  # slow to import

    dimension = points.shape[1]
    if len(points) <= dimension or dimension > 3:
        raise ValueError(
            f"a shape needs more points than dimensions, and one to three dimensions, got {len(points)} points in "
            f"{dimension}; without `domain` the queries lie in their bounding box"
        )
    if dimension == 1:
        order = np.argsort(points[:, 0], kind="stable")
        cells = np.stack([order[:-1], order[1:]], axis=1)
    else:
        cells = Delaunay(points).simplices.astype(np.int64)
    neighbors = min(2 * dimension, len(points) - 1)
    spacing = KDTree(points).query(points, k=neighbors + 1)[0][:, -1]
    cells = cells[circumradii(points[cells]) <= alpha * spacing[cells].max(axis=1)]
    alone = len(points) - len(np.unique(cells))
    if alone:
        raise ValueError(
            f"{alone} of {len(points)} points belong to no cell with alpha={alpha}: their spacing differs much between "
            "directions, or points occur twice; pass a larger `alpha`, remove repeated points, or pass cells to `Mesh`"
        )
    return cells


def cells_of_mask(
    mask: Bool[np.ndarray, ...], axes: Sequence[Float[np.ndarray, " _"]]
) -> tuple[VertexArray, CellArray]:
    """The cells around the grid points where the mask is true, with edges halfway to the neighbors."""
    if len(axes) != mask.ndim or mask.shape != tuple(len(axis) for axis in axes) or min(mask.shape) < 2:
        raise ValueError(
            f"expected a mask with one axis of at least two coordinates per dimension, got a mask of shape "
            f"{mask.shape} and axes of {[len(axis) for axis in axes]} coordinates"
        )
    if not mask.any():
        raise ValueError("the mask is false everywhere; the domain is where it is true")
    edges = [edges_between(np.asarray(axis, np.float64)) for axis in axes]
    grid = np.stack(np.meshgrid(*edges, indexing="ij"), axis=-1).reshape(-1, mask.ndim)
    strides = np.cumprod([1, *(len(edge) for edge in reversed(edges[1:]))])[::-1]
    lowest = np.argwhere(mask) @ strides
    # the simplices of a box are the paths along its edges from the lowest corner to the highest
    paths = [np.cumsum([0, *(strides[i] for i in order)]) for order in itertools.permutations(range(mask.ndim))]
    cells = (lowest[:, None, None] + np.stack(paths)).reshape(-1, mask.ndim + 1)
    used, numbers = np.unique(cells, return_inverse=True)
    return grid[used], numbers.reshape(cells.shape)


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


def simplices(mesh: Any) -> tuple[VertexArray, CellArray]:
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
            f"the cells of the mesh are {dimension}-dimensional, but {int(varying.sum())} of their "
            "coordinates vary; a domain needs cells that fill the space, so pass a flat or a solid mesh"
        )
    return np.asarray(mesh.points[:, varying], np.float64), cells


def split(points: Any, corners: CellArray, splits: tuple[tuple[int, ...], ...]) -> Int[np.ndarray, "_ _"]:
    """The simplices of cells; a quadrilateral with an inward corner is cut at this corner."""
    parts = [corners[:, list(part)] for part in splits]
    if len(splits) == 2 and len(splits[0]) == 3:
        turns = [np.cross(*np.moveaxis(points[part[:, 1:]] - points[part[:, :1]], 1, 0)) for part in parts]
        inward = (turns[0] * turns[1]).reshape(len(corners), -1).sum(axis=1) < 0.0
        parts[0][inward], parts[1][inward] = corners[inward][:, [0, 1, 3]], corners[inward][:, [1, 2, 3]]
    return np.concatenate(parts)
