"""Durable files: atomic writes, locks, digests and resumable work."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import multiprocessing
import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

__all__ = [
    "MANIFEST",
    "CorruptDataError",
    "Manifest",
    "differences",
    "is_started",
    "lock",
    "sync",
    "sync_tree",
    "without_versions",
    "write_atomically",
    "write_request",
]


class CorruptDataError(ValueError):
    """The content of a file is not what was written to it."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically: it appears under its name only when it is completely on the disk.

    **Arguments:**

    - `path`: the file; an existing one is replaced.
    - `write`: writes the content to an open file.
    """
    # a random name, which no other process uses, not even one left over from a killed run
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Wait until a directory and everything below it are on the disk."""
    for path in [*directory.rglob("*"), directory]:
        sync(path)


@contextlib.contextmanager
def lock(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Create a directory and lock it for this process; the system releases the lock when the process ends.

    **Arguments:**

    - `directory`: the directory; its file `lock` carries the lock.
    - `wait`: whether to wait while another process holds the lock, or to raise.
    """
    descriptor = acquire(directory, wait)
    try:
        yield
    finally:
        os.close(descriptor)


def acquire(directory: Path, wait: bool) -> int:
    """Lock a directory, created if necessary, and return the descriptor of its lock file."""
    import fcntl  # missing on Windows, where the rest of the package can still be imported

    if wait and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(  # its parent holds the lock and waits for it
            "a worker process imports the script that started it and must not run it again; call this under "
            "`if __name__ == '__main__':`"
        )
    path = directory / "lock"
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # the previous holder has just finished and removed the directory
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy = f"{directory} is being written by another process; "
            if not wait:
                os.close(descriptor)
                raise RuntimeError(f"{busy}wait for it, stop it, or choose another name") from None
            warnings.warn(f"{busy}waiting for it", stacklevel=4)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if same_file(descriptor, path):
            return descriptor
        os.close(descriptor)


def same_file(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


MANIFEST = "manifest.json"
"""The last file to be written: a directory without it is incomplete."""

VERSION = 1
"""Version of the manifest and of the directory around it."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """SHA-256 of every file in a directory, and a description of them.

    The manifest also holds the digest of its own content.

    **Arguments:**

    - `about`: the description, in any form that JSON can hold.
    - `files`: digests in hexadecimal digits, by path below the directory.
    - `version`: version of the manifest.
    """

    about: dict[str, Any]
    files: dict[str, str]
    version: int = VERSION

    @classmethod
    def seal(cls, directory: Path, about: dict[str, Any]) -> Manifest:
        """Write the manifest of a directory that is otherwise complete, and sync everything to the disk."""
        sync_tree(directory)  # the files must reach the disk before the manifest does
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        files = {path.relative_to(directory).as_posix(): digest(path) for path in paths}
        manifest = cls(about, files)
        write_atomically(directory / MANIFEST, lambda file: file.write(manifest.encoded()))
        sync(directory)
        return manifest

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Read and check the manifest of a directory; `verify` checks the files."""
        path = directory / MANIFEST
        found = path.read_bytes()
        try:
            parsed = json.loads(found)
            manifest = cls(parsed["about"], parsed["files"], parsed["version"])
            expected = manifest.encoded()
        except (ValueError, RecursionError, TypeError, KeyError):
            raise damaged(path) from None
        if expected != found:
            raise damaged(path)
        if manifest.version != VERSION:
            raise ValueError(
                f"{path} has version {manifest.version}, but this version of loca reads version {VERSION}; "
                "use the version of loca that wrote it"
            )
        return manifest

    def encoded(self) -> bytes:
        """The manifest as bytes, in its only valid form, so that every changed bit is detected."""
        contents = {"version": self.version, "about": self.about, "files": self.files}
        text = json.dumps(contents, allow_nan=False).encode()
        return json.dumps(contents | {"sha256": hashlib.sha256(text).hexdigest()}, indent=1).encode()

    def verify(self, directory: Path) -> None:
        """Read every file and compare digests; raise `CorruptDataError` that names the first that differs."""
        for name, expected in self.files.items():
            path = directory / name
            if not path.is_file():
                raise CorruptDataError(f"{path} is missing")
            if digest(path) != expected:
                raise damaged(path)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged(path: Path) -> CorruptDataError:
    """The error for a file that changed after it was written."""
    return CorruptDataError(f"{path} is damaged: its content is not what was written to it")


REQUEST = "request.json"
"""The file with the request; work has started once it exists."""


LAYOUT = "block", "shard"
"""Of a store: how many functions a piece and a file hold, which depends on their count unless it is given."""


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

    A different provenance explains all other differences, and a different count those of the layout. What is explained
    is not listed.
    """
    if origins := prefix == "" and differences(found.get("provenance", {}), requested["provenance"], "provenance."):
        return origins
    listed = {}
    for name in dict.fromkeys([*found, *requested]):
        there, here = found.get(name), requested.get(name)
        if isinstance(there, dict) and isinstance(here, dict):
            listed[name] = differences(there, here, f"{prefix}{name}.")
        elif there != here:
            listed[name] = f"{prefix}{name} is {short(there)}, now requested: {short(here)}"
    if listed.get("count"):
        listed |= dict.fromkeys(LAYOUT, "")
    return "; ".join(filter(None, listed.values()))


def short(value: Any) -> str:
    """A value as JSON, at most 60 characters long."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
