"""Files that survive a killed process: atomic writes, syncs and locks."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO


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

    path = directory / "lock"
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # the previous holder has just finished and removed the directory
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RuntimeError(
                f"{directory} is being written by another process; wait for it, stop it, or choose another name"
            ) from None
        if same_file(descriptor, path):
            return descriptor
        os.close(descriptor)


def same_file(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
