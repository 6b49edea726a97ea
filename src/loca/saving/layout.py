"""The bytes of a model file, which is a safetensors file.

8 bytes     n, the length of the header, little-endian
n bytes     {"__metadata__":{"sha256":"…","loca":"…"},"q.weights.0":{"dtype":…,"shape":…,"data_offsets":…},…}
the rest    the arrays, without gaps
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from loca.saving import document
from loca.saving.digest import BEGINNING, NO_DIGEST
from loca.saving.entries import Entry, checked_entry
from loca.saving.errors import ModelFileError, shown

MAX_HEADER = 2**19
"""Bytes: room for thousands of arrays, while the most wasteful JSON of this size takes 15 MB of memory."""


def write_header(text: str, entries: Mapping[str, Entry]) -> bytes:
    """The first bytes of a file, still without digest; arrays follow in the order of `entries`."""
    table: dict[str, Any] = {"__metadata__": {"sha256": NO_DIGEST.decode(), "loca": text}}
    end = 0
    for place, entry in entries.items():
        begin, end = end, end + entry.size
        table[place] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [begin, end]}
    header = document.write(table).encode()
    header += b" " * (-len(header) % 8)  # arrays begin at a multiple of 8, as readers that map them into memory like
    if len(header) > MAX_HEADER:
        raise ModelFileError(
            f"the header would take {len(header)} bytes and may take {MAX_HEADER}; shorten the provenance, or stack "
            "many small arrays into few"
        )
    assert header.startswith(BEGINNING)
    return len(header).to_bytes(8, "little") + header


def read_header(file: IO[bytes], size: int) -> bytes:
    """The header of a file of this size, after the 8 bytes that tell its length."""
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > size - 8:
        raise ModelFileError(f"the file ends before its header does ({size} bytes); it was cut, or is no model file")
    if length > MAX_HEADER:
        raise ModelFileError(f"the header claims {length} bytes, more than the {MAX_HEADER} it may have")
    header = file.read(length)
    if not header.startswith(BEGINNING):
        raise ModelFileError("this is not a model file of loca, which are written by `loca.save`")
    return header


def parse_header(header: bytes, size: int) -> tuple[str, dict[str, Entry]]:
    """Our part of a header, and its arrays in the order of their bytes, which are the last `size` of the file."""
    try:
        table = document.parse(header.decode())
    except UnicodeDecodeError as error:
        raise ModelFileError("the header is not text") from error
    match table.pop("__metadata__"):
        case {"sha256": str(), "loca": str(text), **others} if not others:
            return text, check_table(table, size)
    raise ModelFileError("the header has no part of loca's, or more than that")


def check_table(table: Mapping[str, Any], size: int) -> dict[str, Entry]:
    """The arrays that a file lists, if they fill its last `size` bytes without gap or overlap."""
    entries: dict[str, Entry] = {}
    end = 0
    for place, described in table.items():
        match described:
            case {"dtype": dtype, "shape": list(shape), "data_offsets": [int(begin), int(stop)], **others} if (
                not others
            ):
                entries[place] = entry = checked_entry([dtype, *shape], place)
            case _:
                raise ModelFileError(f"the array {shown(place)} is listed as {shown(described)}, which no array is")
        if begin != end or stop - begin != entry.size:
            raise ModelFileError(
                f"the array {shown(place)} of {entry.size} bytes is said to take bytes {begin} to {stop}, after "
                f"{end}; arrays follow each other without gap or overlap"
            )
        end = stop
    if end != size:
        raise ModelFileError(f"the arrays take {end} bytes but the file has {size} for them; it was cut or added to")
    return entries
