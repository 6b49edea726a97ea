"""Resumable work: what was requested, and whether a later call requests the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loca.durable.files import write_atomically

REQUEST = "request.json"
"""The file of work in the making that says what was asked for; the last thing that beginning it writes."""


def is_begun(directory: Path, request: dict[str, Any]) -> bool:
    """Whether this work was begun before; other work in the same directory is refused."""
    path = directory / REQUEST
    if not path.exists():
        return False
    if difference := differences(json.loads(path.read_bytes()), request):
        raise FileExistsError(
            f"{directory} was begun with other arguments ({difference}); give the same ones to go on, "
            "choose another name, or delete it first"
        )
    return True


def write_request(directory: Path, request: dict[str, Any]) -> None:
    """Write what is asked for, so that `is_begun` finds it."""
    write_atomically(directory / REQUEST, lambda file: file.write(json.dumps(request).encode()))


def without_versions(description: dict[str, Any]) -> dict[str, Any]:
    """What the samples are, apart from the packages they were computed with and what is known only afterwards."""
    kept = {name: value for name, value in description.items() if name not in ("statistics", "digest")}
    provenance = {name: value for name, value in kept.get("provenance", {}).items() if name != "versions"}
    return {**kept, "provenance": provenance}


def differences(found: dict[str, Any], asked: dict[str, Any], prefix: str = "") -> str:
    """Where two descriptions differ, in words; empty if nowhere. Different origins explain all the rest."""
    if origins := prefix == "" and differences(found.get("provenance", {}), asked["provenance"], "provenance."):
        return origins
    said = []
    for name in dict.fromkeys([*found, *asked]):
        there, here = found.get(name), asked.get(name)
        if isinstance(there, dict) and isinstance(here, dict):
            said.append(differences(there, here, f"{prefix}{name}."))
        elif there != here:
            said.append(f"{prefix}{name} is {short(there)}, now asked for: {short(here)}")
    return "; ".join(filter(None, said))


def short(value: Any) -> str:
    """A value as it fits into a sentence."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
