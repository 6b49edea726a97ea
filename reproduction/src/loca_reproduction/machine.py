"""The machine and the source code that a measurement was made with."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def versions() -> dict[str, str]:
    """The versions of the packages on which numbers depend."""
    return {name: importlib.metadata.version(name) for name in ("loca-jax", "jax", "numpy", "scipy")}


def in_new_process(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """What a function of this package returns in a new process, as JSON content, given plain arguments."""
    name = function.__name__
    code = f"import json; from {function.__module__} import {name}; print(json.dumps({name}(*{arguments!r})))"
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{name}` failed in a process of its own:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def write(path: Path, text: str) -> None:
    """Write a text file that is complete whenever it exists."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
