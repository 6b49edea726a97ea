"""Zarr groups, version 2 and 3, as xarray writes them."""

from __future__ import annotations

from pathlib import Path

from loca.data.files.formats.layout import Layout, Names
from loca.data.files.formats.netcdf import decoded


def recognizes(path: Path) -> bool:
    """Whether this folder is the root of a Zarr group."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def read(path: Path, names: Names) -> Layout:
    """The variables of the group."""
    return Layout(decoded(path, engine="zarr", consolidated=False))
