"""Model files as bytes: safetensors files with a strict JSON document, and a digest of everything in them.

The metadata of the file has one entry, `loca`: a JSON document that begins with the SHA-256 of the document, with zeros
in place of the digest, and of the name, type, shape and bytes of every array. One entry, because the safetensors
library writes several in any order, and equal models are equal files.
"""

import dataclasses
import hashlib
import json
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pydantic
import safetensors
import safetensors.numpy

from loca.durable import sync, write_atomically

MAX_HEADER = 2**19
"""Bytes of a header: enough for thousands of arrays, while the most wasteful JSON of this size takes 15 MB."""

TYPES = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
"""The types of arrays that a file can hold."""

BEGINNING, NO_DIGEST = '{"sha256":"', "0" * 64

Arrays = dict[str, jax.Array | np.ndarray]
"""Arrays by their places in a model, such as `q.weights.0`."""


class ModelFileError(ValueError):
    """A file that is not a complete and valid model file, or a model that cannot be saved as one."""


def quoted(value: object) -> str:
    """Content of a file for use in a message: quoted, without control characters, and at most 80 characters long."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- strict JSON -----------------------------------------------------------------------------------------------------


class Strict(pydantic.BaseModel):
    """JSON without conversions between types and without unknown keys."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid", frozen=True)


def first_problem(error: pydantic.ValidationError) -> str:
    """The first thing that is wrong with a document."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field = quoted(".".join(map(str, problem["loc"])))
    return f"{field} in the header: {problem['msg'].lower()}, got {quoted(problem['input'])}"


def parse(text: str) -> Any:
    """Parse JSON that has only finite numbers and unique keys; raise `ModelFileError` otherwise."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
        text.encode()
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"the header is not valid JSON: {quoted(str(error))}") from error
    return value


def write(value: Any) -> str:
    """Write a value as JSON in one fixed form: without spaces, characters unescaped, keys in their order."""
    try:
        text = json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:  # an encoding error is a ValueError
        raise ModelFileError(f"this value cannot be written as JSON: {quoted(str(error))}") from error
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} of type {type(value).__name__}; give text, finite numbers, lists and dictionaries")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice in the same object")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {quoted(text)} is not finite in double precision")
    return value


# ---- files -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Contents:
    """JSON text and named arrays of a valid file, the SHA-256 of both, and the size of the file in bytes."""

    document: str
    arrays: Mapping[str, np.ndarray]
    digest: str
    size: int


def write_arrays(path: Path, document: str, arrays: Arrays) -> None:
    """Write a JSON object, as text that is not empty, and arrays to one file, atomically."""
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    digest = digest_of(BEGINNING + NO_DIGEST + '",' + document[1:], plain)
    contents = safetensors.numpy.save(plain, {"loca": f'{BEGINNING}{digest}",{document[1:]}'})
    if (length := int.from_bytes(contents[:8], "little")) > MAX_HEADER:
        raise ModelFileError(
            f"the header would take {length} bytes, at most {MAX_HEADER} are allowed; shorten the provenance, or stack "
            "many small arrays into few"
        )
    write_atomically(path, lambda file: file.write(contents))
    sync(path.parent)


def read_arrays(path: Path) -> Contents:
    """Read a file; raise `ModelFileError` unless it is complete and undamaged."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
        raise ModelFileError("a model is a single file, and this path is not a file")
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if status.st_size < 8 or length > status.st_size - 8:
        raise ModelFileError(
            f"the file ends before its header does ({status.st_size} bytes); it was truncated, or is not a model file"
        )
    if length > MAX_HEADER:
        raise ModelFileError(f"the header claims {length} bytes, at most {MAX_HEADER} are allowed")
    try:
        # mapped into memory, a file that is truncated while it is read would end the process by a signal
        with safetensors.safe_open(path, framework="numpy", backend="pread") as stored:
            metadata = stored.metadata() or {}
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except Exception as error:  # of several kinds, for what NumPy cannot hold
        raise ModelFileError(
            f"the file was truncated, damaged or altered, or is no model file; use another copy ({quoted(str(error))})"
        ) from error
    text = metadata.get("loca", "")
    start = len(BEGINNING)
    if not text.startswith(BEGINNING) or text[start + 64 : start + 66] != '",':
        raise ModelFileError(
            "this is not a model file of loca, nor an exported program; `loca.save` and `loca.export` write them"
        )
    claimed = text[start : start + 64]
    if len(metadata) > 1 or claimed != digest_of(BEGINNING + NO_DIGEST + text[start + 64 :], arrays):
        raise ModelFileError("the file does not match its SHA-256: it is damaged or was altered; use another copy")
    return Contents("{" + text[start + 66 :], arrays, claimed, status.st_size)


def digest_of(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a text, and of the name, type, shape and bytes of every array."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
