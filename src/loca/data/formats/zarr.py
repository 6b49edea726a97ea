"""Zarr groups, version 2 and 3, as xarray writes them."""

from __future__ import annotations

import json
from pathlib import Path

from loca.data.formats.layout import Layout, Names
from loca.data.formats.netcdf import decoded


def recognizes(path: Path) -> bool:
    """Whether this folder is the root of a Zarr group."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def attributes(path: Path) -> dict:
    """The attributes of the group."""
    for name, where in (("zarr.json", ("attributes",)), (".zattrs", ())):
        if (path / name).is_file():
            found = json.loads((path / name).read_text())
            for key in where:
                found = found.get(key, {})
            return found
    return {}


def read(path: Path, names: Names) -> Layout:
    """The variables of the group."""
    return Layout(decoded(path, engine="zarr", consolidated=False))
