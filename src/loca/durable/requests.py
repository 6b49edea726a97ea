"""The request of resumable work: what was requested, and whether a later call requests the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loca.durable.files import write_atomically

REQUEST = "request.json"
"""The file with the request; work has started once it exists."""


def is_started(directory: Path, request: dict[str, Any]) -> bool:
    """Whether this work was started before; raise if the directory holds other work."""
    path = directory / REQUEST
    if not path.exists():
        return False
    if difference := differences(json.loads(path.read_bytes()), request):
        raise FileExistsError(
            f"{directory} was started with other arguments ({difference}); pass the same arguments to resume, "
            "choose another name, or delete it first"
        )
    return True


def write_request(directory: Path, request: dict[str, Any]) -> None:
    """Write the request that `is_started` compares with."""
    write_atomically(directory / REQUEST, lambda file: file.write(json.dumps(request).encode()))


def without_versions(description: dict[str, Any]) -> dict[str, Any]:
    """A description without the versions of packages and without what is known only when the work is complete."""
    kept = {name: value for name, value in description.items() if name not in ("statistics", "digest")}
    provenance = {name: value for name, value in kept.get("provenance", {}).items() if name != "versions"}
    return {**kept, "provenance": provenance}


def differences(found: dict[str, Any], requested: dict[str, Any], prefix: str = "") -> str:
    """The differences of two descriptions in words; empty if there are none.

    Different provenances explain all other differences, so only they are listed.
    """
    if origins := prefix == "" and differences(found.get("provenance", {}), requested["provenance"], "provenance."):
        return origins
    listed = []
    for name in dict.fromkeys([*found, *requested]):
        there, here = found.get(name), requested.get(name)
        if isinstance(there, dict) and isinstance(here, dict):
            listed.append(differences(there, here, f"{prefix}{name}."))
        elif there != here:
            listed.append(f"{prefix}{name} is {short(there)}, now requested: {short(here)}")
    return "; ".join(filter(None, listed))


def short(value: Any) -> str:
    """A value as JSON, at most 60 characters long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
