"""From a model to a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loca.data import Records, Samples
from loca.durable import sync, write_atomically
from loca.models import Operator
from loca.saving.describing import describe
from loca.saving.digest import write_digested
from loca.saving.entries import Arrays, entry_of
from loca.saving.header import Header
from loca.saving.header_reading import read_document
from loca.saving.header_writing import write_document
from loca.saving.layout import parse_header, write_header


def save(
    model: Operator,
    path: str | os.PathLike[str],
    *,
    data: Samples | Records | Header | None = None,
    metrics: Mapping[str, float] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to one file, which is there as a whole or not at all.

    A file of that name stays as it is until the new one is on the disk, and whatever goes wrong before.

    **Arguments:**

    - `model`: any operator made of modules, arrays, numbers, text and named functions.
    - `path`: the file, `NAME.safetensors` by custom.
    - `data`: tells the names and units of the channels and the domain: the data the model was trained on, or what
        `inspect` tells of another file. Without it channels are called u1, u2, … and s1, s2, …
    - `metrics`: what the model is worth, such as `{"relative_l2": 0.01}`.
    - `provenance`: where it comes from, anything that JSON can hold.
    """
    path = Path(path)
    arrays: Arrays = {}
    structure = describe(model, "", arrays)
    # Wide numbers first: then every array begins at a multiple of the width of its numbers.
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    entries = {place: entry_of(array.dtype, array.shape, place) for place, array in arrays.items()}
    text = write_document(model, structure, data, metrics or {}, provenance or {})
    header = write_header(text, entries)
    size = sum(entry.size for entry in entries.values())
    read_document(*parse_header(header[8:], size), digest="", size=0)  # what no reader would take is not written
    write_atomically(path, lambda file: write_digested(file, header, arrays.values()))
    sync(path.parent)
