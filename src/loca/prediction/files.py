"""Files of predictions and of query points: NetCDF, Zarr, and tables with one row per function and query."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loca.data import Variable, finish_group, write_vtu
from loca.domains import Domain
from loca.durable import sync, sync_tree, write_atomically
from loca.models import canonical_name
from loca.prediction.queries import QueryGrid, QueryPoints

if TYPE_CHECKING:
    import pandas
    import xarray

SUFFIXES = (".nc", ".zarr", ".csv", ".parquet", ".vtu")  # the endings of files that predictions are written to


def write_dataset(found: xarray.Dataset, path: str | os.PathLike[str], domain: Domain | None = None) -> None:
    """Write a prediction at once, atomically: as NetCDF or Zarr, as a table with one row per function and query, or as
    a mesh.

    **Arguments:**

    - `found`: the prediction, from `predict_dataset`.
    - `path`: FILE.nc, FILE.zarr, FILE.csv, FILE.parquet, which needs the package pyarrow, or FILE.vtu, which is
      FILE_0.vtu, FILE_1.vtu, … for several functions. An existing file is replaced, but not a directory FILE.zarr.
    - `domain`: Y, whose cells a .vtu file has; needed for these only.
    """
    path = Path(path)
    check_suffix(path)
    if path.suffix == ".nc":
        write_atomically(path, lambda file: found.to_netcdf(file.name, engine="h5netcdf"))
    elif path.suffix == ".zarr":
        if path.exists():
            raise FileExistsError(f"{path} already exists; choose another name, or delete it first")
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as place:
            group = Path(place) / "data"
            found.to_zarr(group, zarr_format=3, consolidated=False)
            finish_group(group)
            sync_tree(group)
            group.rename(path)
        sync(path.parent)
    elif path.suffix == ".vtu":
        if domain is None:
            raise ValueError(f"{path.name} needs the cells of the mesh; pass `domain`, such as `model.domain`")
        write_vtu(found, path, domain, _sample_dimension(found))
    else:
        table = _as_table(found)
        write = table.to_csv if path.suffix == ".csv" else table.to_parquet
        write_atomically(path, lambda file: write(file, index=False))


def check_suffix(path: Path, accepted: Sequence[str] = SUFFIXES) -> None:
    """Raise unless predictions can be written to a file of this name."""
    if path.suffix not in accepted:
        raise ValueError(f"expected a name that ends in {', '.join(accepted[:-1])} or {accepted[-1]}, got {path.name}")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ValueError("Parquet files need pyarrow; install it with `pip install loca-jax[parquet]`, or write .csv")


def _as_table(found: xarray.Dataset) -> pandas.DataFrame:
    """One row per function and query: the function, the coordinates, then the outputs."""
    dims = list(found.sizes)
    outputs = [str(name) for name in found.data_vars]
    sample = _sample_dimension(found)
    order = [sample, *[str(dim) for dim in dims if dim != sample]]
    table = found.to_dataframe(dim_order=order).reset_index()
    located = {str(dim) for name, c in found.coords.items() for dim in c.dims if name not in dims}
    numbers = [dim for dim in order if dim not in found.coords and dim in located]  # places in a list, no coordinates
    columns = [str(name) for name in table.columns if name not in (*outputs, *numbers)]
    table = table.reindex(columns=[*columns, *outputs])
    functions = [name for name in outputs if found[name].ndim > 1]
    return table.dropna(subset=functions, how="all")  # where the data has no locations


def _sample_dimension(found: xarray.Dataset) -> str:
    """The first dimension of the first output."""
    return str(next(iter(found.data_vars.values())).dims[0] if found.data_vars else next(iter(found.sizes)))


def read_points(path: str | os.PathLike[str], coordinates: Sequence[Variable]) -> QueryPoints | QueryGrid:
    """Read query locations from a table, or from variables of a NetCDF or Zarr file.

    Variables along one dimension are points; if each has a dimension of its own, they are the axes of a grid.

    **Arguments:**

    - `path`: FILE.csv, FILE.parquet, FILE.nc or FILE.zarr with a column or variable for each coordinate.
    - `coordinates`: names and units of the coordinates, such as `model.signature.query_coordinates`.
    """
    columns = read_columns(path)
    coordinates = tuple(coordinates)
    names = [each.name for each in coordinates]
    found = {canonical_name(name): column for name, column in columns.items()}
    missing = [name for name in names if canonical_name(name) not in found]
    if missing:
        listed = ", ".join(columns) or "none"
        raise ValueError(f"{path} has no column {', '.join(missing)}; expected {', '.join(names)}, found {listed}")
    dims, values = zip(*(found[canonical_name(name)] for name in names), strict=True)
    for name, column in zip(names, values, strict=True):
        if not np.isfinite(column).all():
            row = int(np.flatnonzero(~np.isfinite(column))[0]) + 1
            raise ValueError(f"{path} has missing coordinates: {name} in row {row}")
    if len(set(dims)) == len(dims) > 1 and all(map(len, values)):
        return QueryGrid(coordinates, values)
    if len({len(column) for column in values}) > 1 or not len(values[0]):
        sizes = ", ".join(f"{name}: {len(column)}" for name, column in zip(names, values, strict=True))
        raise ValueError(f"{path} must have one or more values of every coordinate, equally many; found {sizes}")
    return QueryPoints(coordinates, np.stack(values, axis=-1))


def read_columns(path: str | os.PathLike[str]) -> dict[str, tuple[str, np.ndarray]]:
    """The columns of a table, or the one-dimensional variables of a NetCDF or Zarr file, that hold numbers.

    Each comes with the dimension that it is along.
    """
    path = Path(path)
    if path.suffix in (".nc", ".zarr"):
        import xarray

        with xarray.open_dataset(path, engine="h5netcdf" if path.suffix == ".nc" else "zarr") as found:
            variables = [(str(name), each) for name, each in found.variables.items() if each.ndim == 1]
            arrays = {name: (str(each.dims[0]), each.to_numpy()) for name, each in variables}
    elif path.suffix in (".csv", ".parquet"):
        import pandas

        check_suffix(path)
        table = pandas.read_csv(path, skipinitialspace=True) if path.suffix == ".csv" else pandas.read_parquet(path)
        arrays = {str(name).strip(): ("row", table[name].to_numpy()) for name in table.columns}
    else:
        raise ValueError(f"expected points in a file that ends in .csv, .parquet, .nc or .zarr, got {path.name}")
    return {name: (dim, a.astype(np.float64)) for name, (dim, a) in arrays.items() if a.dtype.kind in "fiu"}
