"""From a file to a model."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import jax
import jax.numpy as jnp
import numpy as np

from loca.models import Operator
from loca.saving.digest import check_digest
from loca.saving.entries import DTYPES, Entry
from loca.saving.errors import ModelFileError, shown
from loca.saving.header import Header
from loca.saving.header_reading import read_document
from loca.saving.known import Extra
from loca.saving.layout import parse_header, read_header
from loca.saving.rebuilding import Rebuilder


def inspect(path: str | os.PathLike[str]) -> Header:
    """What a model file says of itself; the whole file is checked, but no weights are kept.

    Raises `ModelFileError` for anything that is not a whole and sound model file.
    """
    with opened(Path(path)) as (header, _):
        return header


def load(path: str | os.PathLike[str], *, extra: Extra = ()) -> Operator:
    """The model of a file, as it was saved.

    Every size is checked against the file before anything is allocated, and every bit against the digest. Nothing that
    the file says is run or imported. Raises `ModelFileError` for anything that is not a whole and sound model file.

    **Arguments:**

    - `path`: what `save` wrote.
    - `extra`: your own classes and activations that the model is made of: `load(path, extra=[MyKernel])`.
    """
    with opened(Path(path)) as (header, file):
        begins, offset = {}, header.size - sum(entry.size for entry in header.arrays.values())
        for place, entry in header.arrays.items():
            begins[place] = offset
            offset += entry.size

        def array(place: str) -> jax.Array:
            return read_array(file, begins[place], place, header.arrays[place])

        rebuilder = Rebuilder(array, extra, header.versions.get("loca-jax", ""))
        model = rebuilder.build(header.structure)
        if not isinstance(model, Operator):
            raise ModelFileError(f"the file holds a {header.model}, which is a part of models and not a model")
        return model


@contextmanager
def opened(path: Path) -> Iterator[tuple[Header, IO[bytes]]]:
    """A file that was found sound, and its header."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
        raise ModelFileError(f"{path}: a model is a single file, and this is none")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            header = read_header(file, size)
            digest = check_digest(file)
            text, entries = parse_header(header, size - 8 - len(header))
            yield read_document(text, entries, digest, size), file
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from error


def read_array(file: IO[bytes], offset: int, place: str, entry: Entry) -> jax.Array:
    """One array, from its first byte on; its size has been checked against the file."""
    dtype = DTYPES[entry.dtype]
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ModelFileError(
            f"the array {shown(place)} has 64-bit numbers ({entry.dtype}), which JAX would cut to 32; load it inside "
            "`with jax.enable_x64(True):`"
        )
    file.seek(offset)
    data = file.read(entry.size)
    if len(data) != entry.size:
        raise ModelFileError(f"the file ended within the array {shown(place)}; it was cut while it was read")
    if entry.dtype == "BOOL" and data.strip(b"\0\1"):
        raise ModelFileError(f"the array {shown(place)} has bytes that are neither true nor false")
    return jnp.asarray(np.frombuffer(data, dtype).reshape(entry.shape))
