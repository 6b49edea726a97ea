"""Files that survive a kill: atomic writes, syncs and locks."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO


class CorruptDataError(ValueError):
    """What is in a file is not what was written to it."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that is there as a whole or not at all, on the disk and not only on its way to it."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # nobody else's, not even an orphan's
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


@contextlib.contextmanager
def lock(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Make a directory and hold it alone, or wait until that is possible; the system lets go when this process ends."""
    descriptor = acquire(directory, wait)
    try:
        yield
    finally:
        os.close(descriptor)


def acquire(directory: Path, wait: bool) -> int:
    """The open lock file of a directory that is made if need be."""
    import fcntl  # not on Windows, where everything else can still be imported

    path = directory / "lock"
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # whoever held it has just finished and removed it
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
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
