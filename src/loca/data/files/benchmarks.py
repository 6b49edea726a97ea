"""HDF5 files of published benchmarks, each with a layout of its own.

- The Well: Ohana et al. 2024, github.com/PolymathicAI/the_well, docs/data_format.md.
- PDEBench: Takamoto et al. 2022, github.com/pdebench/PDEBench, in three dialects.
"""

import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray
from xarray.backends import CachingFileManager

from loca.data.files.datasets import FileArray, HDF5Array, Layout, Roles, hdf5, numbered

# ---- the Well --------------------------------------------------------------------------------------------------------

ORDERS = ("t0_fields", "t1_fields", "t2_fields")
"""Groups of scalar, vector and tensor fields."""


def is_well(root: Any) -> bool:
    """Whether the file has the groups of the specification."""
    return "dimensions" in root and any(order in root for order in ORDERS)


def well_files(folder: Path, split: str | None) -> list[Path]:
    """The files of a folder, or of one split of a data set: data/train, data/valid or data/test."""
    places = [folder] if split is None else [folder / "data" / split, folder / split]
    for place in places:
        files = sorted([*place.glob("*.hdf5"), *place.glob("*.h5")])
        if files:
            return files
    splits = sorted(p.name for p in (folder / "data").glob("*") if p.is_dir())
    advice = f"pass split= one of {splits}" if splits else "pass the folder that holds them"
    raise ValueError(f"no .hdf5 files in {' or '.join(map(str, places))}; {advice}")


def read_well(path: Path, roles: Roles) -> Layout:
    """Fields as variables; components of vectors and tensors are called `velocity_x`, `stress_xy`, ….

    u is every time-dependent field at the first step, and every constant field that depends on the trajectory. s is
    every time-dependent field at all later steps.
    """
    file = hdf5(path)
    root: Any = file.acquire()
    axes = [str(name) for name in np.atleast_1d(root["dimensions"].attrs["spatial_dims"])]
    found, coords = _scalars(root), {}
    for name in ("time", *axes):
        stored = root["dimensions"][name]
        dims = [dim for dim in _leading(stored) if dim != name]
        # one that depends on the trajectory cannot have the name of its dimension
        coords[f"{name}_of_sample" if dims else name] = xarray.Variable([*dims, name], stored[()])
    parameters, evolving, parts = [name for name, v in found.items() if "time" not in v.dims], [], {}
    for order, group in enumerate(ORDERS):
        for name in _listed(root, group):
            field = _components(file, root[group][name], axes, order)
            found |= field
            parts[name] = tuple(field)
            (evolving if "time" in next(iter(field.values())).dims else parameters).extend(field)
    attrs = {name: value for name, value in root.attrs.items() if name not in found}
    periods = _periodic(root)
    dataset = xarray.Dataset(found, coords, attrs)
    return Layout(dataset, "sample", tuple(evolving), tuple(evolving), "time", tuple(parameters), periods, parts)


def _leading(stored: Any) -> list[str]:
    flags = (("sample", "sample_varying"), ("time", "time_varying"))
    return [dim for dim, flag in flags if stored.attrs.get(flag, False)]


def _scalars(root: Any) -> dict[str, xarray.Variable]:
    """Parameters of the simulations: the group of scalars, and parameters that are only attributes."""
    names = [str(name) for name in np.atleast_1d(root.attrs.get("simulation_parameters", [])) if name in root.attrs]
    values = {name: np.asarray(root.attrs[name]) for name in names}
    found = {name: xarray.Variable((), v) for name, v in values.items() if v.ndim == 0 and v.dtype.kind in "fiub"}
    for name in _listed(root, "scalars"):
        dims, value = _leading(root["scalars"][name]), root["scalars"][name][()]
        found[name] = xarray.Variable(dims, np.squeeze(value) if np.ndim(value) > len(dims) else value)
    return found


def _listed(root: Any, group: str) -> list[str]:
    """The names of the members of a group, in the order of its attribute `field_names`."""
    return [str(name) for name in root[group].attrs.get("field_names", sorted(root[group]))] if group in root else []


def _components(file: CachingFileManager, stored: Any, axes: list[str], order: int) -> dict[str, xarray.Variable]:
    """The Dᵒʳᵈᵉʳ components of a field, one variable each."""
    varying = np.atleast_1d(stored.attrs.get("dim_varying", [True] * len(axes)))
    dims = [*_leading(stored), *itertools.compress(axes, varying)]
    # tensors are stored with one axis of length D² or two of length D
    inner = [f"component_{i}" for i in range(stored.ndim - len(dims))]
    field = HDF5Array(file, stored.name).variable([*dims, *inner])
    name = stored.name.rsplit("/", maxsplit=1)[-1]
    parts = {}
    for number, along in enumerate(itertools.product(axes, repeat=order)):
        place = np.unravel_index(number, stored.shape[len(dims) :]) if inner else ()
        chosen = field.isel({dim: int(i) for dim, i in zip(inner, place, strict=True)})
        parts[f"{name}_{''.join(along)}" if along else name] = chosen
    return parts


def _periodic(root: Any) -> dict[str, float]:
    """The periods of the dimensions with periodic boundaries: n·Δ for n points of spacing Δ."""
    found = {}
    for boundary in root.get("boundary_conditions", {}).values():
        if str(boundary.attrs["bc_type"]).lower() == "periodic":
            for name in np.atleast_1d(boundary.attrs["associated_dims"]):
                x = root["dimensions"][str(name)][()].astype(np.float64)
                if x.ndim == 1:
                    found[str(name)] = float((x[-1] - x[0]) / (len(x) - 1) * len(x))
    return found


# ---- PDEBench --------------------------------------------------------------------------------------------------------

FLUID = ("density", "pressure", "Vx", "Vy", "Vz")
"""Fields of the compressible flows."""

AXES = ("t", "x", "y", "z")
"""Names of the dimensions after the sample."""


def is_pdebench(root: Any) -> bool:
    """Whether the file has one of the dialects: every field in one array, or groups."""
    return (("tensor" in root or "density" in root) and "x-coordinate" in root) or _is_seeded(root)


def _is_seeded(root: Any) -> bool:
    """Whether every sample is a separate group, named by its random seed."""
    return len(root) > 0 and all(name.isdigit() for name in root) and {"data", "grid"} <= set(root[min(root)])


def split_rows(path: Path, count: int, split: str) -> slice:
    """The rows of the official training or test set, on which the two official loaders disagree.

    `FNODatasetSingle`, for files with one array, tests on the first int(samples · 0.1) and trains on the others;
    `FNODatasetMult`, for groups, sorts the seeds, trains on the first int(samples · (1 − 0.1)) and tests on the
    others. Both validate on the test set.
    """
    if split not in ("train", "test"):
        raise ValueError(f"PDEBench has the splits 'train' and 'test', not {split!r}; it validates on the test set")
    with h5py.File(path, "r") as root:
        tests_last = _is_seeded(root)
    cut = int(count * (1 - 0.1)) if tests_last else int(count * 0.1)
    return slice(0, cut) if tests_last == (split == "train") else slice(cut, count)


def read_pdebench(path: Path, roles: Roles) -> Layout:
    """u is the fields at the first time, and `nu` if there is one; s is the fields at all later times.

    The fields are one array each, `tensor`, with `nu` for Darcy flow, or `density`, `pressure`, `Vx`, …; or there is
    one group per seed, with `data` (t, x, …, channel) and `grid`.
    """
    file = hdf5(path)
    root: Any = file.acquire()
    if _is_seeded(root):
        array = SeededArray(file, sorted(root))
        axes = AXES[: len(array.shape) - 2]
        found = numbered("data", array.variable(["sample", *axes, "channel"]))
        coords = {"sample": ("sample", array.seeds), **{axis: (axis, array.grid[axis]) for axis in axes}}
        dataset, fields = xarray.Dataset(found, coords, dict(root[array.seeds[0]].attrs)), tuple(found)
        return Layout(dataset, "sample", fields, fields, "t", parts={"data": fields})
    fields = ["tensor"] if "tensor" in root else [name for name in FLUID if name in root]
    steps, *space = root[fields[0]].shape[1:]
    axes = AXES[: 1 + len(space)]
    found = {name: HDF5Array(file, name).variable(["sample", *axes]) for name in fields}
    given = ("nu",) if "nu" in root else ()
    found |= {name: HDF5Array(file, name).variable(["sample", *axes[1:]]) for name in given}
    # there is one more time than steps of the fields: PDEBench drops the last step after writing the times
    stored = {axis: root[f"{axis}-coordinate"][()] for axis in axes if f"{axis}-coordinate" in root}
    coords = {axis: (axis, values[:steps] if axis == "t" else values) for axis, values in stored.items()}
    dataset = xarray.Dataset(found, coords, dict(root.attrs))
    if steps == 1:
        return Layout(dataset, "sample", given, tuple(fields))
    return Layout(dataset, "sample", (*fields, *given), tuple(fields), "t")


RECOGNIZES = {"well": is_well, "pdebench": is_pdebench}
"""Whether the root group of a file has a layout."""


class SeededArray(FileArray):
    """The arrays `data` of all groups, stacked and read when indexed.

    The official loader uses the grid of the group "0023" for all groups. This one uses the grid of the first group,
    and compares that of any other group with it when its data is first read.
    """

    def __init__(self, file: CachingFileManager, seeds: list[str]):
        self.file, self.seeds = file, seeds
        first = file.acquire()[seeds[0]]
        self.grid = {name: values[()] for name, values in first["grid"].items()}
        self.shape, self.dtype = (len(seeds), *first["data"].shape), first["data"].dtype
        self.checked = {seeds[0]}

    def _read(self, key: tuple) -> Any:
        rows, *inner = key
        numbers = np.arange(len(self.seeds))[rows]
        blocks = [self._group(self.seeds[i])["data"][tuple(inner)] for i in np.atleast_1d(numbers)]
        if np.ndim(numbers) == 0:
            return blocks[0]
        return np.stack(blocks) if blocks else np.empty((0, *self.shape[1:]), self.dtype)[(slice(None), *inner)]

    def _group(self, seed: str) -> Any:
        group = self.file.acquire()[seed]
        if seed not in self.checked:
            same = group["data"].shape == self.shape[1:] and all(
                name in group["grid"] and np.array_equal(group["grid"][name][()], values)
                for name, values in self.grid.items()
            )
            if not same:
                raise ValueError(f"group {seed!r} of {group.file.filename} is on another grid than {self.seeds[0]!r}")
            self.checked.add(seed)
        return group
