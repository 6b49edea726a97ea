"""Strict JSON with bounded depth and size of numbers, and the error for everything that is wrong with a model file."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DEPTH = 128
"""Levels of nested objects and arrays; the deepest built-in model has about 20."""

MAX_DIGITS = 20
"""Digits of an integer: 64 bits take 19, and a sign."""

# An unterminated string is one token too, or each of its quotes would start another search to the end.
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


class ModelFileError(ValueError):
    """A file that is not a complete and valid model file, or a model that cannot be saved as one."""


def quoted(value: object) -> str:
    """Content of a file for use in a message: quoted, without control characters, and at most 80 characters long."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def parse(text: str) -> Any:
    """Parse JSON that has only finite numbers, unique keys and bounded depth; raise `ModelFileError` otherwise."""
    check_depth(text)
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite, parse_int=_short
        )
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelFileError(f"the header is not valid JSON: {quoted(str(error))}") from error
    write(value)  # JSON can escape half a surrogate pair, but no text can hold it
    return value


def write(value: Any) -> str:
    """Write a value as JSON in one fixed form: without spaces, characters unescaped, keys in their order."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:  # an encoding error is a ValueError
        raise ModelFileError(f"this value cannot be written as JSON: {quoted(str(error))}") from error
    return text


def check_depth(text: str) -> None:
    """Raise if brackets are nested too deeply, before a recursive parser sees them."""
    depth = 0
    for token in TOKENS.finditer(text):
        match text[token.start()]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
        if depth > MAX_DEPTH:
            raise ModelFileError(f"the JSON is nested more than {MAX_DEPTH} levels deep; no model needs that many")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise ModelFileError(f"the key {quoted(key)} occurs twice in the same JSON object")
        value[key] = item
    return value


def _refuse(constant: str) -> Any:
    raise ModelFileError(f"{constant} is not a valid JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ModelFileError(f"the number {quoted(text)} exceeds double precision")
    return value


def _short(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ModelFileError(f"an integer of {len(text)} digits exceeds 64 bits")
    return int(text)
