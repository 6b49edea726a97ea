"""SHA-256 of a file that carries it.

The digest is that of the whole file with zeros in its own place, so it covers every bit. The place is the same in every
version of the format.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import IO

import jax
import numpy as np

from loca.saving.errors import ModelFileError

BEGINNING = b'{"__metadata__":{"sha256":"'
"""Of every header, after the 8 bytes that tell its length."""

DIGEST_AT = 8 + len(BEGINNING)
NO_DIGEST = b"0" * 64
CHUNK = 2**20


def check_digest(file: IO[bytes]) -> str:
    """The digest of a file, if it is the one the file carries."""
    file.seek(0)
    before, claimed = file.read(DIGEST_AT), file.read(len(NO_DIGEST))
    actual = hashlib.sha256(before + NO_DIGEST)
    while chunk := file.read(CHUNK):
        actual.update(chunk)
    if claimed != actual.hexdigest().encode():
        raise ModelFileError("the file does not match its SHA-256: it is damaged or was altered; take another copy")
    return actual.hexdigest()


def write_digested(file: IO[bytes], header: bytes, arrays: Iterable[jax.Array | np.ndarray]) -> None:
    """Header, arrays, and then the digest of both where it belongs; no array is copied but the one being written."""
    digest = hashlib.sha256()

    def put(data: bytes | memoryview) -> None:
        digest.update(data)
        file.write(data)

    put(header)
    for array in arrays:
        put(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    file.seek(DIGEST_AT)
    file.write(digest.hexdigest().encode())
    file.seek(0, os.SEEK_END)
