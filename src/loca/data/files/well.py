"""HDF5 files of the Well (Ohana et al. 2024, github.com/PolymathicAI/the_well, docs/data_format.md)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from xarray.backends import CachingFileManager

from loca.data.files.datasets import HDF5Array, Layout, Roles, hdf5, hdf5_root, is_hdf5

ORDERS = ("t0_fields", "t1_fields", "t2_fields")
"""Groups of scalar, vector and tensor fields."""


def is_well(path: Path) -> bool:
    """Whether the file has the groups of the specification."""
    if not is_hdf5(path):
        return False
    with hdf5_root(path) as root:
        return "dimensions" in root and any(order in root for order in ORDERS)


def split_files(folder: Path, split: str | None) -> list[Path]:
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
    with hdf5_root(path) as root:
        axes = [str(name) for name in np.atleast_1d(root["dimensions"].attrs["spatial_dims"])]
        found, coords = scalars(root), coordinates(root, axes)
        parameters, evolving, parts = [name for name, v in found.items() if "time" not in v.dims], [], {}
        for order, group in enumerate(ORDERS):
            for name in listed(root, group):
                field = components(file, root[group][name], axes, order)
                found |= field
                parts[name] = tuple(field)
                (evolving if "time" in next(iter(field.values())).dims else parameters).extend(field)
        attrs = {name: value for name, value in root.attrs.items() if name not in found}
        periods = periodic(root, axes)
    dataset = xarray.Dataset(found, coords, attrs)
    return Layout(dataset, "sample", tuple(evolving), tuple(evolving), "time", tuple(parameters), periods, parts)


def leading(stored: Any) -> list[str]:
    """The dimensions that precede those of space."""
    flags = (("sample", "sample_varying"), ("time", "time_varying"))
    return [dim for dim, flag in flags if stored.attrs.get(flag, False)]


def coordinates(root: Any, axes: list[str]) -> dict[str, xarray.Variable]:
    """Times and locations; those that depend on the trajectory cannot have the name of their dimension."""
    found = {}
    for name in ("time", *axes):
        stored = root["dimensions"][name]
        dims = [dim for dim in leading(stored) if dim != name]
        found[f"{name}_of_sample" if dims else name] = xarray.Variable([*dims, name], stored[()])
    return found


def scalars(root: Any) -> dict[str, xarray.Variable]:
    """Parameters of the simulations: the group of scalars, and parameters that are only attributes."""
    found = {}
    for name in np.atleast_1d(root.attrs.get("simulation_parameters", [])):
        if name in root.attrs and np.ndim(root.attrs[name]) == 0 and np.asarray(root.attrs[name]).dtype.kind in "fiub":
            found[str(name)] = xarray.Variable((), np.asarray(root.attrs[name]))
    for name in listed(root, "scalars"):
        stored = root["scalars"][name]
        dims = leading(stored)
        values = stored[()]
        found[name] = xarray.Variable(dims, np.squeeze(values) if np.ndim(values) > len(dims) else values)
    return found


def listed(root: Any, group: str) -> list[str]:
    """The names of the members of a group, in the order of its attribute `field_names`."""
    return [str(name) for name in root[group].attrs.get("field_names", sorted(root[group]))] if group in root else []


def components(file: CachingFileManager, stored: Any, axes: list[str], order: int) -> dict[str, xarray.Variable]:
    """The Dᵒʳᵈᵉʳ components of a field, one variable each."""
    varying = np.atleast_1d(stored.attrs.get("dim_varying", [True] * len(axes)))
    dims = [*leading(stored), *[axis for axis, varies in zip(axes, varying, strict=True) if varies]]
    # tensors are stored with one axis of length D² or two of length D
    inner = [f"component_{i}" for i in range(stored.ndim - len(dims))]
    field = HDF5Array(file, stored.name).variable([*dims, *inner])
    name = stored.name.rsplit("/", maxsplit=1)[-1]
    parts = {}
    for number, along in enumerate(itertools.product(axes, repeat=order)):
        place = np.unravel_index(number, stored.shape[len(dims) :]) if inner else ()
        chosen = field.isel({dim: int(i) for dim, i in zip(inner, place, strict=True)})
        parts["_".join([name, *filter(None, ["".join(along)])])] = chosen
    return parts


def periodic(root: Any, axes: list[str]) -> dict[str, float]:
    """The periods of the dimensions with periodic boundaries: n·Δ for n points of spacing Δ."""
    found = {}
    for boundary in root.get("boundary_conditions", {}).values():
        if str(boundary.attrs["bc_type"]).lower() == "periodic":
            for name in np.atleast_1d(boundary.attrs["associated_dims"]):
                x = root["dimensions"][str(name)][()].astype(np.float64)
                if x.ndim == 1:
                    found[str(name)] = float((x[-1] - x[0]) / (len(x) - 1) * len(x))
    return found
