"""The three HDF5 dialects of PDEBench (Takamoto et al. 2022, github.com/pdebench/PDEBench)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray.backends import CachingFileManager

from loca.data.files.datasets import FileArray, HDF5Array, Layout, Roles, hdf5, hdf5_root, is_hdf5, numbered

FLUID = ("density", "pressure", "Vx", "Vy", "Vz")
"""Fields of the compressible flows."""

AXES = ("t", "x", "y", "z")
"""Names of the dimensions after the sample."""


def is_pdebench(path: Path) -> bool:
    """Whether the file has one of the dialects."""
    if not is_hdf5(path):
        return False
    with hdf5_root(path) as root:
        return is_flat(root) or is_seeded(root)


def is_flat(root: Any) -> bool:
    """Whether every field is one array that holds all samples."""
    return ("tensor" in root or "density" in root) and "x-coordinate" in root


def is_seeded(root: Any) -> bool:
    """Whether every sample is a separate group, named by its random seed."""
    if not len(root) or not all(name.isdigit() for name in root):
        return False
    return {"data", "grid"} <= set(root[min(root)])


def split_rows(path: Path, count: int, split: str) -> slice:
    """The rows of the official training or test set, on which the two official loaders disagree.

    `FNODatasetSingle`, for files with one array, tests on the first int(samples · 0.1) and trains on the others;
    `FNODatasetMult`, for groups, sorts the seeds, trains on the first int(samples · (1 − 0.1)) and tests on the
    others. Both validate on the test set.
    """
    if split not in ("train", "test"):
        raise ValueError(f"PDEBench has the splits 'train' and 'test', not {split!r}; it validates on the test set")
    with hdf5_root(path) as root:
        tests_last = is_seeded(root)
    cut = int(count * (1 - 0.1)) if tests_last else int(count * 0.1)
    return slice(0, cut) if tests_last == (split == "train") else slice(cut, count)


def read_pdebench(path: Path, roles: Roles) -> Layout:
    """u is the fields at the first time, and `nu` if there is one; s is the fields at all later times."""
    with hdf5_root(path) as root:
        return read_seeded(path, root) if is_seeded(root) else read_flat(path, root)


def read_flat(path: Path, root: Any) -> Layout:
    """The dialect with one array per field: `tensor`, with `nu` for Darcy flow, or `density`, `pressure`, `Vx`, …."""
    fields = ["tensor"] if "tensor" in root else [name for name in FLUID if name in root]
    steps, *space = root[fields[0]].shape[1:]
    axes = AXES[: 1 + len(space)]
    file = hdf5(path)
    found = {name: HDF5Array(file, name).variable(["sample", *axes]) for name in fields}
    given = ["nu"] if "nu" in root else []
    for name in given:
        found[name] = HDF5Array(file, name).variable(["sample", *axes[1:]])
    # there is one more time than steps of the fields, because PDEBench drops the last step after writing the times
    stored = {axis: root[f"{axis}-coordinate"][()] for axis in axes if f"{axis}-coordinate" in root}
    coords = {axis: (axis, values[:steps] if axis == "t" else values) for axis, values in stored.items()}
    dataset = xarray.Dataset(found, coords, dict(root.attrs))
    if steps == 1:
        return Layout(dataset, "sample", tuple(given), tuple(fields))
    return Layout(dataset, "sample", (*fields, *given), tuple(fields), "t")


def read_seeded(path: Path, root: Any) -> Layout:
    """The dialect with one group per seed, with `data` (t, x, …, channel) and `grid`."""
    array = SeededArray(hdf5(path), sorted(root))
    axes = AXES[: len(array.shape) - 2]
    found = numbered("data", array.variable(["sample", *axes, "channel"]))
    coords = {"sample": ("sample", array.seeds), **{axis: (axis, array.grid[axis]) for axis in axes}}
    attrs = dict(root[array.seeds[0]].attrs)
    dataset, fields = xarray.Dataset(found, coords, attrs), tuple(found)
    return Layout(dataset, "sample", fields, fields, "t", parts={"data": fields})


class SeededArray(FileArray):
    """The arrays `data` of all groups, stacked and read when indexed.

    The official loader uses the grid of the group "0023" for all groups. This one uses the grid of the first group,
    and compares that of any other group with it when its data is first read.
    """

    def __init__(self, file: CachingFileManager, seeds: list[str]):
        self.file, self.seeds = file, seeds
        first = file.acquire()[seeds[0]]
        self.grid = {name: values[()] for name, values in first["grid"].items()}
        self.shape = (len(seeds), *first["data"].shape)
        self.dtype = first["data"].dtype
        self.checked = {seeds[0]}

    def _read(self, key: tuple) -> Any:
        rows, *inner = key
        if isinstance(rows, int | np.integer):
            return self._group(self.seeds[rows])["data"][tuple(inner)]
        blocks = [self._group(seed)["data"][tuple(inner)] for seed in np.asarray(self.seeds)[rows].tolist()]
        return np.stack(blocks) if blocks else np.empty((0, *self.shape[1:]), self.dtype)[(slice(None), *inner)]

    def _group(self, seed: str) -> Any:
        group = self.file.acquire()[seed]
        if seed not in self.checked:
            same = group["data"].shape == self.shape[1:] and all(
                name in group["grid"] and np.array_equal(group["grid"][name][()], values)
                for name, values in self.grid.items()
            )
            if not same:
                raise ValueError(
                    f"group {seed!r} of {group.file.filename} is on another grid than group {self.seeds[0]!r}; "
                    "write one file per grid"
                )
            self.checked.add(seed)
        return group
