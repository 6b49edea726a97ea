"""Where and from what a figure was measured."""

import os
import platform
import subprocess
from pathlib import Path


def commit() -> str:
    """Of the sources, where they are under version control; says so if they have changed since."""
    line = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=, with changes"]
    found = subprocess.run(line, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
    return found.stdout.strip() or "unknown"


def hardware() -> str:
    """Cores, and the name of the processor where the system tells."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {name}"
