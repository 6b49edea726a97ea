"""`FILE.zarr.partial`: an unfinished prediction, which resumes where it was interrupted."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

from loca.data import group_attributes
from loca.durable import differences, is_started, sync, sync_tree, without_versions, write_atomically, write_request
from loca.prediction.grid import TileValues
from loca.prediction.tiles import Tiles

DESCRIPTION = "loca_prediction"
"""The attribute that describes a prediction, as JSON text: NetCDF, to which users copy it, has no nested attributes."""


class PartialPrediction:
    """A Zarr group whose chunks are tiles, and an empty file `marks/TILE` for every tile that is on the disk.

    **Arguments:**

    - `path`: the path of the complete prediction.
    - `request`: a description of the prediction, as JSON values.
    """

    def __init__(self, path: Path, request: dict[str, Any]):
        self.path = path
        self.request = json.loads(json.dumps(request))
        self.directory = path.with_name(path.name + ".partial")
        self.data, self.marks = self.directory / "data", self.directory / "marks"

    def check_existing(self) -> None:
        """Raise unless the prediction that already exists is the requested one."""
        description = group_attributes(self.path).get(DESCRIPTION)
        if description is None:
            raise FileExistsError(
                f"{self.path} already exists and is not a prediction of loca; choose another name, or delete it first"
            )
        if difference := differences(without_versions(json.loads(description)), without_versions(self.request)):
            raise FileExistsError(
                f"{self.path} already exists and holds another prediction ({difference}); "
                "choose another name, or delete it first"
            )

    def begin(self, tiles: Tiles) -> None:
        """Write coordinates and empty arrays, or check that the prediction to resume is the requested one."""
        if not is_started(self.directory, self.request):
            self.marks.mkdir(exist_ok=True)
            self.create(tiles)
            write_request(self.directory, self.request)
        for leftover in self.marks.glob(".*"):  # of a killed process
            leftover.unlink()

    def create(self, tiles: Tiles) -> None:
        """Create the group with everything but the tiles."""
        import zarr
        from zarr.codecs import Crc32cCodec

        coordinates = tiles.complete_coordinates()
        coordinates.attrs = {DESCRIPTION: json.dumps(self.request), **coordinates.attrs}
        coordinates.to_zarr(self.data, mode="w", zarr_format=3, consolidated=False)
        group = zarr.open_group(self.data, mode="r+")
        for name, array in tiles.arrays.items():
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
        """The names of the tiles that are on the disk."""
        return {mark.name for mark in self.marks.iterdir()}

    def write(self, name: str, values: TileValues) -> None:
        """Write a tile, and mark it once it is on the disk."""
        import zarr

        for array_name, (region, part) in values.items():
            with zarr.config.set({"array.write_empty_chunks": True}):  # a tile may contain nothing but NaN
                array = zarr.open_array(self.data / array_name, mode="r+")
            array[region] = part
            places = (str(along.start // side) for along, side in zip(region, array.chunks, strict=True))
            sync(self.data.joinpath(array_name, "c", *places))
        write_atomically(self.marks / name, lambda file: None)

    def finish(self) -> None:
        """Give the complete prediction its name, and remove everything else."""
        import zarr

        for leftover in self.data.rglob("*.partial"):  # of a killed process
            leftover.unlink()
        with warnings.catch_warnings():  # not yet part of the Zarr v3 standard, but without it xarray warns its users
            warnings.filterwarnings("ignore", "Consolidated metadata")
            zarr.consolidate_metadata(self.data)
        sync_tree(self.data)
        self.data.rename(self.path)
        sync(self.path.parent)
        self.remove()

    def remove(self) -> None:
        """Remove the directory of the unfinished prediction."""
        shutil.rmtree(self.directory, ignore_errors=True)
