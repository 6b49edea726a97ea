"""NetCDF 3 and 4, and any HDF5 file whose layout nobody else knows."""

from __future__ import annotations

import warnings
from pathlib import Path

import xarray

from loca.data.files.formats.layout import Layout, Names
from loca.data.files.formats.sniff import is_hdf5, start


def recognizes(path: Path) -> bool:
    """Whether this is NetCDF 3 or HDF5."""
    return start(path)[:4] in (b"CDF\x01", b"CDF\x02") or is_hdf5(path)


def read(path: Path, names: Names) -> Layout:
    """The variables as their conventions decode them: packing, fill values, dates."""
    if start(path)[:3] == b"CDF":
        return Layout(decoded(path, engine="scipy"))
    return Layout(decoded(path, engine="h5netcdf", phony_dims="sort"))


def decoded(path: Path, **backend: object) -> xarray.Dataset:
    """A data set in its file; times of calendars that cannot be decoded stay numbers."""
    options = {"chunks": None, "cache": False, "decode_timedelta": False, **backend}
    with warnings.catch_warnings():
        # old files name two values for what is missing; xarray takes both for missing, and says so
        warnings.filterwarnings("ignore", message=".*multiple fill values", category=xarray.SerializationWarning)
        try:
            return xarray.open_dataset(path, **options)
        except ValueError as error:
            if "decode time" not in str(error):
                raise
            return xarray.open_dataset(path, decode_times=False, **options)
