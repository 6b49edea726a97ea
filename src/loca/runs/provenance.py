"""Where a number comes from: the run that produced it, the source code and the machine."""

import dataclasses
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np


def describe(value: Any) -> Any:
    """A dataclass with everything it holds, as JSON content."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"is": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [describe(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def commit() -> str:
    """The commit of the source code, marked if files have changed since; "unknown" without version control."""
    line = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=, with changes"]
    found = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return found.stdout.strip() or "unknown"


def hardware() -> str:
    """The number of cores, and the name of the processor where the system provides it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {name}"
