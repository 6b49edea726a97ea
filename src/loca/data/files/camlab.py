"""NetCDF files of ETH's camlab: those for RIGNO (Mousavi et al. 2025) and GAOT (Wen et al. 2025)."""

from __future__ import annotations

from pathlib import Path

import h5py
import xarray

from loca.data.files.datasets import HDF5Array, Layout, Roles, hdf5, hdf5_root, is_hdf5, numbered


def is_camlab(path: Path) -> bool:
    """Whether the file holds `u` (sample, time, node, channel) at locations `x` (sample or 1, time or 1, node, d)."""
    if not is_hdf5(path):
        return False
    with hdf5_root(path) as root:
        return (
            all(isinstance(root.get(name), h5py.Dataset) and root[name].ndim == 4 for name in ("u", "x"))
            and root["u"].shape[2] == root["x"].shape[2]
            and root["x"].shape[3] <= 3
        )


def read_camlab(path: Path, roles: Roles) -> Layout:
    """u is the field at the first time and the conditions `c`; s is the field at all later times.

    Steady problems have a single time; then u is `c` alone. The files hold no times, so time runs from 0 to 1.
    Locations that differ between samples depend on the sample. Without `x`, fields are (sample, time, x, y, channel).
    """
    file = hdf5(path)
    with hdf5_root(path) as root:
        given, (_, steps, *_) = set(root), root["u"].shape
        on_nodes = root["u"].ndim == 4
    dims = ["sample", "time", *(["node"] if on_nodes else ["x", "y"]), "channel"]
    parts, found = {}, {}
    for name in given & {"u", "c"}:
        field = HDF5Array(file, name).variable(dims)
        channels = numbered(name, field.isel(time=0) if field.sizes["time"] == 1 else field)
        parts[name] = tuple(channels)
        found |= channels
    coords = {}
    if on_nodes and "x" in given:
        x = HDF5Array(file, "x").variable(["sample", "time", "node", "axis"])
        x = x.isel({dim: 0 for dim in ("sample", "time") if x.sizes[dim] == 1})
        coords = {axis: x.isel(axis=i) for i, axis in enumerate("xyz"[: x.sizes["axis"]])}
    dataset, (u, c) = xarray.Dataset(found, coords), (parts.get(name, ()) for name in ("u", "c"))
    if steps == 1:
        return Layout(dataset, "sample", c, u, parts=parts)
    return Layout(dataset, "sample", (*u, *c), u, "time", parts=parts)
