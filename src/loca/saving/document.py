"""JSON, and nothing but: what other readers forgive is refused."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from loca.saving.errors import ModelFileError, shown

MAX_DEPTH = 128
"""Objects and arrays inside each other; the deepest model of our own has about 20."""

MAX_DIGITS = 20
"""Of an integer: 64 bits have 19, and a sign."""

# A string that never ends is one token too, or each of its quotes would begin another search to the end.
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


def parse(text: str) -> Any:
    """The value of a JSON text with finite numbers, keys that occur once, and bounded depth."""
    check_depth(text)
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite, parse_int=_short
        )
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelFileError(f"the header is not JSON: {shown(str(error))}") from error
    write(value)  # half a surrogate pair can be escaped in JSON but written nowhere
    return value


def write(value: Any) -> str:
    """The JSON text of a value, in one fixed form: no spaces, characters as they are, keys in their order."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:  # an encoding error is a ValueError
        raise ModelFileError(f"this cannot be written as JSON: {shown(str(error))}") from error
    return text


def check_depth(text: str) -> None:
    """Raise if brackets stand too deep inside each other; a parser would meet them by recursion."""
    depth = 0
    for token in TOKENS.finditer(text):
        match text[token.start()]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
        if depth > MAX_DEPTH:
            raise ModelFileError(f"JSON is more than {MAX_DEPTH} levels deep; a model is never nested so deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise ModelFileError(f"the key {shown(key)} occurs twice in the same JSON object")
        value[key] = item
    return value


def _refuse(constant: str) -> Any:
    raise ModelFileError(f"{constant} is not a number that JSON knows")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ModelFileError(f"the number {shown(text)} is beyond double precision")
    return value


def _short(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ModelFileError(f"an integer of {len(text)} digits is beyond 64 bits")
    return int(text)
