"""Tables in .csv files: numbers of every sample, one row each, or functions, one row for each sample and location."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from loca.data.files.datasets import Layout, Roles

FILE = "file"
"""The column that names the file of a sample; without it, rows are in the order of the files."""


def read_table(path: Path, roles: Roles) -> Layout:
    """The columns by their names in the first row; the file is read completely.

    One row per sample: numbers are inputs, unless the user says otherwise. If the names of some columns are numbers,
    these columns are a function of these numbers, named like the file.

    Several rows per sample, if the column `sample` repeats: the outputs are functions. Columns that are constant
    within every sample are numbers, and all others the coordinates of the locations.
    """
    table = _columns(path)
    sample = roles.sample or "sample"
    if sample in table and len(np.unique(table[sample])) < len(table[sample]):
        return _of_locations(path, table, sample, roles)
    at = [name for name in table if _is_number(name)]
    numbers = tuple(name for name, c in table.items() if c.dtype.kind == "f" and name not in (sample, *at))
    dataset = xarray.Dataset({name: (sample, c) for name, c in table.items() if name not in at})
    dataset = dataset.set_coords([name for name in (sample, FILE) if name in dataset])
    if at:
        values = np.stack([table[name] for name in at], axis=1)
        dataset[path.stem] = (sample, "at"), values
        dataset = dataset.assign_coords(at=[float(name) for name in at])
    outputs = roles.outputs or ((path.stem,) if at else ())
    return Layout(dataset, sample, tuple(name for name in numbers if name not in outputs), outputs)


def _of_locations(path: Path, table: dict[str, np.ndarray], sample: str, roles: Roles) -> Layout:
    """The functions in a table with one row for each sample and location."""
    keys, first, owner, counts = np.unique(table[sample], return_index=True, return_inverse=True, return_counts=True)
    if len(set(counts)) > 1:
        i, j = np.argmin(counts), np.argmax(counts)
        raise ValueError(f"{path} has {counts[i]} rows for {sample} {keys[i]} but {counts[j]} for {sample} {keys[j]}")
    if not roles.outputs:
        raise ValueError(f"{path} has several rows per {sample}; pass outputs= among {', '.join(table)}")
    order = np.argsort(np.argsort(np.argsort(first, kind="stable"))[owner], kind="stable")
    variables: dict[str, Any] = {}
    coords: dict[str, Any] = {sample: (sample, keys[np.argsort(first, kind="stable")])}
    for name, column in table.items():
        values = column[order].reshape(len(keys), -1)
        if name == sample or values.dtype.kind != "f":
            continue
        if name in roles.outputs or (name in roles.inputs and not (values == values[:, :1]).all()):
            variables[name] = ((sample, "point"), values)
        elif (values == values[:, :1]).all():
            variables[name] = (sample, values[:, 0])
        else:
            coords[name] = ("point", values[0]) if (values == values[0]).all() else ((sample, "point"), values)
    numbers = tuple(name for name, (dims, _) in variables.items() if dims == sample)
    return Layout(xarray.Dataset(variables, coords), sample, numbers, roles.outputs)


def _columns(path: Path) -> dict[str, np.ndarray]:
    """The columns by name: numbers, NaN where a cell is empty, or text."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        file.seek(0)
        delimiter = max(",;\t", key=first.count)
        reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
        names = [name.strip() for name in next(reader)]
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    if len(set(names)) < len(names) or "" in names:
        raise ValueError(f"{path}: the first row must name every column once, got {', '.join(map(repr, names))}")
    if not rows:
        raise ValueError(f"{path} holds no functions: there are no rows below the names of the columns")
    for line, row in rows:
        if len(row) != len(names):
            raise ValueError(f"{path}, line {line}: {len(row)} cells for {len(names)} columns")
    return {name: _parsed(path, name, [(line, row[i]) for line, row in rows]) for i, name in enumerate(names)}


def _parsed(path: Path, name: str, cells: list[tuple[int, str]]) -> np.ndarray:
    """The cells of a column as numbers, or as text if none of them is a number."""
    wrong = [(line, cell) for line, cell in cells if cell and not _is_number(cell)]
    if len(wrong) == sum(bool(cell) for _, cell in cells) or name == FILE:
        return np.array([cell for _, cell in cells])
    if wrong:
        line, cell = wrong[0]
        raise ValueError(f"{path}, line {line}: {cell!r} in the column {name!r} is no number")
    return np.array([float(cell or "nan") for _, cell in cells])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
