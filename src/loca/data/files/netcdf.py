"""Files that xarray reads, and NetCDF files of camlab, which need more than their labels.

xarray reads NetCDF 3 and 4, any other HDF5 file without a known layout, and Zarr groups. The files of ETH's camlab are
those for RIGNO (Mousavi et al. 2025) and GAOT (Wen et al. 2025).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import xarray
from xarray.backends import CachingFileManager

from loca.data.files.datasets import HDF5Array, Layout, Names, first_bytes, hdf5, hdf5_root, is_hdf5, numbered, variable


def is_netcdf(path: Path) -> bool:
    """Whether the file is NetCDF 3 or HDF5."""
    return first_bytes(path)[:4] in (b"CDF\x01", b"CDF\x02") or is_hdf5(path)


def read_netcdf(path: Path, names: Names) -> Layout:
    """The variables, decoded by the CF conventions: packing, fill values, dates."""
    if first_bytes(path)[:3] == b"CDF":
        return Layout(decoded(path, engine="scipy"))
    return Layout(decoded(path, engine="h5netcdf", phony_dims="sort"))


def is_zarr(path: Path) -> bool:
    """Whether the folder is the root of a Zarr group, version 2 or 3."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def read_zarr(path: Path, names: Names) -> Layout:
    """The variables of a Zarr group written by xarray."""
    return Layout(decoded(path, engine="zarr", consolidated=False))


def decoded(path: Path, **backend: object) -> xarray.Dataset:
    """Open a data set without reading it; times in calendars that cannot be decoded stay numbers."""
    options = {"chunks": None, "cache": False, "decode_timedelta": False, **backend}
    with warnings.catch_warnings():
        # old files define two fill values; xarray masks both and warns
        warnings.filterwarnings("ignore", message=".*multiple fill values", category=xarray.SerializationWarning)
        try:
            return xarray.open_dataset(path, **options)
        except ValueError as error:
            if "decode time" not in str(error):
                raise
            return xarray.open_dataset(path, decode_times=False, **options)


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


def read_camlab(path: Path, names: Names) -> Layout:
    """u is the field at the first time and the conditions `c`; s is the field at all later times.

    Steady problems have a single time; then u is `c` alone. The files hold no times, so time runs from 0 to 1.
    Locations that differ between samples depend on the sample. Without `x`, fields are (sample, time, x, y, channel).
    """
    file = hdf5(path)
    with hdf5_root(path) as root:
        on_nodes = root["u"].ndim == 4
        dims = ["sample", "time", *(["node"] if on_nodes else ["x", "y"]), "channel"]
        steps = root["u"].shape[1]
        fields, given = channels(file, root, "u", dims), channels(file, root, "c", dims)
        coords = locations(file) if on_nodes and "x" in root else {}
    dataset = xarray.Dataset({**fields, **given}, coords)
    parts = {"u": tuple(fields), "c": tuple(given)}
    if steps == 1:
        return Layout(dataset, "sample", tuple(given), tuple(fields), parts=parts)
    return Layout(dataset, "sample", (*fields, *given), tuple(fields), "time", parts=parts)


def channels(file: CachingFileManager, root: Any, name: str, dims: list[str]) -> dict[str, xarray.Variable]:
    """The channels of an array, without a time dimension of length one; empty if the file has no such array."""
    if name not in root:
        return {}
    field = variable(dims, HDF5Array(file, name))
    return numbered(name, field.isel(time=0) if field.sizes["time"] == 1 else field)


def locations(file: CachingFileManager) -> dict[str, xarray.Variable]:
    """The coordinates of the nodes, with the dimensions along which they vary."""
    x = variable(["sample", "time", "node", "axis"], HDF5Array(file, "x"))
    x = x.isel({dim: 0 for dim in ("sample", "time") if x.sizes[dim] == 1})
    found = {axis: x.isel(axis=i) for i, axis in enumerate("xyz"[: x.sizes["axis"]])}
    return found if "sample" in x.dims else {axis: values.load() for axis, values in found.items()}
