"""Save a model to one file, load it, and inspect it."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loca.data import Records, Samples
from loca.durable import sync, write_atomically
from loca.models import Operator
from loca.saving.container import (
    Arrays,
    Container,
    Entry,
    entry_of,
    open_container,
    parse_header,
    write_container,
    write_header,
)
from loca.saving.header import Header, read_document, write_document
from loca.saving.registry import Classes
from loca.saving.strict_json import ModelFileError
from loca.saving.structure import Rebuilder, describe

MODEL_FILE = "model.safetensors"
"""The file of a run directory with the trained model."""


def save(
    model: Operator,
    path: str | os.PathLike[str],
    *,
    data: Samples | Records | Header | None = None,
    metrics: Mapping[str, float] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to one file, atomically.

    An existing file is replaced only when the new one is completely on the disk; any error before leaves it unchanged.

    **Arguments:**

    - `model`: any operator made of modules, arrays, numbers, text and named functions.
    - `path`: the file, by convention `NAME.safetensors`.
    - `data`: names and units of the channels, and the domain: the data that the model was trained on, or what
        `inspect` returns for another file. Without it channels are called u1, u2, … and s1, s2, …
    - `metrics`: errors of the model, such as `{"relative_l2": 0.01}`.
    - `provenance`: the origin of the model, in any form that JSON can hold.
    """
    arrays: Arrays = {}
    structure = describe(model, "", arrays)
    document = write_document(model, structure, data, metrics or {}, provenance or {})
    write_arrays(Path(path), document, arrays, check=functools.partial(read_document, digest="", size=0))


def write_arrays(
    path: Path, document: str, arrays: Arrays, check: Callable[[str, Mapping[str, Entry]], object]
) -> None:
    """Write a JSON document and arrays to one file in the form of a model file, atomically.

    **Arguments:**

    - `path`: the file.
    - `document`, `arrays`: its contents.
    - `check`: reads the document, given the entries of the arrays too; what cannot be read is not written.
    """
    # wide numbers first: then every array begins at a multiple of the width of its numbers
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))
    header = write_header(document, {place: entry_of(array, place) for place, array in arrays.items()})
    check(*parse_header(header[8:]))
    write_atomically(path, lambda file: write_container(file, header, arrays.values()))
    sync(path.parent)


def load(path: str | os.PathLike[str], *, classes: Classes = ()) -> Operator:
    """Load a model as it was saved.

    Every size is checked against the file before memory is allocated, and every bit against the digest. Nothing in the
    file is executed or imported. Raise `ModelFileError` for anything but a complete and valid model file.

    **Arguments:**

    - `path`: a file written by `save`.
    - `classes`: your own classes and activations that the model is made of: `load(path, classes=[MyKernel])`.
    """
    with opened(Path(path)) as (header, container):
        rebuilder = Rebuilder(container.read, classes, header.versions.get("loca-jax", ""))
        model = rebuilder.build(header.structure)
        if not isinstance(model, Operator):
            raise ModelFileError(f"the file holds a {header.model}, which is a part of models and not a model")
        return model


def inspect(path: str | os.PathLike[str]) -> Header:
    """Read the header of a model file; the complete file is checked, but no weights are kept.

    Raise `ModelFileError` for anything but a complete and valid model file.
    """
    with opened(Path(path)) as (header, _):
        return header


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Header, Container]]:
    """A valid model file and its header; messages about it begin with its path."""
    try:
        with open_container(path) as container:
            yield read_document(container.text, container.entries, container.digest, container.size), container
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
