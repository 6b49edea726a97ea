"""Opening files of any known format."""

from __future__ import annotations

import dataclasses
import glob
import os
import pkgutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loca.data.files.labeled import DAMAGE, Labeled, as_names, contents, naming
from loca.data.files.meshes import SUFFIXES
from loca.data.records import Records, Rows
from loca.data.store import Store, is_store
from loca.domains import Domain

if TYPE_CHECKING:
    import xarray

    from loca.data.files.datasets import Layout, Roles

READERS = {
    "zarr": "datasets.read_zarr",
    "mesh": "meshes.read_mesh",
    "table": "tables.read_table",
    "well": "benchmarks.read_well",
    "pdebench": "benchmarks.read_pdebench",
    "matlab": "arrays.read_matlab",
    "npz": "arrays.read_npz",
    "netcdf": "datasets.read_netcdf",
}
"""The function that reads each format, from the path and the roles; xarray is imported when a file is opened."""

FORMATS = ("loca", *READERS)
"""The formats that `open` reads, in the order in which it tries to recognize them."""

ENDINGS = {**dict.fromkeys(SUFFIXES, "mesh"), ".csv": "table"}
"""Formats that are recognized by the name."""

SIGNATURES = {
    b"MATLAB 5.0": "matlab",
    b"MATLAB 7.3": "matlab",
    b"PK\x03\x04": "npz",
    b"CDF\x01": "netcdf",
    b"CDF\x02": "netcdf",
}
"""Formats that are recognized by the first bytes."""

AnyPath = str | os.PathLike[str]


def open(  # noqa: A001
    path: AnyPath | Sequence[AnyPath],
    *,
    inputs: str | Sequence[str] | None = None,
    outputs: str | Sequence[str] | None = None,
    sample: str | None = None,
    input_times: Rows | None = None,
    output_times: Rows | None = None,
    sensors: str | None = None,
    queries: str | None = None,
    domain: Domain | None = None,
    format: str | None = None,  # noqa: A002
    split: str | None = None,
    unsolved: bool = False,
) -> Records:
    """Open files of any format in `FORMATS` as pairs (u, s). Only labels are read until the pairs are loaded.

    The format is recognized by the content, meshes and tables by the name. NetCDF and Zarr files can hold anything, so
    `inputs`, `outputs` and `sample` are required for them; the other formats define these roles, and arguments override
    them.

    **Arguments:**

    - `path`: a file or folder, a pattern such as `"air.*.nc"`, or several paths. Several files, in the order of their
      names or as given, are read as one file with more samples; inputs and outputs may be in separate files, also of
      different formats.
    - `inputs`, `outputs`: names of the variables that make up u and s.
    - `sample`: the dimension that counts the pairs; in tables, the column that numbers them.
    - `input_times`, `output_times`: the time steps of trajectories that make up u and s. In formats of trajectories
      the defaults are the first step and all later steps.
    - `sensors`, `queries`: in .npz and .mat, names of the arrays of locations x and y.
    - `domain`: Y, such as a `Mesh`; by default that of the file, or the sphere, a torus or a box, whichever the
      coordinates describe.
    - `format`: one of `FORMATS`; by default it is recognized.
    - `split`: the official name of a subset: "train", "valid" or "test" for a folder of the Well, "train" or "test"
      for PDEBench.
    - `unsolved`: whether to accept files that hold inputs only; see `Labeled`.
    """
    from loca.data.files.datasets import Roles

    files, kinds, split = _recognized(path, format, split)
    if kinds[0] == "loca":
        given = (inputs, outputs, sample, input_times, output_times, split, domain)
        if len(files) > 1 or any(option is not None for option in given):
            raise ValueError(f"{files[0]} is a store of loca, whose roles are fixed; open it without further arguments")
        return Store.open(files[0])
    _check_split(files[0], kinds[0], split)
    names = as_names(inputs or ()), as_names(outputs or ())
    layout = _read(files, kinds, Roles(*names, sample, sensors, queries, unsolved))
    source = _source(files)
    if layout.sample is None or not layout.inputs or not (layout.outputs or unsolved):
        raise ValueError(
            f"{source} ({kinds[0]}) does not define inputs and outputs: pass inputs=, outputs= (names of variables) "
            f"and sample= (the dimension that counts the pairs); it holds\n{contents(layout.dataset)}"
        )
    if layout.time is not None:
        input_times = slice(0, 1) if input_times is None else input_times
        output_times = slice(1, None) if output_times is None else output_times
    first = (layout.outputs or layout.inputs)[0]
    on_nodes = first in layout.dataset and "node" in layout.dataset[first].dims
    if domain is None and layout.domain is not None and on_nodes:
        domain = layout.domain()
    with naming(source, DAMAGE):
        records = Labeled(
            layout.dataset,
            layout.inputs,
            layout.outputs,
            layout.sample,
            input_times=input_times,
            output_times=output_times,
            time=layout.time,
            periods=layout.periods,
            domain=domain,
            source=source,
        )
    if split is None:
        return records
    from loca.data.files.benchmarks import split_rows

    return records.select(split_rows(files[0], len(records), split))


def open_layout(
    path: AnyPath | Sequence[AnyPath],
    fields: str | Sequence[str],
    *,
    sample: str | None = None,
    format: str | None = None,  # noqa: A002
    split: str | None = None,
) -> tuple[Layout, str, Rows | None]:
    """Files of trajectories: what they hold, their name, and the rows of a split; for `Trajectories.open`."""
    from loca.data.files.benchmarks import split_rows
    from loca.data.files.datasets import Roles

    files, kinds, split = _recognized(path, format, split)
    if kinds[0] == "loca":
        raise ValueError(f"{files[0]} is a store of loca, which holds pairs; open the files it was made from")
    _check_split(files[0], kinds[0], split)
    layout = _read(files, kinds, Roles(outputs=as_names(fields), sample=sample, unsolved=not fields))
    count = 1 if layout.sample is None else layout.dataset.sizes[layout.sample]
    return layout, _source(files), None if split is None else split_rows(files[0], count, split)


def _recognized(
    path: AnyPath | Sequence[AnyPath],
    format: str | None,  # noqa: A002
    split: str | None,
) -> tuple[list[Path], list[str], str | None]:
    """All files, their formats, and the split that is left to apply."""
    files = _expand(path)
    if format is not None and format not in FORMATS:
        raise ValueError(f"there is no format {format!r}; choose one of {', '.join(FORMATS)}")
    if len(files) == 1 and files[0].is_dir() and not _is_zarr(files[0]):
        files, split = _files_of(files[0], split)
    return files, [_recognize(file, format) for file in files], split


def _check_split(file: Path, kind: str, split: str | None) -> None:
    if split is not None and kind != "pdebench":
        raise ValueError(f"{file} ({kind}) has no official split {split!r}; open it and use select(rows)")


def _source(files: Sequence[Path]) -> str:
    return str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _expand(path: AnyPath | Sequence[AnyPath]) -> list[Path]:
    """All files that a path, a pattern or several paths stand for, in the order of their names or as given."""
    if not isinstance(path, str | os.PathLike):
        found = [file for one in path for file in _expand(one)]
    elif glob.has_magic(str(path)) and not Path(path).exists():
        found = [Path(match) for match in sorted(glob.glob(str(path)))]  # noqa: PTH207
    else:
        found = [Path(path)]
    missing = [str(file) for file in found if not file.exists()]
    if missing or not found:
        raise FileNotFoundError(f"there is no file {', '.join(missing) or path}; pass an existing path or pattern")
    return found


def _files_of(folder: Path, split: str | None) -> tuple[list[Path], str | None]:
    """The files of a folder of meshes and tables, or of one of the Well, and the split that is left to apply."""
    from loca.data.files.benchmarks import well_files

    found = sorted(file for file in folder.iterdir() if file.is_file() and file.suffix.lower() in ENDINGS)
    return (found, split) if found else (well_files(folder, split), None)


def _recognize(file: Path, format: str | None = None) -> str:  # noqa: A002
    """The format of a file, recognized by its content; raise if it is another than the given one."""
    if file.is_file() and not file.stat().st_size:
        raise ValueError(f"{file} is empty (0 bytes); write it again")
    with naming(file):
        known = _formats_of(file)
    if format is not None and format not in known:
        raise ValueError(f"{file} does not have the format {format!r}; omit format= to have it recognized")
    if not known:
        raise ValueError(f"{file} has none of the known formats: {', '.join(FORMATS)}; convert it, or pass format=")
    return format or known[0]


def _formats_of(file: Path) -> list[str]:
    """The formats that a file has, in the order of `FORMATS`."""
    if file.is_dir():
        return ["loca"] if is_store(file) else ["zarr"] if _is_zarr(file) else []
    with file.open("rb") as opened:
        start = opened.read(10)
    found = [ENDINGS[file.suffix.lower()]] if file.suffix.lower() in ENDINGS else []
    found += [name for signature, name in SIGNATURES.items() if start.startswith(signature)]
    if found == ["npz"]:
        with zipfile.ZipFile(file) as archive:
            return found if all(name.endswith(".npy") for name in archive.namelist()) else []
    import h5py

    if h5py.is_hdf5(file):  # possibly behind the header of another format
        from loca.data.files import benchmarks

        with h5py.File(file, "r") as root:
            found += [name for name, recognizes in benchmarks.RECOGNIZES.items() if recognizes(root)]
            found += ["matlab"] if any("MATLAB_class" in root[name].attrs for name in root) else []
        found.append("netcdf")
    return found


def _is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zmetadata"))


def _read(files: Sequence[Path], kinds: Sequence[str], roles: Roles) -> Layout:
    """Read all files as one data set, with the roles that their formats define unless others are given.

    Files of one kind that hold the same variables are concatenated along the sample. Files of different kinds, such as
    meshes and a table, and files that hold different variables, such as temperature and pressure, are merged.
    """
    from loca.data.files.datasets import concatenate

    given = (*roles.inputs, *roles.outputs)
    groups: dict[tuple[str, ...], list[tuple[Path, Layout]]] = {}
    for file, kind in sorted(zip(files, kinds, strict=True), key=lambda each: each[1] == "table"):
        with naming(file):
            layout: Layout = pkgutil.resolve_name(f"loca.data.files.{READERS[kind]}")(file, roles)
        present = [name for name in given if name in layout.dataset.variables or name in layout.parts]
        if kind == "table" and not present:
            present = [str(name) for name in layout.dataset.data_vars]
        groups.setdefault((kind, *present), []).append((file, layout))
    heads = [members[0][1] for members in groups.values()]
    for (_, *present), head, members in zip(groups, heads, groups.values(), strict=True):
        by_default = (head.inputs and not roles.inputs) or (head.outputs and not roles.outputs)
        if len(groups) > 1 and given and not (set(present) & set(given) or by_default):
            raise ValueError(f"{members[0][0]} holds none of {', '.join(given)}; leave it out")
        for (_, *others), (other, *_) in zip(groups, groups.values(), strict=True):
            if set(present) < set(others) and present:
                lacking = ", ".join(name for name in others if name not in present)
                raise ValueError(f"{members[0][0]} holds {', '.join(present)} but not {lacking}, unlike {other[0]}")
    sample, dataset = roles.sample or heads[0].sample, heads[0].dataset
    if sample is not None and len(files) > 1:
        wholes = [
            concatenate([layout.dataset for _, layout in members], sample, [file for file, _ in members])
            for members in groups.values()
        ]
        dataset = _merge(wholes, list(groups), sample)
    differing = tuple(name for name in heads[0].parameters if sample in dataset[name].dims)
    parts = {name: each for head in heads for name, each in head.parts.items()}
    domain = next((head.domain for head in heads if head.domain is not None), None)
    layout = dataclasses.replace(heads[0], dataset=dataset, sample=sample, parts=parts, domain=domain)
    outputs = layout.named(roles.outputs) or tuple(name for head in heads for name in head.outputs)
    if roles.unsolved and not set(outputs) & set(dataset.variables):
        outputs = ()
    inputs = layout.named(roles.inputs) or (*(name for head in heads for name in head.inputs), *differing)
    return dataclasses.replace(layout, inputs=inputs, outputs=outputs)


def _merge(wholes: Sequence[xarray.Dataset], groups: Sequence[tuple[str, ...]], sample: str) -> xarray.Dataset:
    """One data set with the variables of all, which must have the same samples and grids."""
    import xarray

    first, *others = wholes
    others = [
        _in_order(other, first, sample) if kind == "table" else other
        for other, (kind, *_) in zip(others, groups[1:], strict=True)
    ]
    if not others:
        return first
    try:
        return xarray.merge([first, *others], join="exact", compat="override")
    except ValueError as error:
        apart = " and of ".join(", ".join(names) or f"kind {kind}" for kind, *names in groups)
        counts = " and ".join(str(whole.sizes.get(sample, 0)) for whole in wholes)
        raise ValueError(
            f"the files of {apart} do not have the same samples and grids ({counts} samples): {error}"
        ) from error


def _in_order(table: xarray.Dataset, first: xarray.Dataset, sample: str) -> xarray.Dataset:
    """The rows of a table in the order of the other files: by its column `file` or that of the samples, if it has one.

    Names of files may be given with or without folder and ending.
    """
    key = next((key for key in ("file", sample) if key in table.coords and key in first.coords), None)
    if key is None:
        return table

    def names(dataset: xarray.Dataset) -> list[str]:
        found = [Path(str(value)) for value in dataset[key].to_numpy().tolist()]
        return [each.stem if each.suffix in SUFFIXES else each.name for each in found]

    wanted, given = names(first), names(table)
    if sorted(given) != sorted(wanted):
        lacks = ", ".join(sorted(set(wanted) - set(given))[:3]) or "no sample, but has others or has them twice"
        raise ValueError(f"the table lacks {lacks} (column {key!r}: {len(given)} rows for {len(wanted)} samples)")
    return table.isel({sample: [given.index(name) for name in wanted]}).drop_vars(key)
