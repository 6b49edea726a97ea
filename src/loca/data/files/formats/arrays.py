"""Arrays without labels: what is input, output, sensor and query is told by their names and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import xarray

from loca.data.files.formats.layout import Layout, Names, numbered
from loca.data.files.formats.lazy import HDF5Array, variable

Array = np.ndarray | HDF5Array

PAIRS = (("u", "s"), ("coeff", "sol"), ("a", "u"))
"""Names of inputs and outputs in use: ours, and those of FNO's Darcy and Navier–Stokes files."""


def layout(path: Path, shapes: Mapping[str, tuple[int, ...]], get: Callable[[str], Array], names: Names) -> Layout:
    """Named arrays as a labeled data set.

    Values are (N, m) or (N, m, channels) where their locations, (m, d) or (N, m, d), are given as well, and otherwise
    (N, n₁, n₂, …) on a grid of equal steps from 0 to 1. An array (N,) is one number for every sample.

    **Arguments:**

    - `shapes`: what there is.
    - `get`: reads one array.
    - `names`: which of them make up u, s, x and y; by default those in `PAIRS`, and "x" and "y" for "u" and "s".
    """
    found = next((pair for pair in PAIRS if set(pair) <= set(shapes)), None)
    inputs = names.inputs or ((found[0],) if found else ())
    outputs = names.outputs or ((found[1],) if found else ())
    ours = (inputs, outputs) == (("u",), ("s",))
    sensors = names.sensors or ("x" if ours and "x" in shapes else None)
    queries = names.queries or ("y" if ours and "y" in shapes else None)
    asked = [*inputs, *outputs, *filter(None, (sensors, queries))]
    missing = [name for name in asked if name not in shapes]
    if missing or not inputs or not outputs:
        listed = "\n".join(f"  {name}{shape}" for name, shape in shapes.items())
        problem = f"has no array {', '.join(missing)}" if missing else "does not say what is input and what is output"
        raise ValueError(f"{path} {problem}; pass inputs= and outputs=, and sensors= and queries=, among\n{listed}")
    sides = [Side(path, get, inputs, sensors, "sensor", "x"), Side(path, get, outputs, queries, "query", "y")]
    u, s = sides
    return Layout(
        xarray.Dataset({**u.variables, **s.variables}, {**u.coords, **s.coords}),
        "sample",
        tuple(u.variables),
        tuple(s.variables),
        parts={**u.parts, **s.parts},
    )


class Side:
    """The inputs or the outputs: arrays of values, and perhaps one of locations."""

    def __init__(
        self, path: Path, get: Callable[[str], Array], names: tuple[str, ...], where: str | None, dim: str, letter: str
    ):
        self.variables: dict[str, xarray.Variable] = {}
        self.coords: dict[str, xarray.Variable] = {}
        self.parts: dict[str, tuple[str, ...]] = {}
        count = None
        if where is not None:
            points = np.asarray(labeled(get(where), ["a", "b", "c"]).to_numpy())
            points = points.T if points.ndim == 2 and points.shape[0] == 1 else points  # a row of MATLAB's
            points = points[:, None] if points.ndim == 1 else points
            dims = ["sample", dim] if points.ndim == 3 else [dim]
            count = points.shape[-2]
            for i in range(points.shape[-1]):
                self.coords[f"{letter}{i + 1}"] = xarray.Variable(dims, points[..., i])
        for name in names:
            array = get(name)
            if count is None:
                dims = ["sample", *[f"{letter}{i}" for i in range(1, len(array.shape))]]
                self.variables[name] = labeled(array, dims)
                continue
            if len(array.shape) > 3 or (len(array.shape) > 1 and array.shape[1] != count):
                raise ValueError(
                    f"{name!r} of {path} has shape {array.shape} but {where!r} holds {count} locations; "
                    f"expected (N, {count}) or (N, {count}, channels)"
                )
            channels = numbered(name, labeled(array, ["sample", dim, "channel"]))
            self.variables |= channels
            self.parts[name] = tuple(channels)


def labeled(array: Array, dims: list[str]) -> xarray.Variable:
    """An array with names for its axes."""
    dims = dims[: len(array.shape)]
    return xarray.Variable(dims, array) if isinstance(array, np.ndarray) else variable(dims, array)
