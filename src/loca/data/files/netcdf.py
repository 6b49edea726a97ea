"""Files that xarray reads: NetCDF 3 and 4, any other HDF5 file without a known layout, and Zarr groups."""

from __future__ import annotations

import warnings
from pathlib import Path

import xarray

from loca.data.files.datasets import Layout, Roles, first_bytes, is_hdf5


def is_netcdf(path: Path) -> bool:
    """Whether the file is NetCDF 3 or HDF5."""
    return first_bytes(path)[:4] in (b"CDF\x01", b"CDF\x02") or is_hdf5(path)


def read_netcdf(path: Path, roles: Roles) -> Layout:
    """The variables, decoded by the CF conventions: packing, fill values, dates."""
    if first_bytes(path)[:3] == b"CDF":
        return Layout(decoded(path, engine="scipy"))
    return Layout(decoded(path, engine="h5netcdf", phony_dims="sort"))


def is_zarr(path: Path) -> bool:
    """Whether the folder is the root of a Zarr group, version 2 or 3."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def read_zarr(path: Path, roles: Roles) -> Layout:
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
