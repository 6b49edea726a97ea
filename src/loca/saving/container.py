"""The bytes of a model file, which is a safetensors file.

8 bytes     n, the length of the header, little-endian
n bytes     {"__metadata__":{"sha256":"…","loca":"…"},"q.weights.0":{"dtype":…,"shape":…,"data_offsets":…},…}
the rest    the arrays, without gaps

The digest is the SHA-256 of the complete file with zeros in place of the digest, so it covers every bit. Its position
is the same in every version of the format.

The safetensors library reads the arrays and checks that they fill the file without gaps or overlaps. The checks in this
file come first, because the library knows no digest, accepts headers of 100 MB, keeps the last of two equal keys,
ignores unknown keys of an array, and accepts dtypes and shapes that NumPy refuses later. It is not used for writing:

- The library keeps `__metadata__` in a hash map, so the position of `sha256` would vary.
- It takes pointers to all arrays at once, so every array on a device would be copied to the host before the first
  byte is written. Here one array at a time is copied, written and digested.
- It writes to a path; an atomic write needs the open file, to sync it before it is renamed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors

from loca.saving import strict_json
from loca.saving.strict_json import ModelFileError, quoted

BEGINNING = b'{"__metadata__":{"sha256":"'
"""The first bytes of every header, after the 8 bytes of its length."""

DIGEST_AT = 8 + len(BEGINNING)
NO_DIGEST = b"0" * 64
CHUNK = 2**20

MAX_HEADER = 2**19
"""Bytes of a header: enough for thousands of arrays, while the most wasteful JSON of this size takes 15 MB."""

MAX_DIMENSIONS = 32
MAX_EXTENT = 2**40
"""Elements of an array, counting each empty axis as one: an empty array takes no bytes however long its other axes."""

DTYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype(bool),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "F32": np.dtype(np.float32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
}
"""The kinds of numbers in a model file, by their names in safetensors."""

DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

Arrays = dict[str, jax.Array | np.ndarray]
"""Arrays by their places in a model, such as `q.weights.0`."""


class Entry(NamedTuple):
    """The dtype and shape of one array."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def entry_of(array: jax.Array | np.ndarray, place: str) -> Entry:
    """The entry of an array to be written."""
    name = DTYPE_NAMES.get(array.dtype)
    if name is None:
        raise ModelFileError(
            f"`{place}` is an array of {array.dtype}, which a model file cannot hold; it holds {', '.join(DTYPES)}. "
            "Store complex numbers as real and imaginary parts, and keep random keys out of the model"
        )
    return Entry(name, array.shape)


def checked_entry(description: Any, place: str) -> Entry:
    """The entry that a file describes as [dtype, *shape]."""
    match description:
        case [str(dtype), *shape] if (
            dtype in DTYPES
            and len(shape) <= MAX_DIMENSIONS
            and all(type(n) is int and n >= 0 for n in shape)
            and math.prod(max(n, 1) for n in shape) <= MAX_EXTENT
        ):
            return Entry(dtype, tuple(shape))
    raise ModelFileError(
        f"the array {quoted(place)} is described as {quoted(description)}; expected a known dtype and a valid shape"
    )


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_header(text: str, entries: Mapping[str, Entry]) -> bytes:
    """The length and the header of a file, without its digest; the arrays follow in the order of `entries`."""
    table: dict[str, Any] = {"__metadata__": {"sha256": NO_DIGEST.decode(), "loca": text}}
    end = 0
    for place, entry in entries.items():
        begin, end = end, end + entry.size
        table[place] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [begin, end]}
    header = strict_json.write(table).encode()
    header += b" " * (-len(header) % 8)  # arrays begin at a multiple of 8, as readers that map them into memory expect
    if len(header) > MAX_HEADER:
        raise ModelFileError(
            f"the header would take {len(header)} bytes, at most {MAX_HEADER} are allowed; shorten the provenance, or "
            "stack many small arrays into few"
        )
    assert header.startswith(BEGINNING)
    return len(header).to_bytes(8, "little") + header


def write_container(file: IO[bytes], header: bytes, arrays: Iterable[jax.Array | np.ndarray]) -> None:
    """Write header, arrays and finally the digest of both; at most one array at a time is copied."""
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


# ---- reading ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Container:
    """An open model file whose digest, header and layout are valid.

    **Arguments:**

    - `text`: the JSON document about the model.
    - `entries`: dtype and shape of every array, in the order of their bytes.
    - `digest`: the SHA-256 of the file.
    - `size`: the size of the file in bytes.
    - `stored`: the arrays, still in the file.
    """

    text: str
    entries: Mapping[str, Entry]
    digest: str
    size: int
    stored: safetensors.safe_open

    def read(self, place: str) -> jax.Array:
        """Read one array."""
        entry = self.entries[place]
        dtype = DTYPES[entry.dtype]
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            raise ModelFileError(
                f"the array {quoted(place)} has 64-bit numbers ({entry.dtype}), which JAX would truncate to 32 bits; "
                "set JAX_ENABLE_X64=1, or load it inside `with jax.enable_x64(True):`"
            )
        array = self.stored.get_tensor(place)
        if entry.dtype == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
            raise ModelFileError(f"the array {quoted(place)} has bytes that are neither true nor false")
        return jnp.asarray(array)


@contextlib.contextmanager
def open_container(path: Path) -> Iterator[Container]:
    """Open a model file; raise `ModelFileError` unless it is complete and undamaged."""
    if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block
        raise ModelFileError("a model is a single file, and this path is not a file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = read_header(file, size)
        digest = check_digest(file)
        text, entries = parse_header(header)
        # The library opens files by path. That of the descriptor leads to the file whose digest was checked, even if
        # another process saves a new one under the same name meanwhile.
        descriptor = Path(f"/dev/fd/{file.fileno()}")
        try:
            # Mapped into memory, a file that is truncated while it is read would end the process by a signal.
            with safetensors.safe_open(
                descriptor if descriptor.exists() else path, framework="numpy", backend="pread"
            ) as stored:
                if (stored.metadata() or {}).get("sha256") != digest:
                    raise ModelFileError("the file was replaced while it was read; load it again")
                yield Container(text, entries, digest, size, stored)
        except safetensors.SafetensorError as error:
            raise ModelFileError(
                f"the arrays do not match the file ({quoted(str(error))}); it was truncated or altered"
            ) from error


def read_header(file: IO[bytes], size: int) -> bytes:
    """The header of a file of this size, after the 8 bytes of its length."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > size - 8:
        raise ModelFileError(
            f"the file ends before its header does ({size} bytes); it was truncated, or it is not a model file"
        )
    if length > MAX_HEADER:
        raise ModelFileError(f"the header claims {length} bytes, at most {MAX_HEADER} are allowed")
    header = file.read(length)
    if not header.startswith(BEGINNING):
        raise ModelFileError(
            "this is not a model file of loca, nor an exported program; `loca.save` and `loca.export` write them"
        )
    return header


def check_digest(file: IO[bytes]) -> str:
    """Compute the digest of a file; raise unless the file carries the same one."""
    file.seek(0)
    before, claimed = file.read(DIGEST_AT), file.read(len(NO_DIGEST))
    actual = hashlib.sha256(before + NO_DIGEST)
    while chunk := file.read(CHUNK):
        actual.update(chunk)
    if claimed != actual.hexdigest().encode():
        raise ModelFileError("the file does not match its SHA-256: it is damaged or was altered; use another copy")
    return actual.hexdigest()


def parse_header(header: bytes) -> tuple[str, dict[str, Entry]]:
    """The JSON document about the model, and the arrays in the order of their bytes."""
    try:
        table = strict_json.parse(header.decode())
    except UnicodeDecodeError as error:
        raise ModelFileError("the header is not valid UTF-8") from error
    match table.pop("__metadata__"):
        case {"sha256": str(), "loca": str(text), **others} if not others:
            return text, dict(listed_arrays(table))
    raise ModelFileError("the metadata of the header must hold `sha256` and `loca`, and nothing else")


def listed_arrays(table: Mapping[str, Any]) -> Iterator[tuple[str, Entry]]:
    """The arrays that a header lists; the library checks afterwards that they fill the file without gap or overlap."""
    end = 0
    for place, described in table.items():
        match described:
            case {"dtype": dtype, "shape": list(shape), "data_offsets": [int(begin), int(stop)], **others} if (
                not others
            ):
                entry = checked_entry([dtype, *shape], place)
            case _:
                raise ModelFileError(
                    f"the array {quoted(place)} is listed as {quoted(described)}; expected dtype, shape and offsets"
                )
        if begin != end:
            raise ModelFileError(
                f"the array {quoted(place)} begins at byte {begin}, but the one before ends at {end}; arrays are "
                "listed in the order of their bytes, without gaps"
            )
        end = stop
        yield place, entry
