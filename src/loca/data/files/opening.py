"""One door to whatever files there are."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from loca.data.files.labeled import Labeled, as_names, contents
from loca.data.records import Records, Rows

if TYPE_CHECKING:
    from loca.data.files.formats.layout import Layout, Names

FORMATS = ("loca", "zarr", "well", "pdebench", "camlab", "matlab", "npz", "netcdf")
"""What `open` understands, in the order in which it asks whose file this is."""

AnyPath = str | os.PathLike[str]


@runtime_checkable
class Reader(Protocol):
    """What a module of `loca.data.files.formats` offers."""

    def recognizes(self, path: Path) -> bool:
        """Whether the file is of this format."""
        ...

    def read(self, path: Path, names: Names) -> Layout:
        """Its contents, labeled, and left in the file."""
        ...


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
    format: str | None = None,  # noqa: A002
    split: str | None = None,
    split_convention: str | None = None,
    num_samples_max: int | None = None,
) -> Records:
    """Pairs (u, s) from files of any format in `FORMATS`; nothing but labels is read until it is asked for.

    The format is recognized by what is inside. NetCDF and Zarr can hold anything, so there `inputs`, `outputs` and
    `sample` have to be said; the other formats know, and can be told otherwise.

    **Arguments:**

    - `path`: a file or folder, a pattern such as `"air.*.nc"`, or several paths. Several files, in the order of their
      names or as given, are read as one with more samples; inputs and outputs may be in files of their own.
    - `inputs`, `outputs`: names of the variables that make up u and s.
    - `sample`: the dimension that counts the pairs.
    - `input_times`, `output_times`: which steps of trajectories make up u and s; in formats of trajectories by default
      the first step, and all later ones.
    - `sensors`, `queries`: in .npz and .mat, names of the arrays of locations x and y.
    - `format`: one of `FORMATS`, to skip the guess.
    - `split`: part of the data by its official name: "train", "valid" or "test" of a folder of the Well, "train" or
      "test" of PDEBench.
    - `split_convention`: PDEBench's loaders disagree: in "single" the first tenth is for testing, in "multi" the last.
      By default the one that its configurations use for the file.
    - `num_samples_max`: of how many samples "single" takes its tenth; PDEBench's configurations use 1000 or all.
    """
    from loca.data.files.formats import pdebench, well

    files = expand(path)
    if format is not None and format not in FORMATS:
        raise ValueError(f"there is no format {format!r}; choose among {', '.join(FORMATS)}")
    if len(files) == 1 and is_plain_folder(files[0]):
        files, split = well.split_files(files[0], split), None
    kind = format or recognize(files[0])
    # "camlab" is the one format that can be right without a mark: its fields on grids carry no locations
    if format not in (None, "loca", "camlab") and not readers()[kind].recognizes(files[0]):
        raise ValueError(f"{files[0]} is not of the format {format!r}; leave it out to have the format recognized")
    if kind == "loca":
        from loca.data.store.store import Store

        if any(option is not None for option in (inputs, outputs, sample, input_times, output_times, split)):
            raise ValueError(f"{files[0]} is a store of loca, whose roles are fixed; open it without other arguments")
        return Store.open(files[0])
    if split is not None and kind != "pdebench":
        raise ValueError(f"{files[0]} ({kind}) has no official split {split!r}; open it and use select(rows)")

    layout = read(files, kind, as_names(inputs or ()), as_names(outputs or ()), sample, sensors, queries)
    source = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    if layout.sample is None or not layout.inputs or not layout.outputs:
        raise ValueError(
            f"{source} ({kind}) does not say what is what: pass inputs=, outputs= (names of variables) and sample= "
            f"(the dimension that counts the pairs); it holds\n{contents(layout.dataset)}"
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
        source=source,
    )
    if split is None:
        return records
    convention = split_convention or pdebench.convention(files[0])
    return records.select(pdebench.split_rows(len(records), split, convention, num_samples_max))


def readers() -> dict[str, Reader]:
    """The reader of every format but our own, in the order of `FORMATS`."""
    from loca.data.files.formats import camlab, matlab, netcdf, npz, pdebench, well, zarr

    return {
        "zarr": zarr,
        "well": well,
        "pdebench": pdebench,
        "camlab": camlab,
        "matlab": matlab,
        "npz": npz,
        "netcdf": netcdf,
    }


def expand(path: AnyPath | Sequence[AnyPath]) -> list[Path]:
    """All files that are meant, in the order of their names or as given."""
    if not isinstance(path, str | os.PathLike):
        found = [file for one in path for file in expand(one)]
    elif glob.has_magic(str(path)) and not Path(path).exists():
        found = [Path(match) for match in sorted(glob.glob(str(path)))]  # noqa: PTH207
    else:
        found = [Path(path)]
    missing = [str(file) for file in found if not file.exists()]
    if missing or not found:
        raise FileNotFoundError(
            f"there is no file {', '.join(missing) or path}; pass a path, a pattern or several paths"
        )
    return found


def recognize(file: Path) -> str:
    """The format of a file, by what is inside."""
    from loca.data.store.store import is_store

    if is_store(file):
        return "loca"
    for name, reader in readers().items():
        if reader.recognizes(file):
            return name
    raise ValueError(f"{file} is of no format that is understood: {', '.join(FORMATS)}; convert it, or pass format=")


def is_plain_folder(path: Path) -> bool:
    """Whether this is a folder of files, not one that is a file to its format."""
    from loca.data.files.formats import zarr

    return path.is_dir() and not zarr.recognizes(path)


def read(
    files: Sequence[Path],
    kind: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    sample: str | None,
    sensors: str | None,
    queries: str | None,
) -> Layout:
    """All files as one data set, with the roles of its format unless others were asked for."""
    from loca.data.files.formats.layout import Names
    from loca.data.files.formats.lazy import join

    reader = readers()[kind]
    layouts = [reader.read(file, Names(inputs, outputs, sensors, queries)) for file in files]
    layout, dataset = layouts[0], layouts[0].dataset
    sample = sample or layout.sample
    if sample is not None and len(files) > 1:
        dataset = join([each.dataset for each in layouts], sample, files, (*inputs, *outputs))
    differing = tuple(name for name in layout.parameters if sample in dataset[name].dims)
    return dataclasses.replace(
        layout,
        dataset=dataset,
        sample=sample,
        inputs=layout.named(inputs) or (*layout.inputs, *differing),
        outputs=layout.named(outputs) or layout.outputs,
    )
