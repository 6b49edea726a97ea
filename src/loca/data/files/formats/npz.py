"""NumPy's .npz."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from loca.data.files.formats import arrays
from loca.data.files.formats.layout import Layout, Names
from loca.data.files.formats.sniff import start


def recognizes(path: Path) -> bool:
    """Whether this is an archive of .npy files."""
    if start(path)[:4] != b"PK\x03\x04":
        return False
    with zipfile.ZipFile(path) as archive:
        return all(name.endswith(".npy") for name in archive.namelist())


def read(path: Path, names: Names) -> Layout:
    """The arrays with the names that are asked for; only these are read, but they are read as a whole."""
    return arrays.layout(path, shapes(path), lambda name: numbers(path, name), names)


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every array, from its header alone."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as member:
                version = np.lib.format.read_magic(member)
                header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                found[name.removesuffix(".npy")] = header(member)[0]
    return found


def numbers(path: Path, name: str) -> np.ndarray:
    """One array; never one of Python objects, since reading these can run any code."""
    with np.load(path, allow_pickle=False) as archive:
        try:
            return archive[name]
        except ValueError as error:
            if "Object arrays" not in str(error):
                raise
            raise ValueError(
                f"{name!r} of {path} holds Python objects, which can run code when they are read, and is left alone. "
                "If you trust the file, load it yourself and save its numbers as one array: "
                f"np.savez(path, {name}=np.stack(list({name}))); pad parts of different lengths with NaN first"
            ) from error
