"""Opening files of any known format."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loca.data.files.labeled import Labeled, as_names, contents
from loca.data.records import Records, Rows
from loca.domains import Domain

if TYPE_CHECKING:
    from loca.data.files.datasets import Layout, Names

FORMATS = ("loca", "zarr", "well", "pdebench", "camlab", "matlab", "npz", "netcdf")
"""The formats that `open` reads, in the order in which it tries to recognize them."""

AnyPath = str | os.PathLike[str]


class Reader(NamedTuple):
    """The reader of a format: whether a file has this format, and its labeled contents, left in the file."""

    recognizes: Callable[[Path], bool]
    read: Callable[[Path, Names], Layout]


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
    split_convention: str | None = None,
    num_samples_max: int | None = None,
    unsolved: bool = False,
) -> Records:
    """Open files of any format in `FORMATS` as pairs (u, s). Only labels are read until the pairs are loaded.

    The format is recognized by the content. NetCDF and Zarr files can hold anything, so `inputs`, `outputs` and
    `sample` are required for them; the other formats define these roles, and arguments override them.

    **Arguments:**

    - `path`: a file or folder, a pattern such as `"air.*.nc"`, or several paths. Several files, in the order of their
      names or as given, are read as one file with more samples; inputs and outputs may be in separate files.
    - `inputs`, `outputs`: names of the variables that make up u and s.
    - `sample`: the dimension that counts the pairs.
    - `input_times`, `output_times`: the time steps of trajectories that make up u and s. In formats of trajectories
      the defaults are the first step and all later steps.
    - `sensors`, `queries`: in .npz and .mat, names of the arrays of locations x and y.
    - `domain`: Y, such as a `Mesh`; by default the sphere, a torus or a box, whichever the coordinates describe.
    - `format`: one of `FORMATS`; by default it is recognized.
    - `split`: the official name of a subset: "train", "valid" or "test" for a folder of the Well, "train" or "test"
      for PDEBench.
    - `split_convention`: PDEBench's loaders disagree: "single" tests on the first tenth, "multi" on the last tenth.
      By default the one that PDEBench's configurations use for the file.
    - `num_samples_max`: the number of samples of which "single" takes a tenth; PDEBench's configurations use 1000 or
      all.
    - `unsolved`: whether to accept NetCDF, Zarr, .npz and .mat files that hold inputs only; see `Labeled`.
    """
    from loca.data.files import pdebench, well
    from loca.data.files.datasets import Names

    files = expand(path)
    if format is not None and format not in FORMATS:
        raise ValueError(f"there is no format {format!r}; choose one of {', '.join(FORMATS)}")
    if len(files) == 1 and is_plain_folder(files[0]):
        files, split = well.split_files(files[0], split), None
    kind = format or recognize(files[0])
    # only "camlab" cannot always be recognized: its fields on grids have no locations
    if format not in (None, "loca", "camlab") and not readers()[kind].recognizes(files[0]):
        raise ValueError(f"{files[0]} does not have the format {format!r}; omit format= to have it recognized")
    if kind == "loca":
        from loca.data.store import Store

        given = (inputs, outputs, sample, input_times, output_times, split, domain)
        if any(option is not None for option in given):
            raise ValueError(f"{files[0]} is a store of loca, whose roles are fixed; open it without further arguments")
        return Store.open(files[0])
    if split is not None and kind != "pdebench":
        raise ValueError(f"{files[0]} ({kind}) has no official split {split!r}; open it and use select(rows)")

    names = Names(as_names(inputs or ()), as_names(outputs or ()), sensors, queries, unsolved)
    layout = read(files, kind, names, sample)
    source = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    if layout.sample is None or not layout.inputs or not (layout.outputs or unsolved):
        raise ValueError(
            f"{source} ({kind}) does not define inputs and outputs: pass inputs=, outputs= (names of variables) and "
            f"sample= (the dimension that counts the pairs); it holds\n{contents(layout.dataset)}"
        )
    if layout.time is not None:
        input_times = slice(0, 1) if input_times is None else input_times
        output_times = slice(1, None) if output_times is None else output_times
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
    convention = split_convention or pdebench.convention(files[0])
    return records.select(pdebench.split_rows(len(records), split, convention, num_samples_max))


def readers() -> dict[str, Reader]:
    """The reader of every format except stores of loca, in the order of `FORMATS`."""
    from loca.data.files import array_files, netcdf, pdebench, well

    return {
        "zarr": Reader(netcdf.is_zarr, netcdf.read_zarr),
        "well": Reader(well.is_well, well.read_well),
        "pdebench": Reader(pdebench.is_pdebench, pdebench.read_pdebench),
        "camlab": Reader(netcdf.is_camlab, netcdf.read_camlab),
        "matlab": Reader(array_files.is_matlab, array_files.read_matlab),
        "npz": Reader(array_files.is_npz, array_files.read_npz),
        "netcdf": Reader(netcdf.is_netcdf, netcdf.read_netcdf),
    }


def expand(path: AnyPath | Sequence[AnyPath]) -> list[Path]:
    """All files that a path, a pattern or several paths stand for, in the order of their names or as given."""
    if not isinstance(path, str | os.PathLike):
        found = [file for one in path for file in expand(one)]
    elif glob.has_magic(str(path)) and not Path(path).exists():
        found = [Path(match) for match in sorted(glob.glob(str(path)))]  # noqa: PTH207
    else:
        found = [Path(path)]
    missing = [str(file) for file in found if not file.exists()]
    if missing or not found:
        raise FileNotFoundError(
            f"there is no file {', '.join(missing) or path}; pass an existing path, a pattern or several paths"
        )
    return found


def recognize(file: Path) -> str:
    """The format of a file, recognized by its content."""
    from loca.data.store import is_store

    if is_store(file):
        return "loca"
    for name, reader in readers().items():
        if reader.recognizes(file):
            return name
    raise ValueError(f"{file} has none of the known formats: {', '.join(FORMATS)}; convert it, or pass format=")


def is_plain_folder(path: Path) -> bool:
    """Whether the path is a folder of files, not a Zarr group."""
    from loca.data.files.netcdf import is_zarr

    return path.is_dir() and not is_zarr(path)


def read(files: Sequence[Path], kind: str, names: Names, sample: str | None) -> Layout:
    """Read all files as one data set, with the roles that its format defines unless others are given."""
    from loca.data.files.datasets import join

    reader = readers()[kind]
    layouts = [reader.read(file, names) for file in files]
    layout, dataset = layouts[0], layouts[0].dataset
    sample = sample or layout.sample
    if sample is not None and len(files) > 1:
        dataset = join([each.dataset for each in layouts], sample, files, (*names.inputs, *names.outputs))
    differing = tuple(name for name in layout.parameters if sample in dataset[name].dims)
    outputs = layout.named(names.outputs) or layout.outputs
    if names.unsolved and not set(outputs) & set(dataset.variables):
        outputs = ()
    return dataclasses.replace(
        layout,
        dataset=dataset,
        sample=sample,
        inputs=layout.named(names.inputs) or (*layout.inputs, *differing),
        outputs=outputs,
    )
