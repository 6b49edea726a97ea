"""`FILE.zarr.partial`: a prediction in the making; whatever is killed, what is done stays done."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

from loca.data.store import group_attributes
from loca.durable import differences, is_started, sync, without_versions, write_atomically, write_request
from loca.prediction.job import Job, Parts

DESCRIPTION = "loca_prediction"
"""The attribute that says what a prediction is of, as JSON: NetCDF, to which users copy it, knows no nested ones."""


class Draft:
    """A Zarr group whose chunks are tiles, and a mark for each tile that is on the disk.

    **Arguments:**

    - `path`: where the prediction will be once it is whole.
    - `request`: what is asked for, as JSON can hold it.
    """

    def __init__(self, path: Path, request: dict[str, Any]):
        self.path = path
        self.request = json.loads(json.dumps(request))
        self.directory = path.with_name(path.name + ".partial")
        self.data, self.marks = self.directory / "data", self.directory / "marks"

    def check_existing(self) -> None:
        """Raise unless the prediction that is there already is the one asked for."""
        description = group_attributes(self.path).get(DESCRIPTION)
        if description is None:
            raise FileExistsError(
                f"{self.path} is there already and is no prediction of loca; choose another name, or delete it first"
            )
        if difference := differences(without_versions(json.loads(description)), without_versions(self.request)):
            raise FileExistsError(
                f"{self.path} is there already and holds another prediction ({difference}); "
                "choose another name, or delete it first"
            )

    def begin(self, job: Job) -> None:
        """Write coordinates and empty arrays, or see that what was begun is what is asked for now."""
        if not is_started(self.directory, self.request):
            self.marks.mkdir(exist_ok=True)
            self.create(job)
            write_request(self.directory, self.request)
        for leftover in self.marks.glob(".*"):  # of a killed run
            leftover.unlink()

    def create(self, job: Job) -> None:
        """The group with everything but its tiles."""
        import zarr
        from zarr.codecs import Crc32cCodec

        coordinates = job.coordinates()
        coordinates.attrs = {DESCRIPTION: json.dumps(self.request), **coordinates.attrs}
        coordinates.to_zarr(self.data, mode="w", zarr_format=3, consolidated=False)
        group = zarr.open_group(self.data, mode="r+")
        for name, array in job.arrays.items():
            group.create_array(
                name,
                shape=array.shape,
                dtype=array.dtype,
                chunks=array.chunks,
                compressors=Crc32cCodec(),
                fill_value=float("nan") if array.dtype.startswith("float") else 0,
                dimension_names=array.dims,
                attributes=array.attributes,
            )

    def done(self) -> set[str]:
        """The tiles that need not be made again."""
        return {mark.name for mark in self.marks.iterdir()}

    def put(self, name: str, parts: Parts) -> None:
        """Write a tile, and mark it when it is on the disk."""
        import zarr

        for array_name, (region, values) in parts.items():
            with zarr.config.set({"array.write_empty_chunks": True}):  # a tile of nothing but NaN is a tile
                array = zarr.open_array(self.data / array_name, mode="r+")
            array[region] = values
            places = (str(along.start // side) for along, side in zip(region, array.chunks, strict=True))
            sync(self.data.joinpath(array_name, "c", *places))
        write_atomically(self.marks / name, lambda file: None)

    def finish(self) -> None:
        """Give the whole its name, and remove what is not part of it."""
        import zarr

        for leftover in self.data.rglob("*.partial"):  # what a killed run was writing
            leftover.unlink()
        with warnings.catch_warnings():  # not part of the Zarr v3 standard yet, but xarray warns whoever has none
            warnings.filterwarnings("ignore", "Consolidated metadata")
            zarr.consolidate_metadata(self.data)
        sync(self.data / "zarr.json")
        self.data.rename(self.path)
        sync(self.path.parent)
        self.remove()

    def remove(self) -> None:
        """Remove what is left of the making."""
        shutil.rmtree(self.directory, ignore_errors=True)
