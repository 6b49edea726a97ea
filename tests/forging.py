"""Model files forged byte by byte."""

import json

import numpy as np

from loca.saving.container import BEGINNING, NO_DIGEST, digest_of

WIDTHS = {"F32": np.float32}


def taken_apart(contents: bytes) -> tuple[dict, dict, bytes]:
    """Our part of the header, the list of arrays, and their bytes."""
    length = int.from_bytes(contents[:8], "little")
    table = json.loads(contents[8 : 8 + length])
    document = json.loads(table.pop("__metadata__")["loca"])
    del document["sha256"]
    return document, table, contents[8 + length :]


def forged(document: dict | str, table: dict, body: bytes, length: int | None = None) -> bytes:
    """A file with these parts and the digest that belongs to it, as a careful forger would have it."""
    text = document if isinstance(document, str) else json.dumps(document)
    try:
        arrays = {
            name: np.frombuffer(body[slice(*entry["data_offsets"])], WIDTHS[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in table.items()
        }
        digest = digest_of(f'{BEGINNING}{NO_DIGEST}",{text[1:]}', arrays)
    except (TypeError, ValueError, KeyError, AttributeError):  # the list of arrays makes no sense
        digest = NO_DIGEST
    header = json.dumps({"__metadata__": {"loca": f'{BEGINNING}{digest}",{text[1:]}'}, **table}).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + body
