"""Geometry of simplices: segments, triangles, tetrahedra."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

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
